"""Check a proof log: the cover of all subsets, every leaf, and the best known subset.

The files of a log are checked one by one, on the workers of an engine. What is checked is saved (`files.py`), so that a
check that was interrupted continues.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dsel.data.column_groups import Items
from dsel.engine.engine_protocol import Engine
from dsel.storage.paths import AnyPath
from dsel.verification.bounds import Checker, Failure, checker_of, relaxation_bound
from dsel.verification.files import CheckedFiles, FileResult
from dsel.verification.problem import ExtendedSums, Problem
from dsel.verification.report import ProofCheck
from dsel.verification.tree import Leaf, LogError, Node, Tree, columns_of, digest_of, follow, read_file, read_manifest

#: What the check allows for rounding, as a share of ||Y||^2.
TOLERANCE = 1e-9
#: Leaves of a file that are held in memory.
_LEAVES = 4096
#: Failures that are reported of one file.
_MOST_FAILURES = 10
#: Tasks for each worker at a time.
_TASKS = 2

#: Called with the number of files that are checked, and the number of all.
Progress = Callable[[int, int], None]


def check_file(
    file: AnyPath, problem: Problem, k: int, threshold: float, columns: Sequence[int], picked: Sequence[int] | None,
    saved: CheckedFiles | None = None,
) -> FileResult:  # fmt: skip
    """Check one file of a log.

    Parameters
    ----------
    file : Path or ObjectPath
        The file.
    problem : Problem
        The problem, summed from the data.
    k : int
        The most columns to choose.
    threshold : float
        f of every subset must be at least this.
    columns : sequence of int
        The columns of the data that the problem is over, for messages.
    picked : sequence of int, optional
        Numbers of the leaves to recompute; all by default.
    saved : CheckedFiles, optional
        Results of an interrupted check. They are used for a file with the same content.

    Returns
    -------
    FileResult
        What was found. Damage is a failure.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return FileResult(failures=[f"{file.name}: the file is missing: certify with a log again"])
    except OSError as error:
        return FileResult(failures=[f"{file.name}: the file cannot be read: {error}"])
    digest = digest_of(content)
    known = None if saved is None else saved.read(file.name, digest, picked)
    return known or _check_content(file.name, content, digest, problem, k, threshold, columns, picked)


def _check_content(
    name: str, content: bytes, digest: str, problem: Problem, k: int, threshold: float, columns: Sequence[int],
    picked: Sequence[int] | None,
) -> FileResult:  # fmt: skip
    result, tree, reasons = FileResult(digest), Tree(), Counter[str]()
    checker, chosen = checker_of(problem, k, threshold), None if picked is None else set(picked)
    try:
        leaves = _counted(
            follow(name, *read_file(name, content), problem.n_items, k, tree, checker.most_compared), reasons
        )
        wanted = (leaf for leaf in leaves if chosen is None or leaf.number in chosen)
        while part := list(islice(wanted, _LEAVES)):
            result.checked += len(part)
            found = (_described(name, failure, problem, columns) for failure in checker.failures(part))
            result.failures += islice(found, _MOST_FAILURES - len(result.failures))
            if len(result.failures) >= _MOST_FAILURES:
                break
        else:
            result.open = [(path, allowed, count) for (path, allowed), count in tree.open.items()]
    except LogError as error:
        result.failures.append(f"{error.where}: {error.what}")
    result.nodes, result.leaves, result.ridge = tree.nodes, dict(sorted(reasons.items())), float(checker.ridge)
    return result


def _counted(leaves: Iterator[Leaf], reasons: Counter[str]) -> Iterator[Leaf]:
    for leaf in leaves:
        reasons[leaf.reason] += 1
        yield leaf


def _described(name: str, failure: Failure, problem: Problem, columns: Sequence[int]) -> str:
    leaf = failure.leaf
    of_data = [int(columns[j]) for j in problem.members(leaf.chosen)]
    return (
        f"{name}, leaf {leaf.number} (columns {of_data} chosen, at most {leaf.most} of {leaf.allowed.bit_count()} to "
        f"add): {failure.why}"
    )


@dataclass
class _State:
    """What is checked so far: files, results, and the nodes that files left open or continued."""

    nodes: int = 0
    checked: int = 0
    ridge: float = 0.0
    leaves: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    leaves_of_files: list[int] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    open: Counter[Node] = field(default_factory=Counter)

    def add(self, result: FileResult) -> None:
        self.nodes += result.nodes
        self.checked += result.checked
        self.ridge = max(self.ridge, result.ridge)
        self.leaves.update(result.leaves)
        self.leaves_of_files.append(sum(result.leaves.values()))
        self.digests.append(result.content)
        self.failures += result.failures
        for path, allowed, count in result.open:
            node = (path, allowed)
            self.open[node] += count
            if not self.open[node]:
                del self.open[node]


