"""The loop that says how long the transfer of a collective takes at most, by others of its kind in its group."""

import numpy as np

from lumos_df.base.jit import kernel


@kernel
def least_transfers(links, sent, lasted):
    """Return int64 [n] ns: what each transfer takes at most, by others over the same links.

    One of as many bytes or more takes no less, and one of fewer bytes could be sent again until all bytes are there: so
    t(b) <= min over b' of t(b') * max(1, b / b').

    Args:
        links: int [n] which links each uses, ascending.
        sent: int64 [n] bytes, ascending among those of the same links; what is not positive is not known.
        lasted: int64 [n] how long each lasted, ns, with what it waited.
    """
    n = len(links)
    least = lasted.copy()
    for k in range(n - 2, -1, -1):
        if links[k] == links[k + 1] and least[k + 1] < least[k]:
            least[k] = least[k + 1]
    rate = np.inf
    for k in range(n):
        if k == 0 or links[k] != links[k - 1]:
            rate = np.inf
        elif sent[k] == sent[k - 1]:
            least[k] = min(least[k], least[k - 1])
        if sent[k] <= 0:
            continue
        rate = min(rate, lasted[k] / sent[k])
        least[k] = min(least[k], int(np.ceil(rate * sent[k])))
    return least
