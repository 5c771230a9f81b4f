"""The compiled count of the pairs of times whose order a risk tells."""

from __future__ import annotations

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Ints


@compiled()
def concordant(
    time: Floats, event: Floats, rank: Ints, w: Floats, tree: Floats, own: Floats
) -> tuple[float, float]:  # fmt: skip
    """Return the weight of the concordant pairs, equal ranks counting half, and that of all comparable ones.

    Rows are given from the latest to the earliest time. An event is compared with the later times, and with those that
    were cut off at its time. tree (n + 1,): a binary indexed tree of the weights of the rows by rank, all 0. own (n,):
    these weights, all 0.
    """
    n = own.size
    total, agree, pairs = 0.0, 0.0, 0.0
    start = 0
    while start < time.size:
        stop = start
        while stop < time.size and time[stop] == time[start]:
            stop += 1
        for phase in range(2):  # those cut off enter before the events of this time are compared
            if phase == 1:
                for i in range(start, stop):
                    if event[i] > 0.0:
                        below, at = 0.0, rank[i]
                        while at > 0:
                            below += tree[at]
                            at -= at & -at
                        agree += w[i] * (below + 0.5 * own[rank[i]])
                        pairs += w[i] * total
            for i in range(start, stop):
                if (event[i] > 0.0) == (phase == 1):
                    at = rank[i] + 1
                    while at <= n:
                        tree[at] += w[i]
                        at += at & -at
                    own[rank[i]] += w[i]
                    total += w[i]
        start = stop
    return agree, pairs
