"""Frozen text: documents one after the other in a store of their own, owned by no tenant."""

from .._jit import kernel
from ..arena import BLOCK
from .store import insert, open_block, put, take_free_block


@kernel
def append_document(h, m, tokens, vocab_size):
    """Append a document behind all others. It starts a block without predecessor, so that no match reaches across."""
    b = -1
    for j in range(len(tokens)):
        if j & (BLOCK - 1) == 0:
            following = take_free_block(h, m)
            open_block(h, m, following, b, 0, 0, 0)
            b = following
        token = int(tokens[j])
        p = put(h, m, b, token + 1 if 0 <= token < vocab_size else -1)
        insert(h, m, p, 0, 0)