def check_log(
    folder: AnyPath, sums: ExtendedSums, engine: Engine, *, lam: float, included: Sequence[int],
    excluded: Sequence[int], items: Items, sample: int | None = None, seed: int = 0, tolerance: float = TOLERANCE,
    state: Path | None = None, progress: Progress | None = None,
) -> ProofCheck:  # fmt: skip
    """Check a proof log against the data.

    Parameters
    ----------
    folder : Path or ObjectPath
        The folder of the log.
    sums : ExtendedSums
        The sums over the data.
    engine : Engine
        Where the files are checked.
    lam : float
        The ridge penalty of the request.
    included, excluded : sequence of int
        Columns that are always or never chosen.
    items : SingleColumns or ColumnGroups
        What the request chooses: single columns, or its groups of columns.
    sample : int, optional
        Recompute a random sample of this many leaves. By default all are recomputed.
    seed : int
        The seed of the sample.
    tolerance : float
        What the check allows for rounding, as a share of ||Y||^2.
    state : Path, optional
        A folder of this user for what is checked so far, see `CheckedFiles`.
    progress : callable, optional
        Called with the numbers of checked files and of all files. What it raises ends the check.

    Returns
    -------
    ProofCheck
        What was checked, and what is wrong.

    Raises
    ------
    MissingInputError, DataError
        There is no complete log, or the data cannot be used.

    Notes
    -----
    Every leaf is covered by the check of the tree, sampled or not.
    """
    start = time.perf_counter()
    manifest = read_manifest(folder)
    failures = _failures_of_columns(manifest, sums, included, excluded, lam, items)
    columns = manifest["columns"]
    problem = sums.problem(columns, [j for j in manifest["included"] if j in set(included)], lam)
    problem = replace(problem, groups=items.local(np.asarray(columns, np.int64)))
    threshold = manifest["bound"] - tolerance * float(problem.total)
    k, found = manifest["k"], _State()
    if not failures:
        saved = CheckedFiles.open(state, problem, k, threshold, columns)
        work = _Work(folder, manifest, problem, threshold, engine, saved, progress)
        found = work.run(None if sample is None else {})
        failures = found.failures or _failures_of_cover(found, problem.n_items)
        if sample is not None and not failures:
            again = work.run(_picked(found.leaves_of_files, sample, seed))
            changed = [] if again.digests == found.digests else ["the files of the log changed during the check"]
            found.checked, found.ridge, failures = again.checked, again.ridge, again.failures or changed
        if saved is not None:
            saved.forget()
    value, failures_of_value = _check_value(manifest, problem, tolerance)
    bound, failures_of_relaxation = _check_relaxation(manifest, problem, tolerance)
    hidden = checker_of(problem, k, threshold).hidden(found.ridge)
    return ProofCheck(
        size=items.count(included) + k, bound=bound, value=value, total=float(problem.total),
        error=tolerance + hidden, indices=tuple(manifest["indices"]), nodes=found.nodes,
        leaves=dict(sorted(found.leaves.items())), checked=found.checked, sampled=sample is not None,
        seed=None if sample is None else seed,
        failures=tuple([*failures, *failures_of_value, *failures_of_relaxation]), seconds=time.perf_counter() - start,
        noun=items.noun,
    )  # fmt: skip


@dataclass(frozen=True)
class _Work:
    folder: AnyPath
    manifest: dict[str, Any]
    problem: Problem
    threshold: float
    engine: Engine
    saved: CheckedFiles | None
    progress: Progress | None

    def run(self, picked: dict[int, list[int]] | None) -> _State:
        """Check all files, apart from those that an earlier check has. picked: the leaves of each file, None: all."""
        from dask.delayed import delayed

        files, state = self.manifest["files"], _State()
        check, problem = delayed(check_file, pure=False), delayed(self.problem, traverse=False)
        step = _TASKS * self.engine.workers
        for first in range(0, len(files), step):
            part = {i: None if picked is None else picked.get(i, []) for i in range(len(files))[first : first + step]}
            tasks = [
                check(
                    self.folder / files[i], problem, self.manifest["k"], self.threshold, self.manifest["columns"],
                    leaves, self.saved,
                )
                for i, leaves in part.items()
            ]  # fmt: skip
            for (i, leaves), result in zip(part.items(), self.engine.run(tasks), strict=True):
                state.add(result)
                if self.saved is not None:
                    self.saved.keep(files[i], leaves, result)
            if self.progress is not None:
                self.progress(min(first + step, len(files)), len(files))
            if len(state.failures) >= _MOST_FAILURES:
                break
        return state


