"""Damaged files: the digest by which they are noticed, and the warning about one that is computed again."""

from __future__ import annotations

import logging
from functools import lru_cache
from hashlib import blake2b

log = logging.getLogger("dsel")


class DamagedFileError(ValueError):
    """A file does not hold what was written to it."""


def digest_of(data: bytes) -> str:
    """Return the digest by which a changed bit of `data` is noticed."""
    return blake2b(data, digest_size=10).hexdigest()


def warn_of_damage(file: object, lost: str, error: Exception | str) -> None:
    """Log that a file is damaged, and what that costs. A file that is read several times is named once."""
    _warn_once(str(file), lost, str(error))


@lru_cache(maxsize=1024)
def _warn_once(file: str, lost: str, what: str) -> None:
    log.warning("%s is damaged: %s; %s", file, what, lost)
