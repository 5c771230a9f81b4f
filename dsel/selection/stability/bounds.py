"""Bounds on the expected number of columns that are chosen by mistake, and the threshold that keeps it small.

Let q columns of p be chosen on each half of the rows on average, and let a column be *stable* if it is chosen on at
least a share tau of the halves. The expected number of stable columns that are chosen with a probability below q / p,
as noise is, is at most

    q^2 / ((2 tau - 1) p)            (Meinshausen and Buehlmann, "Stability selection", JRSS B 72, 2010)
    C(tau, B) q^2 / p                for B complementary pairs, if the share of pairs with a column in both halves has a
                                     unimodal distribution (Shah and Samworth, "Variable selection with error control",
                                     JRSS B 75, 2013, Theorem 2)

The first needs no assumption for complementary pairs (their Theorem 1) but independent rows.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from dsel.errors import OptionError

Assumption = Literal["none", "unimodal"]


def error_bound(threshold: float, q: float, p: int, pairs: int | None = None, assumption: Assumption = "none") -> float:
    """Return the bound on the expected number of columns that are stable by mistake; p where it says nothing.

    Errors: OptionError unless 1/2 < threshold <= 1, and for an assumption without pairs.
    """
    if not 0.5 < threshold <= 1.0:
        raise OptionError(
            f"threshold is {threshold:g}.", "It must be above 0.5 and at most 1: a share of the subsamples."
        )
    if assumption not in get_args(Assumption):
        raise OptionError(f"assumption is {assumption!r}.", "One of none, unimodal.")
    if assumption == "unimodal" and pairs is None:
        raise OptionError("The bound for unimodal distributions is for complementary pairs.", "Use samples of pairs.")
    factor = 1.0 / (2.0 * threshold - 1.0)
    if assumption == "unimodal" and pairs is not None:
        factor = min(factor, unimodal_factor(threshold, q / p, pairs))
    return min(factor * q * q / p, float(p))


def unimodal_factor(threshold: float, theta: float, pairs: int) -> float:
    """Return C(tau, B), with tau rounded down to a multiple of 1 / (2B); inf where the theorem does not apply."""
    tau = math.floor(2 * pairs * threshold + 1e-9) / (2 * pairs)
    least = min(0.5 + theta**2, 0.5 + 1.0 / (2 * pairs) + 0.75 * theta**2)
    if theta > 1.0 / math.sqrt(3.0) or tau < 0.5 + 1.0 / pairs or tau <= least:
        return math.inf
    if tau <= 0.75:
        return 1.0 / (2.0 * (2.0 * tau - 1.0 - 1.0 / (2 * pairs)))
    return 4.0 * (1.0 - tau + 1.0 / (2 * pairs)) / (1.0 + 1.0 / pairs)


def threshold_for(errors: float, q: float, p: int, pairs: int | None = None, assumption: Assumption = "none") -> float:
    """Return the least threshold whose bound is at most `errors`, to three digits.

    Errors: OptionError where no threshold is enough.
    """
    if not errors > 0.0:
        raise OptionError(f"max_errors is {errors:g}.", "It must be above 0: an expected number of columns.")
    for step in range(501, 1001):
        if error_bound(step / 1000.0, q, p, pairs, assumption) <= errors:
            return step / 1000.0
    least = error_bound(1.0, q, p, pairs, assumption)
    raise OptionError(
        f"No threshold keeps the expected number of mistakes at {errors:g}: with {q:g} of {p} columns chosen it is at "
        f"best {least:.3g}.",
        "Allow more mistakes, or choose fewer columns (a smaller k).",
    )
