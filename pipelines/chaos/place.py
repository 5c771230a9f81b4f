"""Where a case works."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.chaos.cases import Command


@dataclass(frozen=True)
class Place:
    """Where a case works.

    Parameters
    ----------
    folder : Path
        The job file, the tables, and what the commands print.
    top : str
        The folder or URL below which they write.
    data : str
        The store that the job reads.
    """

    folder: Path
    top: str
    data: str

    @property
    def output(self) -> Path:
        """What the commands have printed."""
        return self.folder / "output"

    @property
    def out(self) -> str:
        """The result."""
        return f"{self.top}/out"

    @property
    def store(self) -> str:
        """The store that is written."""
        return f"{self.top}/store.zarr"

    def words(self, command: Command) -> list[str]:
        """Return the arguments of a command."""
        names = {"job": self.folder / "job.yaml", "folder": self.folder, "store": self.store, "out": self.out}
        return [word.format(**names) for word in command]
