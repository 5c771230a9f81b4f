"""Compare every number of selections with random options with a separate computation over all subsets."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

import dsel
from dsel.config.size_rule import InformationCriterion
from dsel.data.row_partition import folds_of
from dsel.errors import DselError
from pipelines.proof_check.drawn_options import Drawn, cost, cost_of_data, draw
from pipelines.proof_check.own_answers import Own

#: Methods whose answer is the best subset, without options that end them before.
_EXACT = ("branch-and-bound", "astar", "exhaustive")
_LIMITS = {"nodes", "gamma", "reduce"}
#: Criteria of lists.
_BY: tuple[InformationCriterion, ...] = ("aic", "aicc", "bic", "ebic", "cp", "adjusted-r2")
#: The share of ||Y||^2 by which numbers may differ, because of rounding and of near-copies.
_EQUAL = 1e-7


@dataclass
class OptionFindings:
    """How many calls were checked, how many were refused, how many had an answer, and what was wrong.

    A call that is refused is changed as the error says, and may then have an answer.
    """

    calls: int = 0
    answers: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def check_options_of(batch: tuple[int, list[int]]) -> list[tuple[int, OptionFindings]]:
    """Check the calls with these numbers: (seed, numbers)."""
    return [(index, check_options(batch[0], index)) for index in batch[1]]


def check_options(seed: int, index: int) -> OptionFindings:
    """Check the call with this number."""
    call, found = draw(seed, index), OptionFindings(1)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found.wrong += [f"{text}: {call}" for text in _Check(call, Path(folder), found).faults()]
        except Exception as error:
            found.failures.append(f"{type(error).__name__}: {error}: {call}")
    return found


class _Check:
    """The comparison of one call."""

    def __init__(self, call: Drawn, folder: Path, found: OptionFindings) -> None:
        self.call, self.folder, self.found = call, folder, found
        self.X, self.Y = call.data(folder)
        self.weights = {name: call.asked[name] for name in ("sample_weight",) if name in call.asked}

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with the answer, its certificates and its list, or with the refusal."""
        asked = dict(self.call.asked)
        for _ in range(6):
            try:
                answer = dsel.select(self.X, self.Y, progress=False, unsupervised=self.call.unsupervised, **asked)
                break
            except DselError as error:
                self.found.refused = 1
                other = _remedied(asked, error)
                if other is None:
                    return
                asked = other
        else:
            yield "the remedies lead in a circle"
            return
        self.call.asked, self.found.answers = asked, 1
        for name in {"groups", "include", "exclude"} - set(asked):  # a remedy left them out
            setattr(self.call, name, [])
        together = answer.request.groups is not None and asked.get("categories", "groups") == "groups"
        clusters = [tuple(cluster) for cluster in answer.counts.get("copies", ())]
        self.own = Own(self.call, float(answer.lam), together, clusters)
        yield from self._answer(answer)
        yield from self._sizes(answer)
        if answer.criterion is None:
            yield from self._proofs(answer)
            yield from self._list(answer)
            yield from self._by_criterion(answer)

    @property
    def exact(self) -> bool:
        """Whether the answer is the best subset, or within 1 + epsilon."""
        return self.call.asked["method"] in _EXACT and not _LIMITS & set(self.call.asked)

    def differs(self, value: Any, own: Any, scale: float = 1.0) -> bool:
        return not np.allclose(np.asarray(value), np.asarray(own), rtol=_EQUAL, atol=_EQUAL * scale)

    def _answer(self, answer: Any) -> Iterator[str]:
        own, total = self.own, self.own.total
        S = tuple(sorted(answer.indices))
        numbered = self.call.kind in ("array", "sparse", "dask") or self.call.kind.startswith("store")
        labels = [f"x{j}" if numbered else own.labels[j] for j in answer.indices]
        if [str(label) for label in answer.labels] != labels:
            yield f"labels {answer.labels} of {answer.indices}, not {labels}"
        if S not in own.f or own.count(S) > answer.k:
            yield f"{S} is not allowed: {own.units}, {own.fixed}, not {own.banned}"
            return
        if self.differs(answer.error, own.f[S], total):
            yield f"error {answer.error} of {S}, not {own.f[S]}"
        C, predicted = own.fit(S)
        if self.differs(answer.r2, 1.0 - (own.f[S] - own.problem.lam * np.square(C).sum()) / total):
            yield f"r2 {answer.r2} of {S}"
        for row in answer.front:
            R, limit = tuple(sorted(row.indices)), own.best(row.size)
            if R not in own.f or own.count(R) != row.size:
                yield f"the front has {R} for size {row.size}"
            elif (R in own.allowed and self.differs(row.error, own.f[R], total)) or row.error < limit - _EQUAL * total:
                yield f"the front has error {row.error} for {R}, not {own.f[R]}, and {limit} is possible"
        if answer.criterion is not None:
            value = self._criterion(S)
            if self.differs(answer.criterion, value):
                yield f"the criterion is {answer.criterion} of {S}, not {value}"
            return
        least = own.best(answer.k)
        if answer.error < least - _EQUAL * total:
            yield f"error {answer.error} is below the least one, {least}"
        factor = 1.0 + self.call.asked.get("epsilon", 0.0)
        if self.exact and answer.error > factor * least + _EQUAL * total:
            yield f"error {answer.error} of {S}, and {least} is possible"
        yield from self._new_rows(answer, predicted)

    def _criterion(self, S: tuple[int, ...]) -> float:
        """Return the criterion of a subset, of the rows that the request chooses."""
        call, asked = self.call, self.call.asked
        if asked["criterion"] is not cost_of_data:
            return cost(S)
        X = np.column_stack([call.table[name] for name in call.columns])
        Y = np.ones((len(X), 0)) if call.unsupervised else call.Y[:, asked.get("targets", slice(None))]
        weights = np.ones(len(X)) if call.weights is None else call.weights
        data = SimpleNamespace(
            columns=lambda S: X[:, list(S)], Y=Y, m=len(X), n_targets=Y.shape[1], weights=weights
        )  # fmt: skip
        return cost_of_data(S, data)  # type: ignore[no-any-return]

    def _new_rows(self, answer: Any, predicted: Any) -> Iterator[str]:
        """Compare predictions and the score of a few rows."""
        own, rows = self.own, np.arange(min(9, len(self.call.Y)))
        new, Y = self.call.data(self.folder / "new", rows)
        values, wanted = answer.predict(new), predicted(own.X[rows])
        values = np.asarray(values.compute() if hasattr(values, "compute") else values).reshape(wanted.shape)
        if own.depends(tuple(sorted(answer.indices))):
            return  # many coefficients fit the rows
        if self.differs(values, wanted, 10.0 * float(abs(own.Y).max())):
            yield f"it predicts {values[0]}, not {wanted[0]}"
        if own.Y.shape[1] == 1 and not self.call.unsupervised:
            y, found = own.Y[rows], answer.score(new, Y)
            share = 1.0 - np.square(y - wanted).sum() / np.square(y - y.mean()).sum()
            if self.differs([found["deviance"], found["r2"]], [np.square(y - wanted).sum(), share], 100.0):
                yield f"its score is {found}, not {share}"

    def _sizes(self, answer: Any) -> Iterator[str]:
        """Compare the curve of an automatic k: at each size by an exact method, else at the chosen one."""
        curve = answer.size_curve
        if curve is None or answer.path:
            return
        own, exact = self.own, self.exact and "epsilon" not in self.call.asked
        rule = self.call.asked["choose_k"]
        if curve.k != min(curve.points, key=lambda point: (round(point.value, 9), point.size)).size:
            yield f"k is {curve.k} by {curve.points}"
        if isinstance(rule, dict) and rule.keys() & {"split", "folds"}:
            if exact:
                part = folds_of(0, len(own.Y), rule.get("folds", 2), answer.seed, 0)
                random = [(np.flatnonzero(part != i), np.flatnonzero(part == i)) for i in range(part.max() + 1)]
                yield from self._folds(curve, rule.get("split", random))
            return
        for point in curve.points:
            if exact or point.size == curve.k:
                S = own.best_subset(point.size) if exact else tuple(sorted(answer.indices))
                full = tuple(sorted(j for u in own.units for j in u)) if curve.rule == "cp" else S
                if own.fitted(full) < 1e-12 * own.total:
                    return  # of a perfect fit, rounding decides
                value = own.criterion(curve.rule, S, rule.get("gamma", 1.0) if isinstance(rule, dict) else 1.0)
                if self.differs(point.value, value):
                    yield f"{curve.rule} of {S} is {point.value}, not {value}"

    def _folds(self, curve: Any, pairs: Any) -> Iterator[str]:
        """Compare the errors on left-out rows."""
        call, own, found, weight = self.call, self.own, [], []
        for train, test in pairs:
            table = {name: values[train] for name, values in call.table.items()}
            part = Own(
                replace(call, table=table, Y=call.Y[train], weights=own.w[train]),
                own.problem.lam,
                not own.exact_size,
                own.clusters,
                own,
            )
            errors = []
            for point in curve.points:
                S = part.best_subset(point.size)
                if sum(f < part.allowed[S] + _EQUAL * part.total for f in part.allowed.values()) > 1:
                    return  # several subsets are the best
                left = own.Y[test] - part.fit(S)[1](own.X[test])
                errors.append(float(own.w[test] @ np.square(left / own.scales[1][1]).sum(axis=1)))
            found.append(errors)
            weight.append(own.w[test].sum())
        sums, weights = np.array(found), np.array(weight)
        each = (sums / weights[:, None]).std(axis=0, ddof=1) / np.sqrt(len(sums))
        for point, value, error in zip(curve.points, sums.sum(axis=0) / weights.sum(), each, strict=True):
            if self.differs(point.value, value) or self.differs(point.standard_error, error):
                yield f"left-out rows of size {point.size}: {point}, not {value} and {error}"

    def _proofs(self, answer: Any) -> Iterator[str]:
        own, total = self.own, self.own.total
        proved = dsel.certify(
            answer, self.X, self.Y, sizes="all", seconds=None, nodes=20_000, progress=False, **self.weights
        )
        if proved.error > answer.error + _EQUAL * total or self.differs(
            proved.error, own.f[tuple(sorted(proved.indices))], total
        ):
            yield f"certify changed the error to {proved.error} of {proved.indices}"
        for row in (*answer.certificate, *proved.certificate):
            least, S = own.best(row["size"]), tuple(sorted(row["indices"]))
            if row["bound"] > least + _EQUAL * total:
                yield f"the bound {row['bound']} of size {row['size']} is above {least} ({row['method']})"
            if S not in own.f or own.count(S) > row["size"] or self.differs(row["value"], own.f[S], total):
                yield f"the certificate of size {row['size']} has {row['value']} for {S}, not {own.f.get(S)}"
            if row["status"] == "optimal" and row["value"] > least + 2e-6 * total:
                yield f"the certificate of size {row['size']} is optimal with {row['value']}, and {least} is possible"
        for row in proved.certificate:
            if not row["status"].startswith("optimal"):
                yield f"the certificate of size {row['size']} is {row['status']}: {row['method']}"

    def _list(self, answer: Any) -> Iterator[str]:
        own, total, within = self.own, self.own.total, 0.05
        if own.count(answer.indices) == len(own.fixed):
            return
        found = dsel.alternatives(answer, self.X, self.Y, within=within, seconds=None, progress=False, **self.weights)
        plain = {S: f for S, f in own.allowed.items() if not own.represented & set(S)}
        of_size = {S: f for S, f in plain.items() if own.count(S) == found.size}
        if not of_size:
            return
        limit = total - (1.0 - within) * (total - own.best(found.size)) - _EQUAL * total
        listed = {tuple(sorted(row.indices)): row.error for row in found.subsets}
        sure = {S for S, f in of_size.items() if f < limit}
        if not sure <= set(listed) or any(own.f.get(S, np.inf) > limit + 2.0 * _EQUAL * total for S in listed):
            yield f"it lists {sorted(listed)} in place of {sorted(sure)}"
        if any(self.differs(error, own.f.get(S, np.nan), total) for S, error in listed.items()):
            yield f"the list has errors {listed}"
        near = sure if own.exact_size else {S for S, f in plain.items() if f < limit and own.count(S) <= found.size}
        for price in found.columns:
            unit = set(price.columns or (price.index,))
            have = [unit <= set(S) for S in near]
            verdict = "necessary" if all(have) else "replaceable" if any(have) else "useless"
            if sure == set(listed) and price.verdict not in (verdict, "undecided") and not unit & own.copies:
                yield f"{price.label} is {price.verdict}, not {verdict}"
            for inside, bound, error in (
                (True, price.bound_with, price.error_with), (False, price.bound_without, price.error_without)
            ):  # fmt: skip
                least = min(
                    (f for S, f in own.allowed.items() if (unit <= set(S)) == inside and own.counts(S, found.size)),
                    default=np.inf,
                )
                if bound > least + _EQUAL * total or (error is not None and error < least - _EQUAL * total):
                    yield f"the price of {price.label} ({inside}) has {bound} and {error} for {least}"

    def _by_criterion(self, answer: Any) -> Iterator[str]:
        """Compare the best subsets of any size by a criterion."""
        own, by = self.own, _BY[len(answer.indices) % len(_BY)]
        full = tuple(sorted(j for u in own.units if u not in own.banned for j in u))
        few = own.w.sum() * own.Y.shape[1] < own.Y.shape[1] * (len(full) + 1) + 3.0
        if not own.exact_size or few or own.fitted(full) < 1e-12 * own.total:
            return
        try:
            found = dsel.alternatives(
                answer, self.X, self.Y, by=by, nbest=4, seconds=None, progress=False, **self.weights
            )  # fmt: skip
        except DselError:
            return
        values = {S: own.criterion(by, S, 1.0) for S in own.allowed if not own.represented & set(S)}
        listed = {tuple(sorted(row.indices)): row.criterion for row in found.subsets}
        if any(self.differs(value, values.get(S, np.nan)) for S, value in listed.items()):
            yield f"by {by} it lists {listed}, not {[values.get(S) for S in listed]}"
        best = sorted(values.values())[: len(listed)]
        if self.differs(sorted(listed.values()), best):
            yield f"by {by} it lists {listed}, not {best}"


def _remedied(asked: dict[str, Any], error: DselError) -> dict[str, Any] | None:
    """Return the call as an error says to change it; None if it does not name an argument."""
    changed = dict(asked)
    for name, value in re.findall(r'(\w+)=("?[\w-]+"?)', error.remedy):
        if name in ("categories", "near_copies", "missing", "preprocess", "method", "polish", "k", "max_k"):
            changed[name] = value.strip('"') if '"' in value else value
    for name in re.findall(r"[Ll]eave (\w+) out", error.remedy):
        if name == "it":
            name = next((one for one in asked if re.search(rf"\b{one}\b", error.what)), name)
        if name not in changed:
            return None
        del changed[name]
    method = re.search(r"Use one of ([\w-]+)", error.remedy)
    if method:
        changed["method"] = method.group(1)
    return changed if changed != asked else None