def _failures_of_columns(
    manifest: dict[str, Any], sums: ExtendedSums, included: Sequence[int], excluded: Sequence[int], lam: float,
    items: Items,
) -> list[str]:  # fmt: skip
    """Return what is wrong with the columns or groups of the log, and with its ridge penalty."""
    columns, n = manifest["columns"], sums.constant.size
    if len(set(columns)) < len(columns) or set(columns) & set(included):
        return ["manifest.json: the columns are not different ones, or are included"]
    if any(not 0 <= j < n for j in columns):
        return [f"manifest.json: the data have {n} columns, the log is over others"]
    missing = sorted(set(range(n)) - set(columns) - set(included) - set(excluded))
    lost = [j for j in missing if not sums.constant[j]]
    failures = [f"manifest.json: the log leaves out columns {lost[:5]}, which may be chosen"] if lost else []
    groups = [[columns[j] for j in group] for group in items.local(np.asarray(columns, np.int64)) or ()]
    if (manifest.get("groups") or []) != groups or manifest["n"] != len(groups or columns):
        failures.append("manifest.json: the log is not about the groups or columns of the request")
    dropped = sorted(set(included) - set(manifest["included"])) if items.keeps_dependent else []
    if sorted([*manifest["included"], *dropped]) != sorted(included) or not _dependent(sums, manifest, dropped, lam):
        failures.append(f"manifest.json: the log includes {manifest['included']}, the request {sorted(included)}")
    if manifest["lam"] != lam:
        failures.append(f"manifest.json: lam is {manifest['lam']}, in the request {lam}")
    return failures


def _dependent(sums: ExtendedSums, manifest: dict[str, Any], dropped: Sequence[int], lam: float) -> bool:
    """Return whether columns of included groups, which the log leaves out, are constant or depend on the included."""
    kept = manifest["included"]
    problems = (sums.problem([*kept, j], (), lam) for j in dropped if not sums.constant[j])
    return all(Checker(problem, problem.n, 0.0).dependent(range(problem.n)) for problem in problems)


def _failures_of_cover(state: _State, n: int) -> list[str]:
    """Return which nodes the log leaves open, or has from nowhere."""
    nodes = state.open.copy()
    root: Node = ((), (1 << n) - 1)
    nodes[root] += 1
    failures: list[str] = []
    for (path, allowed), count in nodes.items():
        if count and len(failures) < _MOST_FAILURES:
            what = "no segment continues it" if count > 0 else "no segment leaves it open"
            size = len(columns_of(allowed))
            failures.append(f"node at columns {list(path)} of the log, with {size} columns to add: {what}")
    return failures


def _picked(leaves_of_files: Sequence[int], sample: int, seed: int) -> dict[int, list[int]]:
    """Return the leaves of each file in a random sample of all."""
    ends = np.cumsum(leaves_of_files)
    total = int(ends[-1]) if len(ends) else 0
    chosen = np.sort(np.random.default_rng(seed).choice(total, min(sample, total), replace=False))
    files = np.searchsorted(ends, chosen, side="right")
    starts = ends - np.asarray(leaves_of_files)
    return {int(i): (chosen[files == i] - starts[i]).tolist() for i in np.unique(files)}


def _check_relaxation(manifest: dict[str, Any], problem: Problem, tolerance: float) -> tuple[float, list[str]]:
    """Return the bound that the tree and the convex relaxation prove, and what is wrong with the relaxation."""
    bound, claim = float(manifest["bound"]), manifest.get("relaxation")
    if claim is None:
        return bound, []
    found = relaxation_bound(problem, manifest["k"], claim["d"], claim["z"])
    if not found >= claim["bound"] - tolerance * float(problem.total):
        what = f"the bound is {found:.10g}, the log says {claim['bound']:.10g}"
        return bound, [f"manifest.json, relaxation: {what}"]
    return max(bound, float(claim["bound"])), []


def _check_value(manifest: dict[str, Any], problem: Problem, tolerance: float) -> tuple[float, list[str]]:
    """Return f of the best known subset, and what is wrong with it."""
    local = {int(j): place for place, j in enumerate(manifest["columns"])}
    columns = [local[j] for j in manifest["indices"] if j in local]
    S = problem.within(columns)
    checker = checker_of(problem, len(S), 0.0)
    where = f"manifest.json, columns {manifest['indices']}"
    outside = set(manifest["indices"]) - set(local) - set(manifest["included"])
    if outside or sorted(problem.members(S)) != sorted(columns) or len(set(S)) < len(S) or len(S) > manifest["k"]:
        what = "columns" if problem.groups is None else "groups"
        return float("nan"), [f"{where}: they are not at most {manifest['k']} of the {what} that may be chosen"]
    if S and checker.dependent(S):
        return float("nan"), [f"{where}: they depend on each other"]
    value = float(checker.value(S))
    if not abs(value - manifest["value"]) <= tolerance * float(problem.total):
        return value, [f"{where}: their error is {value:.12g}, the log says {manifest['value']:.12g}"]
    return value, []
