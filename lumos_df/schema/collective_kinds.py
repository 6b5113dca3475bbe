"""Kinds of collective: each once, with what names say it, what it moves, and whose cost function holds for it.

A new kind is one row of `COLLECTIVE_KINDS`; kernels read the tuples below it. A kind with a cost function of its own
gets that in `model.kernels.network`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    """One kind of collective."""

    word: str
    """How tables call it."""
    pattern: str
    """Regular expression that its names contain, small letters."""
    rounds: int = 0
    """nccl-tests' busbw is this times (n-1)/n of algbw; 0: the same."""
    grows: int = 0
    """What a rank has afterwards: 1: n times what it gave; -1: an nth of that; 0: as much."""
    together: bool = False
    """Whether its members end at the same moment on all ranks."""
    reduces: bool = False
    """Whether it adds up what the ranks give."""
    even: bool = False
    """Whether every rank gives as much as the others."""
    direct: bool = False
    """Whether it goes from one rank to another."""
    modelled_as: str = ""
    """The kind whose cost function holds; empty: none."""
    fitted_as: str = ""
    """The kind whose fitted parameters its cost function takes; empty: it has no cost function."""


COLLECTIVE_KINDS: Final = (
    CollectiveKind(
        "all_reduce", r"all_?reduce", rounds=2, together=True, reduces=True, even=True,
        modelled_as="all_reduce", fitted_as="all_reduce",
    ),
    CollectiveKind(
        "all_gather", r"all_?gather", rounds=1, grows=1, together=True, even=True,
        modelled_as="all_gather", fitted_as="all_gather",
    ),
    CollectiveKind(
        "reduce_scatter", r"reduce_?scatter", rounds=1, grows=-1, together=True, reduces=True, even=True,
        modelled_as="reduce_scatter", fitted_as="reduce_scatter",
    ),
    CollectiveKind(
        "all_to_all", r"all_?to_?all", rounds=1, together=True,
        modelled_as="all_to_all", fitted_as="all_to_all",
    ),
    CollectiveKind("send_recv", r"send_?recv", direct=True, modelled_as="send"),
    CollectiveKind("broadcast", r"broadcast", even=True, modelled_as="broadcast", fitted_as="all_gather"),
    CollectiveKind("barrier", r"barrier", together=True),
    CollectiveKind("scatter", r"scatter", rounds=1, grows=-1),
    CollectiveKind("gather", r"gather", rounds=1, grows=1),
    CollectiveKind("reduce", r"reduce", reduces=True),
    CollectiveKind("send", r"\bi?send|:send", direct=True, modelled_as="send", fitted_as="all_to_all"),
    CollectiveKind("recv", r"\bi?recv|:recv", direct=True, modelled_as="send"),
)  # fmt: skip
"""The first kind whose pattern a name contains is the name's. `send_recv` is a point-to-point kernel whose direction the
trace does not say."""

UNKNOWN: Final = "unknown"
"""The word for a collective of no kind that is known."""

COLLECTIVES: Final = (*(kind.word for kind in COLLECTIVE_KINDS), UNKNOWN)
"""Words for kinds of collective; kernels hold the place in this list."""

ALL_REDUCE: Final = COLLECTIVES.index("all_reduce")
ALL_GATHER: Final = COLLECTIVES.index("all_gather")
REDUCE_SCATTER: Final = COLLECTIVES.index("reduce_scatter")
ALL_TO_ALL: Final = COLLECTIVES.index("all_to_all")
BROADCAST: Final = COLLECTIVES.index("broadcast")
SEND: Final = COLLECTIVES.index("send")
"""Kinds with a cost function, by COLLECTIVES."""

FITTED_COLLECTIVES: Final = tuple(kind.word for kind in COLLECTIVE_KINDS if kind.fitted_as == kind.word)
"""Kinds with fitted parameters of their own, in the order of their rows in a record of the hardware."""

FITTED_ROW: Final = tuple(
    FITTED_COLLECTIVES.index(kind.fitted_as) if kind.fitted_as else -1 for kind in COLLECTIVE_KINDS
)
"""Row of the fitted parameters that a kind takes, by COLLECTIVES; -1 where it has no cost function."""

MODELLED_AS: Final = {kind.word: COLLECTIVES.index(kind.modelled_as) for kind in COLLECTIVE_KINDS if kind.modelled_as}
"""Place in COLLECTIVES of the kind whose cost function holds, by word."""

TOGETHER: Final = tuple(kind.word for kind in COLLECTIVE_KINDS if kind.together)
"""Kinds whose members end at the same moment."""

POINT_TO_POINT: Final = tuple(kind.word for kind in COLLECTIVE_KINDS if kind.direct)
"""Kinds that go from one rank to another."""

EVEN: Final = tuple(kind.word for kind in COLLECTIVE_KINDS if kind.even)
"""Kinds to which every rank gives as much as the others."""

REDUCTIONS: Final = tuple(kind.word for kind in COLLECTIVE_KINDS if kind.reduces)
"""Kinds that add up what the ranks give."""

ROUNDS: Final = {kind.word: kind.rounds for kind in COLLECTIVE_KINDS}
"""busbw over algbw in units of (n-1)/n, by word; 0: they are the same."""

GROWS: Final = {kind.word: kind.grows for kind in COLLECTIVE_KINDS}
"""Whether a rank has n times (1), an nth of (-1) or as much (0) afterwards as it gave, by word."""
