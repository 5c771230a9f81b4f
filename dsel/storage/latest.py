"""Pointers to the latest good run in a folder of runs: a symbolic link on disk, a small file in object storage."""

from __future__ import annotations

import os
from contextlib import suppress
from uuid import uuid4

from dsel.storage.paths import AnyPath, ObjectPath, write_bytes

LATEST = "latest"


def point_to(folder: AnyPath, name: str) -> None:
    """Make `latest` in a folder point to the run of this name; readers find the old one or the new one.

    A disk without symbolic links gets a file with the name, as object storage does.
    """
    pointer = folder / LATEST
    if not isinstance(pointer, ObjectPath):
        temporary = pointer.with_name(f".{LATEST}-{uuid4().hex[:8]}")
        with suppress(OSError, NotImplementedError):
            temporary.symlink_to(name, target_is_directory=True)
            os.replace(temporary, pointer)
            return
    write_bytes(pointer, f"{name}\n".encode())


def latest_name(folder: AnyPath) -> str | None:
    """Return the name of the run that `latest` in a folder points to, or None if there is none."""
    pointer = folder / LATEST
    try:
        if not isinstance(pointer, ObjectPath) and pointer.is_symlink():
            return os.readlink(pointer).rstrip("/")
        return pointer.read_text().strip() or None
    except OSError:
        return None


def resolve_run(path: AnyPath) -> AnyPath:
    """Return the folder of a run: that which `latest` or a folder of runs stands for, else the path itself."""
    folder = path.parent if path.name == LATEST else path
    if path.name != LATEST and (path / "job.json").is_file():
        return path
    name = latest_name(folder)
    return path if name is None else folder / name
