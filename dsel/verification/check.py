"""Check a proof log: the cover of all subsets, every leaf, and the best known subset.

The files of a log are checked one by one, on the workers of an engine. What is checked is saved (`files.py`), so that a
check that was interrupted continues.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from dsel._lib.text import counted, counted_items
from dsel._lib.tolerances import copies_share
from dsel.data.column_groups import Items
from dsel.engine.engine_protocol import Engine
from dsel.storage.paths import AnyPath
from dsel.verification.bounds import Checker, Failure, relaxation_bound
from dsel.verification.files import CheckedFiles, FileResult
from dsel.verification.group_bounds import checker_of, checker_of_claim
from dsel.verification.problem import Claim, ExtendedSums, Problem
from dsel.verification.report import Copies, ListCheck, ProofCheck
from dsel.verification.tree import LogError, Node, RecordReader, Tree, columns_of, digest_of, read_manifest

log = logging.getLogger("dsel")

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
    file: AnyPath, claim: Claim, picked: Sequence[int] | None, saved: CheckedFiles | None = None
) -> FileResult:
    """Check one file of a log.

    Parameters
    ----------
    file : Path or ObjectPath
        The file.
    claim : Claim
        What the log claims.
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
    return known or _check_content(file.name, content, digest, claim, picked)


def _check_content(name: str, content: bytes, digest: str, claim: Claim, picked: Sequence[int] | None) -> FileResult:
    result, checker = FileResult(digest), checker_of_claim(claim)
    tree = Tree(claim.problem.n_items, claim.k, checker.most_compared)
    chosen = None if picked is None else set(picked)
    try:
        leaves = tree.follow(RecordReader(name, content))
        wanted = (leaf for leaf in leaves if chosen is None or leaf.number in chosen)
        while part := list(islice(wanted, _LEAVES)):
            result.checked += len(part)
            found = (_described(name, failure, claim) for failure in checker.failures(part))
            result.failures += islice(found, _MOST_FAILURES - len(result.failures))
            if len(result.failures) >= _MOST_FAILURES:
                break
        else:
            result.open = [(path, allowed, count) for (path, allowed), count in tree.open.items()]
    except LogError as error:
        result.failures.append(f"{error.where}: {error.what}")
    result.nodes, result.leaves, result.ridge = tree.nodes, dict(sorted(tree.reasons.items())), float(checker.ridge)
    return result


def _described(name: str, failure: Failure, claim: Claim) -> str:
    leaf, why = failure
    of_data = [int(claim.columns[j]) for j in claim.problem.members(leaf.chosen)]
    return (
        f"{name}, leaf {leaf.number} (columns {of_data} chosen, at most {leaf.most} of {leaf.allowed.bit_count()} to "
        f"add): {why}"
    )


