"""A small disk that can be filled up."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

_SIZE = "96m"
_FILLER = "filler"


class Disk:
    """A folder on a separate file system in memory, where mounting one is allowed; else a plain folder.

    Parameters
    ----------
    folder : Path
        Where it is mounted. The folder is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder)]
        with suppress(OSError):
            subprocess.run(command, capture_output=True, check=False)
        self.mounted = os.path.ismount(folder)

    def fill(self, free: int) -> None:
        """Leave about this many bytes free."""
        status = os.statvfs(self.folder)
        with (self.folder / _FILLER).open("wb") as out, suppress(OSError):
            os.posix_fallocate(out.fileno(), 0, max(status.f_bavail * status.f_frsize - free, 1))

    def free(self) -> None:
        """Make room again."""
        (self.folder / _FILLER).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the file system."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)
