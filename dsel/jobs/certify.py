"""A certificate for a Selection: from its data and settings, after the search or long after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dsel.config.request import Settings, check
from dsel.data.dataset import Dataset
from dsel.errors import DselError, Interrupted, OptionError
from dsel.objective.base import Objective
from dsel.objective.conditioning import bound_error, smallest_pivot_share
from dsel.passes.accounting import log_passes
from dsel.passes.statistics import Statistics
from dsel.planning.prepared import of_gram
from dsel.search.anytime import AnytimeSearch
from dsel.search.exact.certificate import Certificate, Proof, Runner, certify_sizes, spread
from dsel.selection.context import RunContext
from dsel.selection.pipeline import by_gain, candidates_of, in_data_units, statistics_of
from dsel.selection.result import FrontRow, Selection
from dsel.storage.json_files import read_json, write_json
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")

Sizes = Literal["chosen", "all"]

#: The open nodes of an unfinished proof are saved up to about so many numbers.
_MOST_SAVED = 20_000_000
_PROOF = "proof.json"


@dataclass(frozen=True)
class Effort:
    """How long to prove, and for what: the size that was chosen, or every size of the front up to k.

    save_seconds: so often the state of the proof is saved. finish: interrupted, take what is proved so far.
    """

    seconds: float | None = None
    nodes: int | None = None
    sizes: Sizes = "chosen"
    save_seconds: float = 30.0
    finish: bool = False


def certify_selection(
    dataset: Dataset, settings: Settings, selection: Selection, effort: Effort, context: RunContext | None = None,
    folder: AnyPath | None = None, on_slice: Callable[[AnytimeSearch], None] | None = None,
    runner: Runner | None = None,
) -> Selection:  # fmt: skip
    """The selection with certificates; a better subset that the proof found takes its place.

    Statistics that are saved are used, otherwise one pass is made; only a better subset reads the data again. folder:
    where an unfinished proof is kept and gone on with. runner: who does the proof's work. Errors: OptionError for a
    method whose criterion is not the quadratic objective.
    """
    if selection.criterion is not None:
        raise OptionError(
            f"{selection.method} minimises a criterion of its own, which has no certificate.",
            "Certificates are for methods that minimise ||Y - X_S A||^2 + lam ||A||^2.",
        )
    context = context or RunContext()
    checked = check(dataset, settings)
    with log_passes() as made:
        statistics = statistics_of(dataset, settings, context)
    whole = statistics.objective(settings.preprocess, settings.lam)
    objective, _ = candidates_of(dataset, checked, statistics, whole)
    found = _prove(objective, settings, selection, effort, folder, on_slice, runner)
    for old in (Certificate.from_dict(values) for values in selection.certificate):
        # The proof's own earlier work is in its node count already: only bound and value are merged.
        if old.size in found:
            new = found[old.size]
            merged = old.merged(new)
            found[old.size] = replace(merged, nodes=max(old.nodes, new.nodes), seconds=max(old.seconds, new.seconds))
        else:
            found[old.size] = old
    certificates = spread(found)
    selection = replace(
        selection, certificate=tuple(c.as_dict() for c in certificates.values()), passes=selection.passes + made.passes,
        notes=(*selection.notes, *(note for note in _reserves(objective, settings.k) if note not in selection.notes)),
    )  # fmt: skip
    for certificate in certificates.values():
        log.info("%s", describe(certificate))
    return _with_better(dataset, settings, selection, statistics, objective, certificates, context)


def _reserves(objective: Objective, k: int) -> Iterator[str]:
    """What a reader of the proof has to know of the columns."""
    share = smallest_pivot_share(objective.K, objective.lam) if objective.has_gram else None
    if share is not None:
        yield (
            f"columns are nearly dependent (beside others {share:.0e} of a column's square is left): what is proved "
            f"may leave out a subset that gains by large coefficients of opposite signs, by "
            f"{bound_error(share, k):.0e} of ||Y||^2 at most"
        )


def describe(certificate: Certificate) -> str:
    """One line for a log."""
    if certificate.proven:
        return f"{certificate.size} columns: proved optimal ({certificate.nodes:,} nodes)"
    share = certificate.relative_to_total
    return f"{certificate.size} columns: at most {share:.2%} of ||Y||^2 from the best ({certificate.nodes:,} nodes)"


def _prove(
    objective: Objective, settings: Settings, selection: Selection, effort: Effort, folder: AnyPath | None,
    on_slice: Callable[[AnytimeSearch], None] | None, runner: Runner | None,
) -> dict[int, Certificate]:  # fmt: skip
    base = len(objective.included)
    local = {int(j): place for place, j in enumerate(objective.columns)}
    k = min(settings.k - base, objective.n)
    chosen = [local[j] for j in selection.indices if j in local]
    if k == 0:
        return {c.size: c for c in certify_sizes(objective, {0: ()}).values()}
    incumbents = {
        row.size - base: [local[j] for j in row.indices if j in local]
        for row in selection.front
        if effort.sizes == "all" and base < row.size < base + k
    }
    incumbents[k] = chosen
    interrupted = False

    def prove(size: int, incumbent: Sequence[int], seconds: float | None, nodes: int | None) -> Certificate | None:
        nonlocal interrupted
        if interrupted:
            return None
        keeper = _Keeper(objective, size, folder, selection.fingerprint, size == k, effort.save_seconds)
        proof = keeper.begin(incumbent, settings.seed)
        if len(incumbents) > 1:
            log.info("certificate for %d columns", base + size)
        try:
            proof.run(seconds, nodes, keeper.watching(proof, on_slice), runner)
        except Interrupted:
            if not effort.finish:
                raise
            interrupted = True
        finally:
            keeper.save(proof)
        return proof.certificate()

    found = certify_sizes(objective, incumbents, seconds=effort.seconds, nodes=effort.nodes, prove=prove)
    return {c.size: c for c in found.values()}


@dataclass
class _Keeper:
    """Where the proof for one size is kept: it is saved every so many seconds and at its end, and gone on with."""

    objective: Objective
    size: int
    folder: AnyPath | None
    fingerprint: str | None
    chosen: bool  # whether this is the size that was asked for
    save_seconds: float

    @property
    def _path(self) -> AnyPath | None:
        name = _PROOF if self.chosen else f"proof-{self.size}.json"
        return None if self.folder is None else self.folder / name

    def _identity(self) -> dict[str, Any]:
        objective = self.objective
        return {
            "fingerprint": self.fingerprint, "k": self.size, "n": objective.n, "c": objective.c, "lam": objective.lam,
            "columns": objective.columns.tolist(), "included": list(objective.included),
        }  # fmt: skip

    def begin(self, incumbent: Sequence[int], seed: int) -> Proof:
        """The proof as it was saved, or a new one."""
        saved = read_json(self._path) if self._path is not None else None
        if isinstance(saved, dict) and saved.get("identity") == self._identity():
            try:
                proof = Proof.resume(self.objective, saved["proof"], incumbent)
            except (KeyError, TypeError, ValueError, DselError) as error:
                log.warning("the proof in %s is damaged and starts anew: %r", self._path, error)
            else:
                log.info("going on with the proof in %s", self._path)
                return proof
        return Proof.begin(self.objective, self.size, incumbent, seed=seed)

    def watching(self, proof: Proof, on_slice: Callable[[AnytimeSearch], None] | None) -> Callable[[Any], None]:
        """Called after each slice: saves when it is time to, then calls `on_slice`."""
        last = time.monotonic()

        def look(search: AnytimeSearch) -> None:
            nonlocal last
            if time.monotonic() - last >= self.save_seconds:
                self.save(proof)
                last = time.monotonic()
            if on_slice is not None:
                on_slice(search)

        return look

    def save(self, proof: Proof) -> None:
        """Write the proof, unless there is no folder for it or it is too large."""
        if self._path is None:
            return
        if proof.search.open_nodes * self.objective.n > _MOST_SAVED:
            log.info("the proof has too many open nodes to be saved: another one starts anew")
            return
        write_json(self._path, {"identity": self._identity(), "proof": proof.state()})


def _with_better(
    dataset: Dataset, settings: Settings, selection: Selection, statistics: Statistics, objective: Objective,
    certificates: dict[int, Certificate], context: RunContext,
) -> Selection:  # fmt: skip
    """Subsets that are better than the selection's take their place in the front, and as the answer."""
    total = objective.total
    front = {row.size: row for row in selection.front}
    for certificate in certificates.values():
        before = front.get(certificate.size)
        if certificate.better and (before is None or certificate.value < before.error):
            size = len(certificate.indices)
            front[size] = FrontRow(size, certificate.value, 1.0 - certificate.value / total, certificate.indices)
    rows = tuple(front[size] for size in sorted(front))
    best = min((row for row in rows if row.size <= selection.k), key=lambda row: (row.error, row.size))
    if set(best.indices) == set(selection.indices) or not any(c.better for c in certificates.values()):
        return replace(selection, front=rows)
    if not best.error < selection.error - 1e-9 * total:
        return replace(selection, front=rows)
    included = list(objective.included)
    ready = of_gram(dataset, settings, statistics, context.engine)
    S, _ = by_gain(ready.objective(settings.lam), included, [j for j in best.indices if j not in included])
    fit = ready.fit(S, settings.lam)
    coefficients, intercept = in_data_units(statistics, settings.preprocess, S, fit)
    note = f"the certificate's search found these columns: they explain {1.0 - fit.rss / fit.total:.4%}, those of "
    return replace(
        selection,
        indices=tuple(int(j) for j in S),
        labels=tuple(str(dataset.features[j]) for j in S),
        error=fit.error,
        r2=1.0 - fit.rss / fit.total,
        coefficients=coefficients,
        intercept=intercept,
        front=rows,
        notes=(*selection.notes, f"{note}{selection.method} {selection.r2:.4%}"),
        passes=selection.passes + 1,
    )
