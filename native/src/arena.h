/* Where everything lies in the buffer: the constants of ngramspec/arena.py, which a test compares with these.
 *
 * `h` is always a component's header, int64[WORDS]; `m` the whole buffer as int32. Offsets count int32 elements.
 * Numbers are computed in 64 bits and stored in 32, as the compiled Python kernels do. */
#ifndef NGS_ARENA_H
#define NGS_ARENA_H

#include <stdint.h>

typedef int64_t i64;
typedef int32_t i32;

#define MAGIC INT64_C(0x636570736d72676e) /* "ngrmspec", little end first */

enum { LAYOUT_VERSION = 1, WORDS = 64 };

/* Arena header. */
enum { A_MAGIC, A_VERSION, A_NBYTES, A_DIGEST, A_COMPONENTS, A_NAMES = 8 };

/* Requests: one row a request or idle session. */
enum {
    R_ROWS, R_OFF, R_VOCAB, R_SERIAL, R_IDLE_OLD, R_IDLE_NEW, R_N_EOS, R_N_IDLE,
    R_DRAFTS, R_TOKENS_IN, R_TOKENS_OUT, R_REASON0 = 12, R_EOS0 = 32, MAX_EOS = 16
};
enum {
    T_STATE, T_SHARE, T_OWNER_LO, T_OWNER_HI, T_TENANT_LO, T_TENANT_HI, T_LENGTH, T_FIRST, T_TAIL, T_BLOCKS, T_DROPPED,
    T_PROMPT, T_OLDER, T_NEWER, T_SHARED_TAIL, T_SERIAL, T_N_BANNED, T_N_ROOTS, T_SHARED_N, T_CONTEXT_N,
    T_LAST_N, T_LAST_STOP, T_BANNED = 24, MAX_BANNED = 16, T_ROOTS = 40, MAX_ROOTS = 16, ROW = 64
};
enum { FREE, LIVE, IDLE };
enum { SHARE_NONE, SHARE_OUTPUTS, SHARE_ALL };

/* Store: text in blocks, and chains of earlier positions with the same last k tokens. */
enum { BLOCK = 32, MAX_ORDERS = 6, META = 8 };
enum {
    S_BLOCKS, S_HEADS, S_ORDERS, S_TEXT, S_LINKS, S_HEAD, S_META, S_CLOCK, S_CURSOR, S_FREE, S_N_FREE, S_TOKENS,
    S_EVICTED, S_HOPS, S_TOP, S_ORDER0 = 16
};
enum { M_OWNER_LO, M_OWNER_HI, M_NEXT, M_PREV, M_FILL, M_WRITER, M_FREE };

/* Suffix trie: counted contexts of own and shared text. */
enum { C_TOKEN, C_PARENT, C_COUNT, C_CHILD, C_NEWER, C_OLDER, C_SUFFIX, C_USE, NODE = 8 };
enum { OWN_ROOT = -1, SHARED_ROOT = -2 }; /* in the place of a root's token */
enum {
    X_NODES, X_DEPTH, X_FOLLOWERS, X_BITS, X_EDGES, X_NODE, X_VERSION, X_EDGE, X_PLACE, X_BUMP, X_FREE, X_N_FREE,
    X_WASTE, X_HAND, X_CREATED, X_FREED, X_EVICTED
};
enum {
    P_ROOT, P_ROOT_VERSION, P_OWN, P_OWN_VERSION, P_OWN_LENGTH, P_SHARED, P_SHARED_VERSION, P_SHARED_LENGTH, P_SEEN,
    P_COUNTED, PLACE = 16
};
enum { EDGES_PER_NODE = 2 };

/* Counts: one row a counted context. */
enum { K_ROWS, K_OFF, K_TOKENS, COUNT_ROW = 16 };

/* Mixer: adaptive tables and weights. */
enum { B_TABLES, B_NODE, B_TOKEN, B_GROUP, B_FINAL };

/* Offers: the candidates behind each row's last draft. */
enum { F_OFF, OFFER_ROW = 928 };

#endif
