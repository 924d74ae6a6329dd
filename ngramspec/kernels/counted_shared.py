"""Which counted contexts stem from shared text: those of requests that share nothing lie in the same table."""

from .._jit import kernel
from ..arena import BLOCK, K_OFF, M_FILL, M_OWNER_HI, M_OWNER_LO, META, S_BLOCKS, S_META, S_TEXT
from .counts import K_WIDTH, N_ORDERS, find, keys
from .store import older, owner_seed


@kernel
def mark_shared(hs, hk, m, context, rows, checks, marks):
    """Mark the row of every context that occurs in shared text; scratch `context`, `rows`, `checks` int32[N_ORDERS]."""
    for b in range(hs[S_BLOCKS]):
        meta = hs[S_META] + b * META
        seed = owner_seed(int(m[meta + M_OWNER_LO]), int(m[meta + M_OWNER_HI]))
        for i in range(m[meta + M_FILL]):
            q, n = b * BLOCK + i, 0
            while q >= 0 and n < N_ORDERS and m[hs[S_TEXT] + q] > 0:
                context[n] = m[hs[S_TEXT] + q]
                q = older(hs, m, q)
                n += 1
            keys(hk, seed, context, n, rows, checks)
            for k in range(n):
                at = find(hk, m, int(rows[k]), int(checks[k]))
                if at >= 0:
                    marks[(at - hk[K_OFF]) // K_WIDTH] = True
