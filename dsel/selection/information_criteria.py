"""Information criteria of subsets, and the size that each one prefers.

With RSS(S) for N targets, m rows, df(S) degrees of freedom of the columns, s of p candidate columns, and the errors of
the targets independent with one variance:

    AIC   = m N log(RSS / (m N)) + 2 N df
    AICc  = AIC + 2 K (K + 1) / (m N - K - 1), with K = N (df + c) + 1
    BIC   = m N log(RSS / (m N)) + N df log m
    EBIC  = BIC + 2 gamma log C(p, s); always included columns count in df, and neither in p nor in s
    Cp    = RSS / sigma^2 - m N + 2 N (df + c), with sigma^2 = RSS / (N (m - df - c)) of all candidate columns
    adjusted R2 = 1 - (RSS / (m - df - c)) / (||Y||^2 / (m - c))

Without a penalty df is the rank of X_S. c is 1 with an intercept, and 0 without. So Cp of all candidate columns is the
number of their parameters. Less is better, but for the adjusted R2. Sources: Akaike, IEEE Trans. Automatic
Control 19, 1974; Hurvich and Tsai, Biometrika 76, 1989; Schwarz, Annals of Statistics 6, 1978; Chen and Chen,
Biometrika 95, 2008; Mallows, Technometrics 15, 1973; Theil, "Economic forecasts and policy", 1961.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import scipy

from dsel.config.size_rule import INFORMATION, InformationCriterion
from dsel.errors import OptionError
from dsel.objective.losses.loss import Loss
from dsel.selection.record import SelectionRecord
from dsel.selection.represented import left_out

#: A residual of at most this share of ||Y||^2 is rounding error.
_NO_RESIDUAL = 1e-12
#: A bound reaches the value of a criterion if it is worse by at most this share of it.
_ROUNDING = 1e-9
#: The criteria that a deviance has.
DEVIANCE_CRITERIA: tuple[InformationCriterion, ...] = ("aic", "bic", "ebic")
#: The criteria in words.
NAMES: dict[str, str] = {
    "aic": "AIC", "aicc": "AICc", "bic": "BIC", "ebic": "EBIC", "cp": "Cp", "adjusted-r2": "adjusted R2",
}  # fmt: skip


@dataclass(frozen=True)
class CriterionContext:
    """What all subsets share: m rows, N targets, p candidate columns or groups, ||Y||^2, and the intercept.

    of_all: RSS and df of all candidate columns, with those that are always chosen, for Cp.
    """

    m: float
    N: int
    p: int
    total: float
    gamma: float = 1.0
    intercept: bool = True
    of_all: tuple[float, float] | None = None

    @property
    def _variance(self) -> float:
        """sigma^2 of all candidate columns."""
        rss, df = self.of_all or (0.0, math.inf)
        free = self.N * (self.m - df - self.intercept)
        if free < 0.5:  # a rank leaves whole numbers of rows, but for rounding
            needed = f"independent candidate columns{' and an intercept' * self.intercept}"
            raise OptionError(
                f"Cp needs more rows than {needed}: there are {self.m:,.6g} rows, and {df:,.6g} independent columns.",
                "Choose by aicc, bic or folds.",
            )
        return max(rss, _NO_RESIDUAL * self.total) / free

    def value(self, by: InformationCriterion, rss: float, df: float, s: int) -> float:
        """Return a criterion of a subset of s columns, less is better; infinity where the rows do not suffice."""
        m, N, count, c = self.m, self.N, self.m * self.N, float(self.intercept)
        rss = max(rss, _NO_RESIDUAL * self.total)
        share = rss / count  # 1 without columns of standardized targets, up to rounding
        fit = 0.0 if math.isclose(share, 1.0, rel_tol=1e-13) else count * math.log(share)
        if by == "adjusted-r2":
            return (rss / (m - df - c)) / (self.total / (m - c)) - 1.0 if m > df + c else math.inf
        if by == "cp":
            return rss / self._variance - count + 2.0 * N * (df + c)
        return fit + self._penalty(by, df, s)

    def value_by_loss(
        self, by: InformationCriterion, loss: Loss, deviance: float, df: int, s: int, intercept: bool
    ) -> float:
        """Return a criterion from a deviance: -2 log likelihood, and a price for each parameter.

        df, s: as for `value`; without a penalty df is the number of independent columns. intercept: whether the model
        has one, which counts, as the spread of the targets does.
        """
        others = intercept * self.N + loss.scale_parameters
        fit = loss.likelihood(max(deviance, _NO_RESIDUAL * self.total), self.m)
        return fit + self._penalty(by, float(df), s) + others * (2.0 if by == "aic" else math.log(self.m))

    def _penalty(self, by: InformationCriterion, df: float, s: int) -> float:
        """Return what a criterion adds to the logarithm of the RSS."""
        m, N, count = self.m, self.N, self.m * self.N
        if by in ("aic", "aicc"):
            K = N * (df + self.intercept) + 1.0
            small = 0.0 if by == "aic" else 2.0 * K * (K + 1.0) / (count - K - 1.0) if count > K + 1.0 else math.inf
            return 2.0 * N * df + small
        if by == "bic":
            return N * df * math.log(m)
        choices = (
            scipy.special.gammaln(self.p + 1) - scipy.special.gammaln(s + 1) - scipy.special.gammaln(self.p - s + 1)
        )
        return N * df * math.log(m) + 2.0 * self.gamma * float(choices)

    def rss(self, by: InformationCriterion, value: float, df: float, s: int) -> float:
        """Return the RSS at which a subset of s columns has this value of a criterion; -infinity where none has."""
        m, N, count, c = self.m, self.N, self.m * self.N, float(self.intercept)
        if by == "adjusted-r2":
            return (value + 1.0) * (self.total / (m - c)) * (m - df - c) if m > df + c else -math.inf
        if by == "cp":
            return (value + count - 2.0 * N * (df + c)) * self._variance
        penalty = self._penalty(by, df, s)
        return count * math.exp((value - penalty) / count) if penalty < math.inf else -math.inf


@dataclass(frozen=True)
class CriterionRow:
    """The size that a criterion prefers.

    Parameters
    ----------
    criterion : str
        aic, aicc, bic, ebic or adjusted-r2.
    size : int
        The number of columns, always included ones counted.
    value : float
        The criterion of the best known subset of this size. AIC, AICc, BIC and EBIC have -2 log likelihood with all
        constants, and count the intercept and the spread of the targets, as R does.
    indices : tuple of int
        The columns, 0-based.
    proved : bool
        Whether no other subset of at most k columns is better by this criterion, which is proved: the bound at each
        other size is no better than `value`, up to rounding (1e-9 of it), and the certificate of this size is optimal.
        False where near-copies, which a certificate leaves out, may be better. With a limit for coefficients, it is
        about fits within it.
    """

    criterion: InformationCriterion
    size: int
    value: float
    indices: tuple[int, ...]
    proved: bool


def unit_of_weights(rule: str, rows: int, weight: float) -> Iterator[str]:
    """Yield a note where an information criterion counts weights, which sum to another number than that of the rows."""
    if rule in INFORMATION and not math.isclose(weight, rows, rel_tol=1e-9):
        yield (
            f"{NAMES[rule]} counts a row of weight 2 as two rows, and the weights of {rows:,} rows sum to "
            f"{weight:,.6g}: scale weights that are no numbers of rows so that they sum to {rows:,}"
        )


def preferred_sizes(selection: SelectionRecord, gamma: float = 1.0) -> list[CriterionRow]:
    """Return the size that each criterion prefers among the best subsets of a selection.

    Errors: OptionError with a ridge penalty, groups, a custom criterion or without targets, and where the sum of the
    weights is not known.
    """
    if selection.lam or selection.groups or not selection.targets or selection.criterion is not None:
        raise OptionError(
            "Information criteria are for targets, without penalty, groups or a criterion.", _instead(selection)
        )
    weighted = selection.weights is not None or selection.request.class_weight is not None
    if weighted and selection.weight_sum is None:
        raise OptionError(
            "This result is of a version that did not keep the sum of the weights, which information criteria count.",
            "Select again.",
        )
    m, n = selection.weight_sum or selection.shape[0], selection.shape[1]
    N = selection.loss.outputs if selection.by_loss else len(selection.targets)
    excluded = {*left_out(selection.counts.get("copies", ())), *(j for j in selection.exclude if isinstance(j, int))}
    included = len(selection.include)
    p = n - len(selection.constant) - len(excluded) - included
    total = next(
        (row.error for row in selection.front if row.size == 0), selection.error / max(1.0 - selection.r2, 1e-300)
    )
    intercept = selection.preprocess in ("standardize", "center") and selection.loss.has_intercept
    rows = selection.loss.count(m) if selection.by_loss else m
    context = CriterionContext(rows, N, p, total, gamma, intercept)
    of_all = [row for row in selection.certificate if not row.get("represented")]
    bounds = {row["size"]: row["bound"] - row["dependent_gap"] * row["total"] for row in of_all}
    optimal = {row["size"] for row in of_all if row["proven"]}
    sizes = set(range(included + 1, selection.k + 1))  # the included columns alone are no choice
    known = [row for row in selection.front if row.size <= selection.k]
    found = []
    for by in INFORMATION:
        if by == "cp" or (selection.by_loss and by not in DEVIANCE_CRITERIA):  # Cp needs the error of all columns
            continue

        def value(error: float, size: int, df: int, by: InformationCriterion = by) -> float:
            if selection.by_loss:
                return context.value_by_loss(by, selection.loss, error, df, size - included, intercept)
            return context.value(by, error, df, size - included)

        values = {row.size: value(row.error, row.size, row.size if row.rank is None else row.rank) for row in known}
        best = min(known, key=lambda row: (values[row.size], row.size))
        least = values[best.size]
        reached = {size for size in bounds if value(bounds[size], size, size) >= least - _ROUNDING * abs(least) - 1e-12}
        proved = sizes <= reached | (optimal & {best.size})
        reported = _as_reported(by, least, m, N, intercept, selection)
        found.append(CriterionRow(by, best.size, reported, best.indices, proved))
    return found


def _instead(selection: SelectionRecord) -> str:
    """Return what compares the sizes of a selection that information criteria do not take."""
    if selection.criterion is not None:
        return "Its values for each size are in front. For fewer columns, let the criterion add a price for each."
    if not selection.targets:
        return "Without targets, give k as a number."
    if selection.size_curve is not None and selection.size_curve.rule in INFORMATION:
        return f"{NAMES[selection.size_curve.rule]} of each size is in size_curve."
    return 'Choose the size by k="auto" and choose_k="bic".'


def _as_reported(
    by: InformationCriterion, value: float, m: float, N: int, intercept: bool, selection: SelectionRecord
) -> float:
    """Return a criterion with the constants that R and statsmodels count, and the adjusted R2 itself."""
    if by == "adjusted-r2":
        return -value
    if selection.by_loss:
        return value
    others = N * intercept + 1
    if selection.preprocess == "standardize" and N == 1 and selection.statistics is not None:
        value += 2.0 * m * math.log(float(selection.statistics.target_std[0]))  # in the units of the target
    weight = math.log(m) if by in ("bic", "ebic") else 2.0
    return value + m * N * (math.log(2.0 * math.pi) + 1.0) + weight * others
