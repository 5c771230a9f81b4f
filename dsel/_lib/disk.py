"""Whether a disk is full, from an error or by trying."""

from __future__ import annotations

import errno
import tempfile

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_TRIED_BYTES = 64 << 10


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, is that of a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def has_room(folder: str) -> bool:
    """Return whether a small file can be written to a folder, as far as the disk's space is concerned."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_TRIED_BYTES))
    except OSError as error:
        return not is_disk_full(error)
    return True
