"""How long a collective transfers at most: the loop against its slow twin."""

import math

import numpy as np
import pytest

from lumos_df.graph.simulate.least_transfers import least_transfers


@pytest.mark.parametrize("seed", range(20))
def test_no_transfer_takes_longer_than_larger_ones_or_smaller_ones_sent_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    links, sent, lasted = rng.integers(0, 4, n), rng.integers(-1, 9, n), rng.integers(0, 1000, n)
    order = np.lexsort((sent, links))
    links, sent, lasted = links[order], sent[order], lasted[order]
    for k, bound in enumerate(least_transfers(links, sent, lasted).tolist()):
        beside = [other for other in range(n) if links[other] == links[k]]
        larger = [lasted[other] for other in beside if sent[other] >= sent[k]]
        again = [math.ceil(lasted[j] * (sent[k] / sent[j])) for j in beside if 0 < sent[j] <= sent[k]]
        assert abs(bound - min(larger + again)) <= 1
