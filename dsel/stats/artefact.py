"""Statistics on disk: written whole or not at all, named by everything they depend on, reused when nothing changed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np

from dsel.stats.column_pass import ColumnStatistics
from dsel.stats.statistics import Statistics
from dsel.versions import versions

log = logging.getLogger("dsel")

FORMAT = 2
_MANIFEST = "manifest.json"
_KINDS: dict[str, type[Any]] = {"gram": Statistics, "columns": ColumnStatistics}


class ArtefactStore:
    """A folder of statistics. A name is the digest of the manifest's `key`: format, input fingerprint, options."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def key(fingerprint: str, kind: str = "gram", **options: Any) -> dict[str, Any]:
        """What the statistics depend on. kind: gram (Statistics), columns (ColumnStatistics)."""
        return {"format": FORMAT, "kind": kind, "input": fingerprint, "options": options}

    def path(self, key: dict[str, Any]) -> Path:
        """Where statistics with this key stand."""
        digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=10).hexdigest()
        return self.folder / f"{key['kind']}-{digest}"

    def has(self, key: dict[str, Any]) -> bool:
        """Whether there seem to be statistics for just this key: their arrays are not read."""
        path = self.path(key)
        try:
            whole = bool(json.loads((path / _MANIFEST).read_text())["key"] == key)
        except (OSError, ValueError, LookupError, TypeError):
            return False
        return whole and (path / "arrays.npz").is_file()

    def load(self, key: dict[str, Any]) -> Statistics | ColumnStatistics | None:
        """The statistics, or None where there are none for just this key (or they cannot be read)."""
        path, kind = self.path(key), _KINDS[key["kind"]]
        try:
            if json.loads((path / _MANIFEST).read_text())["key"] != key:
                return None
            with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
                values = {field.name: arrays[field.name] for field in fields(kind)}
            found = kind(**{**values, "m": int(values["m"]), "weight": float(values["weight"])})
        except Exception:  # damaged bytes raise nearly anything: zlib.error, NotImplementedError, struct.error
            return None
        return found if found.consistent else None

    def save(self, key: dict[str, Any], statistics: Statistics | ColumnStatistics) -> Path | None:
        """Write under a temporary name, flush to disk, rename; what another process saved meanwhile stays.

        A folder that cannot be written costs the next run a pass, not this one its result: a warning, and None.
        """
        path = self.path(key)
        staging = self.folder / f".{path.name}-{uuid4().hex[:8]}"
        try:
            staging.mkdir(parents=True)
            arrays: dict[str, Any] = {
                field.name: np.asarray(getattr(statistics, field.name)) for field in fields(statistics)
            }
            with (staging / "arrays.npz").open("wb") as file:
                np.savez(file, **arrays)
                flush(file)
            with (staging / _MANIFEST).open("w") as text:
                json.dump({"key": key, "versions": versions()}, text, indent=2)
                flush(text)
            self._publish(key, staging, path)
        except OSError as error:
            log.warning(
                "statistics are not saved, the next run reads the data again: %s cannot be written (%s); "
                "name another folder with artefacts", self.folder, error,
            )  # fmt: skip
            return None
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return path

    def _publish(self, key: dict[str, Any], staging: Path, path: Path) -> None:
        if self.load(key) is not None:
            return
        shutil.rmtree(path, ignore_errors=True)
        try:
            os.rename(staging, path)
        except OSError:
            if self.load(key) is None:
                raise


def flush(file: IO[Any]) -> None:
    """Write a file through to the disk."""
    file.flush()
    os.fsync(file.fileno())
