/* What every function above the texts is handed: the caller's ngs_cache, and its scratch cut into parts. */
#ifndef NGS_CACHE_H
#define NGS_CACHE_H

#include "../include/ngramspec.h"
#include "requests.h"
#include "shared_text.h"

/* The text that a candidate of this class lies in. */
typedef struct {
    const i64 *h;
    const i32 *m;
} Text;

enum { OWN, SHARED, FROZEN }; /* classes of evidence */

static inline Text text_of(const ngs_cache *c, i64 kind) {
    if (kind == FROZEN) return (Text){c->frozen, c->frozen_mem};
    return (Text){kind == OWN ? c->own : c->shared, c->mem};
}

#endif
