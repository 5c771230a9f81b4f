"""Names of temporary files and folders that tell who writes them, and the removal of those that killed runs left.

A name ends in a tag of the machine, the number of the process, and a random word: `.job.json-1f3a9c-p4711-5e0d21aa`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from uuid import getnode, uuid4

#: A file of another machine is left behind if it is older than this.
_OLD_SECONDS = 7 * 86400.0
_TAG = re.compile(r"-(?P<machine>[0-9a-f]{6})-p(?P<pid>\d+)-[0-9a-f]{8}(\.\w+)?$")
#: How earlier releases called them.
_PLAIN = re.compile(r"^\..+-[0-9a-f]{8}$")


def machine() -> str:
    """Return an identity of this machine or container since its start, in which process numbers are unique.

    Two machines may have the same host name, but not the same boot.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = f"{getnode():012x}"
    try:
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {boot}"


def has_ended(pid: int) -> bool:
    """Return whether it is certain that no process of this machine has this number.

    A signal reaches a process that /proc hides (hidepid=2), or is refused. psutil would say that there is none.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def temporary_tag() -> str:
    """Return the end of the name of a temporary file that this process writes."""
    return f"{_digest()}-p{os.getpid()}-{uuid4().hex[:8]}"


def is_temporary(name: str) -> bool:
    """Return whether this is the name of a temporary file, except one of a lock."""
    return not name.startswith("..lock") and bool(_TAG.search(name) or _PLAIN.match(name))


def remove_leftovers(folder: Path, *, owned: bool = False, pattern: str = ".*") -> list[str]:
    """Remove temporary files and folders whose writers are dead, and return their names.

    Parameters
    ----------
    folder : Path
        Where to look. It need not exist.
    owned : bool
        Whether this run alone writes there, so that whatever an earlier run has left can go.
    pattern : str
        The names to look at.
    """
    removed = []
    for path in sorted(folder.glob(pattern)) if folder.is_dir() else []:
        of_lock = path.name.startswith("..lock")  # another run may be about to try
        if _is_left(path, owned and not of_lock):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                removed.append(path.name)
    return removed


def _is_left(path: Path, owned: bool) -> bool:
    tag = _TAG.search(path.name)
    if tag is None:
        return owned and _PLAIN.match(path.name) is not None
    if int(tag["pid"]) == os.getpid() and tag["machine"] == _digest():
        return False
    if owned:
        return True
    if tag["machine"] == _digest():
        return has_ended(int(tag["pid"]))
    with suppress(OSError):
        return time.time() - path.stat().st_mtime > _OLD_SECONDS
    return False


@lru_cache(maxsize=1)
def _digest() -> str:
    return hashlib.blake2b(machine().encode(), digest_size=3).hexdigest()
