"""Who owns a file: this user, or somebody else."""

from __future__ import annotations

import os

from dsel.storage.object_store import ObjectPath
from dsel.storage.paths import AnyPath


def foreign_owner(path: AnyPath) -> str | None:
    """Return the name of the other user who owns a file, or None if that is this user or root.

    Object storage does not say who wrote a file, and what does not exist has no owner: None.
    """
    if isinstance(path, ObjectPath):
        return None
    try:
        owner = os.stat(path).st_uid
    except FileNotFoundError:
        return None
    return None if owner in (os.geteuid(), 0) else _name(owner)


def _name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
