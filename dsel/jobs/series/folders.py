"""The folders of the runs of one job: their names, the latest good one, and how many are kept."""

from __future__ import annotations

import logging
import shutil
from datetime import UTC, datetime

from dsel.errors import DselError
from dsel.selection.changes.runs import SUMMARY, RunSummary, run_names
from dsel.storage.paths import AnyPath, ObjectPath, latest_name, point_to

log = logging.getLogger("dsel")


class RunFolders:
    """The folders of runs in one folder, on disk or in object storage.

    Parameters
    ----------
    folder : Path or ObjectPath
        The folder.
    """

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder

    def latest(self) -> str | None:
        """Return the name of the last good run."""
        good = (name for name in reversed(run_names(self.folder)) if self._is_good(name))
        return next(good, None)

    def unfinished(self) -> str | None:
        """Return the name of the newest run if it is not complete."""
        newest = next(reversed(run_names(self.folder)), None)
        return None if newest is None or self._is_good(newest) else newest

    def new(self, now: datetime | None = None) -> str:
        """Return the name for a new run: the time, UTC. It comes after all others, even if the clock was set back."""
        name = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        names = run_names(self.folder)
        if not names or name > names[-1].partition("-")[0]:
            return name
        time, _, number = names[-1].partition("-")
        return f"{time}-{int(number or 0) + 1}"

    def publish(self, summary: RunSummary, keep: int) -> None:
        """Record that a run is complete, point to it, and remove what is older than the `keep` newest good runs."""
        summary.save(self.folder / summary.run)
        self.settle(keep)

    def settle(self, keep: int) -> None:
        """Point to the last good run, and remove what is older than the `keep` newest ones. It may have been done."""
        names = run_names(self.folder)
        good = [name for name in names if self._is_good(name)]
        if not good:
            return
        if latest_name(self.folder) != good[-1]:
            point_to(self.folder, good[-1])
        for name in names[: names.index(good[-1])]:
            if name not in good[-keep:]:
                self._remove(name)

    def _is_good(self, name: str) -> bool:
        return (self.folder / name / SUMMARY).is_file()

    def _remove(self, name: str) -> None:
        """Remove a run. Its summary goes first, so that a part of a run never counts as one."""
        path = self.folder / name
        try:
            (path / SUMMARY).unlink(missing_ok=True)
            if isinstance(path, ObjectPath):
                path.remove_tree()
            else:
                shutil.rmtree(path)
        except (OSError, DselError) as error:
            log.warning("the old run %s could not be removed: %s", path, error)