def check_log(
    folder: AnyPath, sums: ExtendedSums, engine: Engine, *, lam: float, included: Sequence[int],
    excluded: Sequence[int], items: Items, sample: int | None = None, seed: int = 0, tolerance: float = TOLERANCE,
    one_of_copies: bool = False, state: Path | None = None, progress: Progress | None = None,
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
    one_of_copies : bool
        Whether the log may leave out columns that correlate by at least 1 - 1e-6 with one that it has.
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
    n, nodes = len(manifest["columns"]), manifest.get("nodes")
    what = "%s: %s over %s in %s; a leaf takes up to %.0e multiplications"
    counts = (nodes if isinstance(nodes, int) else 0, "node"), (n, "column"), (len(manifest["files"]), "file")
    log.info(what, folder.name, *(counted(*one) for one in counts), max(n**3 / 3, 1))
    failures, copies = _check_columns(manifest, sums, included, excluded, lam, items, one_of_copies)
    columns = manifest["columns"]
    problem = sums.problem(columns, [j for j in manifest["included"] if j in set(included)], lam)
    problem = replace(problem, groups=items.local(np.asarray(columns, np.int64)))
    k, found, recomputed = manifest["k"], [], []
    slack = tolerance * float(problem.total)
    claim = Claim(problem, k, manifest["bound"] - slack, columns)
    near, failures_of_list = _check_list(manifest, problem, slack)
    if near is not None:
        threshold = max(manifest["bound"], near.complete_below) - slack
        claim = Claim(problem, k, threshold, columns, near.listed, claim.threshold)
    failures += failures_of_list
    if not failures:
        saved = CheckedFiles.open(state, claim)
        check = partial(_check_files, folder, manifest["files"], claim, engine, saved, progress)
        found = recomputed = check(None if sample is None else {})
        failures = _failures_of_files(found) or _failures_of_cover(found, problem.n_items)
        if sample is not None and not failures:
            recomputed = check(_picked([sum(one.leaves.values()) for one in found], sample, seed))
            same = [one.content for one in recomputed] == [one.content for one in found]
            changed = [] if same else ["the files of the log changed during the check"]
            failures = _failures_of_files(recomputed) or changed
        if saved is not None:
            saved.forget()
    value, failures_of_value = _check_value(manifest, problem, tolerance)
    bound, failures_of_relaxation = _check_relaxation(manifest, problem, tolerance)
    apart = {j: min(others.values()) for j, others in copies.items()}
    size, multiples = items.count(included) + k, [one for one in apart.values() if one < np.inf]
    hidden = copies_share(size, max(multiples, default=0.0))
    hidden += checker_of(problem, k, claim.threshold).hidden(max((one.ridge for one in recomputed), default=0.0))
    return ProofCheck(
        size=size, bound=bound, value=value, total=float(problem.total),
        error=tolerance + hidden, indices=tuple(manifest["indices"]), nodes=sum(one.nodes for one in found),
        leaves=dict(sorted(sum((Counter(one.leaves) for one in found), Counter[str]()).items())),
        checked=sum(one.checked for one in recomputed), sampled=sample is not None,
        seed=None if sample is None else seed,
        failures=tuple([*failures, *failures_of_value, *failures_of_relaxation]), seconds=time.perf_counter() - start,
        noun=items.noun, near_best=near and near.with_copies(copies, _replaced(manifest, near, copies, sums, slack)),
        represented=tuple(j for j, one in apart.items() if one == np.inf),
    )  # fmt: skip


def check_only_subset(
    certificate: Mapping[str, Any], sums: ExtendedSums, *, lam: float, included: Sequence[int], items: Items,
    tolerance: float = TOLERANCE,
) -> ProofCheck:  # fmt: skip
    """Check the certificate of the included columns where no others may be chosen, which needs no log.

    Parameters
    ----------
    certificate : dict
        What `Certificate.as_dict` returns.
    sums, lam, included, items, tolerance
        As in `check_log`.

    Returns
    -------
    ProofCheck
        Whether they are all that its size allows, and have its value.
    """
    start, S, size = time.perf_counter(), [int(j) for j in certificate["indices"]], items.count(included)
    dropped = sorted(set(included) - set(S)) if items.keeps_dependent else []
    failures = []
    if certificate["size"] != size:
        only = counted_items(size, items.noun)
        failures = [f"selection.json: only one subset of {only} may be chosen, not one of {certificate['size']}"]
    if sorted([*S, *dropped]) != sorted(included) or not _dependent(sums, {"included": S}, dropped, lam):
        failures.append(f"selection.json: the certificate is about columns {S}, the request includes {included}")
    problem = sums.problem((), [j for j in S if j in set(included)], lam)
    value, total = float(problem.c), float(problem.total)
    if not abs(value - certificate["value"]) <= tolerance * total:
        failures.append(f"selection.json: the error is {value:.12g}, the certificate says {certificate['value']:.12g}")
    return ProofCheck(
        size=certificate["size"], bound=value, value=value, total=total, error=tolerance, indices=tuple(S), nodes=0,
        leaves={}, checked=0, sampled=False, failures=tuple(failures), seconds=time.perf_counter() - start,
        noun=items.noun, only=True,
    )  # fmt: skip


def _check_list(manifest: dict[str, Any], problem: Problem, slack: float) -> tuple[ListCheck | None, list[str]]:
    """Return what a log claims about near-best subsets, None without a claim, and what is wrong with it.

    That there are no others follows from the leaves. slack: what is rounding in f.
    """
    claim, k, where = manifest.get("near_best"), manifest["k"], "manifest.json, near-best subsets"
    if claim is None:
        return None, []
    kind = "columns" if problem.groups is None else "groups"
    items = [[int(manifest["columns"][j]) for j in problem.members([item])] for item in range(problem.n_items)]
    local = {j: item for item, columns in enumerate(items) for j in columns}
    included, failures, values, listed = set(manifest["included"]), [], [], []
    checker = checker_of(problem, k, 0.0)
    for columns, value in claim["subsets"]:
        S = tuple(sorted({local[j] for j in columns if j in local}))
        if len(S) != k or sorted(columns) != sorted([*included, *(j for item in S for j in items[item])]):
            return None, [f"{where}: {columns} are not {k} of the {kind} that may be chosen"]
        if checker.never_listed(S):
            return None, [f"{where}: {columns} depend on each other"]
        if not abs(float(checker.value(S)) - value) <= slack:
            failures.append(f"{where}: the error of {columns} is {float(checker.value(S)):.12g}, not {value:.12g}")
        values.append(value)
        listed.append(S)
    found = ListCheck(
        claim["within"], claim["threshold"], claim["complete_below"], frozenset(listed), claim["verdicts"],
        tuple(columns[0] for columns in items),
    )  # fmt: skip
    if len(found.listed) < len(listed):
        failures.append(f"{where}: a subset is listed twice")
    total = float(problem.total)
    best = min(values, default=float(problem.c))
    if "share_of" not in claim and total > best:  # of earlier versions: of what the included columns leave
        found = replace(found, within=found.within * (float(problem.c) - best) / (total - best))
    if not abs(found.threshold - (best + found.within * (total - best))) <= slack:
        failures.append(f"{where}: {found.within:.3%} less than the best explains has the error {found.threshold:.12g}")
    if max(values, default=best) > found.threshold + slack:
        failures.append(f"{where}: one of them is not near-best")
    if found.verdicts is not None:
        spare = [] if problem.groups is None or k < problem.n_items else _spare(problem, found.threshold + slack)
        failures += [f"{where}: {what}" for what in _failures_of_verdicts(found, slack, spare)]
    return found, failures


def _replaced(
    manifest: dict[str, Any], near: ListCheck, copies: Copies, sums: ExtendedSums, slack: float
) -> set[int]:  # fmt: skip
    """Return which columns a near-copy, which the log leaves out, replaces in the best listed subset."""
    if near.verdicts is None or not near.listed:
        return set()
    best, _ = min(manifest["near_best"]["subsets"], key=lambda row: row[1])
    found, included = set(), manifest["included"]
    for copy, others in copies.items():
        for j in others.keys() & set(best) - set(included):
            S = [copy if i == j else i for i in best if i not in included]
            problem, items = sums.problem(S, included, manifest["lam"]), range(len(S))
            if manifest.get("groups"):
                problem, items = replace(problem, groups=(np.arange(len(S)),)), range(1)
            checker = checker_of(problem, len(items), 0.0)
            if not checker.never_listed(items) and checker.value(items) <= near.threshold + slack:
                found.add(j)
    return found


def _spare(problem: Problem, limit: float) -> list[int]:
    """Return the groups without which the others are near-best, where the only set of k groups has all of them."""
    every = range(problem.n_items)
    checker = checker_of(problem, len(every), 0.0)
    return [g for g in every if (checker.value([h for h in every if h != g]) if len(every) > 1 else problem.c) <= limit]


def _failures_of_verdicts(found: ListCheck, slack: float, spare: Sequence[int]) -> list[str]:
    """Return which verdicts do not follow from a complete list. spare: groups that a smaller near-best set lacks."""
    verdicts = found.verdicts or ()
    if found.complete_below < found.threshold - slack:
        return ["verdicts need a list of all of them"]
    if len(verdicts) != len(found.columns):
        return ["each column needs a verdict"]
    wrong = []
    for place, (j, verdict) in enumerate(zip(found.columns, verdicts, strict=True)):
        having = sum(place in S for S in found.listed)
        true = "useless" if not having else "necessary" if having == len(found.listed) else "replaceable"
        true = "undecided" if not found.listed else "replaceable" if place in spare else true
        if verdict != true:
            wrong.append(f"column {j} is {true}, not {verdict}")
    return wrong[:_MOST_FAILURES]


def _check_files(
    folder: AnyPath, files: Sequence[str], claim: Claim, engine: Engine, saved: CheckedFiles | None,
    progress: Progress | None, picked: dict[int, list[int]] | None,
) -> list[FileResult]:  # fmt: skip
    """Check all files, apart from those that an earlier check has. picked: the leaves of each file, None: all."""
    from dask.delayed import delayed

    results: list[FileResult] = []
    kept: list[Any] = []  # until all files are checked
    check, claimed = delayed(check_file, pure=False), engine.share(claim, f"claim-{uuid4().hex}", kept)
    step = _TASKS * engine.workers
    for first in range(0, len(files), step):
        part = files[first : first + step]
        leaves = [None if picked is None else picked.get(first + i, []) for i in range(len(part))]
        tasks = [check(folder / name, claimed, some, saved) for name, some in zip(part, leaves, strict=True)]
        results += engine.run(tasks, before=first, after=len(files) - first - len(part))
        if saved is not None:
            for name, some, result in zip(part, leaves, results[first:], strict=True):
                saved.keep(name, some, result)
        if progress is not None:
            progress(first + len(part), len(files))
        if len(_failures_of_files(results)) >= _MOST_FAILURES:
            break
    return results


def _failures_of_files(results: Sequence[FileResult]) -> list[str]:
    return [failure for result in results for failure in result.failures]


def _check_columns(
    manifest: dict[str, Any], sums: ExtendedSums, included: Sequence[int], excluded: Sequence[int], lam: float,
    items: Items, one_of_copies: bool,
) -> tuple[list[str], Copies]:  # fmt: skip
    """Return what is wrong with the columns or groups of the log, and with its ridge penalty; and what copies it lacks.

    one_of_copies: whether the log may leave out columns that are near-copies of others.
    """
    columns, n = manifest["columns"], sums.constant.size
    if len(set(columns)) < len(columns) or set(columns) & set(included):
        return ["manifest.json: the columns are not different ones, or are included"], {}
    if any(not 0 <= j < n for j in columns):
        return [f"manifest.json: the data have {n} columns, the log is over others"], {}
    missing = sorted(set(range(n)) - set(columns) - set(included) - set(excluded))
    lost = [j for j in missing if not sums.constant[j]]
    copies = sums.near_copies(lost, [*columns, *included], lam) if one_of_copies else {}
    lost = [j for j in lost if j not in copies]
    failures = [f"manifest.json: the log leaves out columns {lost[:5]}, which may be chosen"] if lost else []
    groups = [[columns[j] for j in group] for group in items.local(np.asarray(columns, np.int64)) or ()]
    if (manifest.get("groups") or []) != groups or manifest["n"] != len(groups or columns):
        failures.append("manifest.json: the log is not about the groups or columns of the request")
    dropped = sorted(set(included) - set(manifest["included"])) if items.keeps_dependent else []
    if sorted([*manifest["included"], *dropped]) != sorted(included) or not _dependent(sums, manifest, dropped, lam):
        failures.append(f"manifest.json: the log includes {manifest['included']}, the request {sorted(included)}")
    if manifest["lam"] != lam:
        failures.append(f"manifest.json: lam is {manifest['lam']}, in the request {lam}")
    return failures, copies


def _dependent(sums: ExtendedSums, manifest: dict[str, Any], dropped: Sequence[int], lam: float) -> bool:
    """Return whether columns of included groups, which the log leaves out, are constant or depend on the included."""
    kept = manifest["included"]
    problems = (sums.problem([*kept, j], (), lam) for j in dropped if not sums.constant[j])
    return all(Checker(problem, problem.n, 0.0).dependent(range(problem.n)) for problem in problems)


def _failures_of_cover(results: Sequence[FileResult], n: int) -> list[str]:
    """Return which nodes the log leaves open, or has from nowhere."""
    nodes: Counter[Node] = Counter()
    for result in results:
        for path, allowed, count in result.open:
            nodes[path, allowed] += count
    nodes[(), (1 << n) - 1] += 1
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
