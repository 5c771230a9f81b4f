"""The results of single files of a proof log, and where an interrupted check keeps them.

They are kept in a folder of the user who checks. Whoever wrote the log cannot write there. The name of a result is a
digest of all that it follows from: the sums over the data, the claim, and the content of the file. So a result of
another file, of other data or of another claim is never used.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dsel._lib.versions import versions
from dsel.errors import OutputError
from dsel.storage.json_files import read_json, write_json
from dsel.storage.paths import foreign_owner
from dsel.verification.problem import Claim
from dsel.verification.tree import digest_of

log = logging.getLogger("dsel")

#: Results of checks that nobody continued for so long are removed.
_OLD_SECONDS = 30 * 86400.0


@dataclass
class FileResult:
    """What was found in one file of a log, see `ProofCheck` and `Tree`. content: the digest of its content."""

    content: str = ""
    nodes: int = 0
    leaves: dict[str, int] = field(default_factory=dict)
    checked: int = 0
    failures: list[str] = field(default_factory=list)
    ridge: float = 0.0
    open: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON holds it."""
        return {**asdict(self), "open": [[list(path), hex(allowed), count] for path, allowed, count in self.open]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> FileResult:
        """Return the result that `as_json` has written. Raises KeyError, TypeError or ValueError for anything else."""
        open_ = [(tuple(path), int(allowed, 16), int(count)) for path, allowed, count in values["open"]]
        return cls(**{**values, "open": open_})


@dataclass(frozen=True)
class CheckedFiles:
    """The results that a check has so far, in a folder of the user who checks.

    Parameters
    ----------
    folder : Path
        Where the results are: one file for each file of the log.
    """

    folder: Path

    @classmethod
    def open(cls, folder: Path | None, claim: Claim) -> CheckedFiles | None:
        """Return the results of a check, or None with a warning if they cannot be kept safely.

        Parameters
        ----------
        folder : Path, optional
            The folder of all checks. By default dsel/verify in the user's folder for state, such as ~/.local/state.
        claim : Claim
            What is checked: results of other checks are not used.
        """
        try:
            folder = folder or _state_folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if owner := foreign_owner(folder):
                raise PermissionError(f"{folder} belongs to {owner}")
            if folder.stat().st_mode & 0o022:
                raise PermissionError(f"other users may write to {folder}")
            for old in folder.iterdir():
                if time.time() - old.stat().st_mtime > _OLD_SECONDS:
                    shutil.rmtree(old, ignore_errors=True)
            asked: tuple[Any, ...] = (
                claim.problem.digest(),
                claim.k,
                float(claim.threshold).hex(),
                list(claim.columns),
            )
            if claim.listed is not None:
                asked = (*asked, sorted(claim.listed), float(claim.least).hex())
            found = cls(folder / digest_of(repr((versions()["dsel"], *asked)).encode()))
            found.folder.mkdir(exist_ok=True)
            known = sum(1 for _ in found.folder.iterdir())
        except (OSError, RuntimeError) as error:
            log.warning("the check cannot be continued if it is interrupted: %s", error)
            return None
        if known:
            log.info("continuing the check: the results of %d files are in %s", known, found.folder)
        return found

    def read(self, name: str, digest: str, picked: Sequence[int] | None) -> FileResult | None:
        """Return the result of a file with this content, or None if there is none."""
        values = read_json(self._file(name, digest, picked))
        try:
            found = FileResult.from_json(values)  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError):
            return None
        return found if found.content == digest else None

    def keep(self, name: str, picked: Sequence[int] | None, result: FileResult) -> None:
        """Save the result of a file. Logs a warning if it cannot be written."""
        try:
            self.folder.mkdir(exist_ok=True)  # another check of the same log may have removed it
            write_json(self._file(name, result.content, picked), result.as_json())
        except (OSError, OutputError) as error:
            log.warning("the check cannot be continued here if it is interrupted: %s", error)

    def forget(self) -> None:
        """Remove the results: the check is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, name: str, digest: str, picked: Sequence[int] | None) -> Path:
        asked = repr((name, digest, None if picked is None else list(picked)))
        return self.folder / f"{digest_of(asked.encode())}.json"


def _state_folder() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    home = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    return home / "dsel" / "verify"
