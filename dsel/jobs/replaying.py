"""The journal of a run's folder, replayed and held against what the run has saved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import localtime, strftime
from typing import Any

from dsel.errors import DataError, MissingInputError, OptionError
from dsel.jobs.run_folder import RunFolder
from dsel.search.base import improving
from dsel.search.parallel.journal import read_journal
from dsel.search.parallel.replay import Columns, Replay, Step
from dsel.search.pareto.archive import ISOLATIONS, IsolationFunction
from dsel.search.registry import METHODS
from dsel.selection.result import SELECTION, Selection, open_selection
from dsel.storage.paths import Place

#: Steps that are told at the beginning and at the end.
_MOST_STEPS = 20


@dataclass(frozen=True)
class ReplayedRun:
    """A journal replayed, and what it was held against: the front of the result, or of a run that has not ended the
    archive in its checkpoint ("" where there is neither)."""

    replay: Replay
    columns: Columns
    against: str

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Plain text: how it went, how the best subset of at most k columns became what it is, and the verdict."""
        r = self.replay
        text = [
            f"begun {strftime('%Y-%m-%d %H:%M:%S', localtime(r.began))}, gone on with {r.lives - 1} times; "
            f"{r.packages:,} packages merged, {r.subsets:,} subsets put before the archive, {r.lost:,} packages lost, "
            f"{min(r.workers, default=0)} to {max(r.workers, default=0)} workers; "
            f"{'ended by ' + r.ended if r.ended else 'not ended'} after {r.seconds:.1f} s",
            f"{'seconds':>9} {'size':>5} {'f':>12} {'archive':>8}  columns",
        ]
        steps = r.steps
        told = [self._told(step) for step in steps]
        text += told if len(told) <= 2 * _MOST_STEPS else [*told[:_MOST_STEPS], "...", *told[-_MOST_STEPS:]]
        if self.against:
            text.append(f"The merges give {self.against}: {len(r.archive)} solutions in the archive.")
        else:
            text.append("Nothing is saved yet that the merges could be held against.")
        return text

    def _told(self, step: Step) -> str:
        columns = self.columns.in_data(step.members)
        named = " ".join(map(str, columns[:8])) + (" ..." if len(columns) > 8 else "")
        return f"{step.seconds:9.2f} {len(columns):5d} {step.value:12.6g} {step.solutions:8d}  {named}"


def replay_run(folder: Place) -> ReplayedRun:
    """Replay the journal of a pposs-asy run in its order, and hold what its merges give against what was saved: of a
    run that is done every subset of the front, of one that is not the archive in its checkpoint, f to the last bit.

    It reads three small files and the journal, never the data. Errors: MissingInputError where there is no such run,
    OptionError where it is of another method, DataError where the journal is damaged or gives something else.
    """
    (_, job), journal = RunFolder(folder).job(), RunFolder(folder).journal
    if job.method != "pposs-asy":
        raise OptionError(
            f"{folder} is a run of {job.method}: only the merges of pposs-asy are told by a journal.",
            "The other methods give the same bits from the same seed: run the job again in another folder.",
        )
    try:
        columns = next((Columns.from_event(e) for e in read_journal(journal) if e["event"] == "started"), None)
        if columns is None:
            raise MissingInputError(f"{journal} tells of no search.", "Name the folder that dsel run wrote to.")
        options = METHODS[job.method].options.model_validate(job.options)
        replay = Replay(columns.k, _isolation(getattr(options, "isolation", "none"), columns))
        checkpoint = None if (folder / SELECTION).is_file() else _checkpoint(folder)
        met = checkpoint is None
        for event in read_journal(journal):
            replay.take(event)
            met = met or replay.archive.state() == checkpoint
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{journal} is no journal that can be replayed: {type(error).__name__}: {error}.", "Run the job again."
        ) from error
    if not met:
        raise DataError(
            f"The merges in {journal} do not give the archive of the checkpoint at any time.",
            "One of the two was changed, or is of another run: start the job again in another folder.",
        )
    against = "" if checkpoint is None else "the archive of the checkpoint"
    if (folder / SELECTION).is_file():
        _require_front(open_selection(folder), replay, columns, journal)
        against = "the front of the result"
    return ReplayedRun(replay, columns, against)


def _checkpoint(folder: Place) -> list[list[Any]] | None:
    """The archive in the checkpoint, if there is one."""
    about = RunFolder(folder).read_manifest()
    state = None if about is None else RunFolder(folder).read_checkpoint(about["identity"])
    return None if state is None else list(state["solutions"])


def _isolation(asked: Any, columns: Columns) -> IsolationFunction:
    """Of local columns; the user's function is asked for columns of the data."""
    if not callable(asked):
        return ISOLATIONS[asked]
    own: Callable[[tuple[int, ...]], Any] = asked
    return lambda S: own(tuple(sorted(columns.in_data(S))))


def _require_front(selection: Selection, replay: Replay, columns: Columns, journal: Place) -> None:
    """Every row of the front: its columns and, where there is one, the criterion; and the f of the best subset. A row
    that a proof has put there since is not the search's."""
    found = {point.size: point for point in improving(replay.points) if point.size}
    base, by_criterion = len(columns.included), selection.criterion is not None
    for row in selection.front:
        if row.size == base:
            continue
        point = found.pop(row.size - base, None)
        if selection.certificate and (point is None or row.error < point.value):
            continue
        if point is None or columns.in_data(point.members) != row.indices:
            raise _other(journal, f"the columns {list(row.indices)}")
        if by_criterion and point.value != row.criterion:
            raise _other(journal, f"{row.criterion!r} for the columns {list(row.indices)}, not {point.value!r}")
    if found:
        point = next(iter(found.values()))
        raise _other(journal, f"nothing better with {base + point.size} columns than with fewer")
    best = replay.steps[-1].value if replay.steps else math.inf
    if selection.trace and selection.trace[-1].error != best:
        raise _other(journal, f"{selection.trace[-1].error!r} at best, not {best!r}")


def _other(journal: Place, saved: str) -> DataError:
    return DataError(
        f"The merges in {journal} do not give the front of the result, which has {saved}.",
        "One of the two was changed, or is of another run: run the job again in another folder.",
    )
