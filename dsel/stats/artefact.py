"""Statistics on disk: written whole or not at all, named by everything they depend on, reused when nothing changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np

from dsel.errors import OutputError
from dsel.stats.statistics import Statistics
from dsel.versions import versions

FORMAT = 1
_MANIFEST = "manifest.json"


class ArtefactStore:
    """A folder of statistics. A name is the digest of the manifest's `key`: format, input fingerprint, options."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def key(fingerprint: str, **options: Any) -> dict[str, Any]:
        """What the statistics depend on."""
        return {"format": FORMAT, "kind": "gram", "input": fingerprint, "options": options}

    def path(self, key: dict[str, Any]) -> Path:
        """Where statistics with this key stand."""
        digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=10).hexdigest()
        return self.folder / f"{key['kind']}-{digest}"

    def load(self, key: dict[str, Any]) -> Statistics | None:
        """The statistics, or None where there are none for just this key (or they cannot be read)."""
        path = self.path(key)
        try:
            if json.loads((path / _MANIFEST).read_text())["key"] != key:
                return None
            with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
                values = {field.name: arrays[field.name] for field in fields(Statistics)}
        except (OSError, ValueError, KeyError, BadZipFile):
            return None
        values["m"] = int(values["m"])
        return Statistics(**values)

    def save(self, key: dict[str, Any], statistics: Statistics) -> Path:
        """Write under a temporary name, then rename. Errors: OutputError where the folder cannot be written."""
        path = self.path(key)
        staging = self.folder / f".{path.name}-{uuid4().hex[:8]}"
        try:
            staging.mkdir(parents=True)
            arrays: dict[str, Any] = {
                field.name: np.asarray(getattr(statistics, field.name)) for field in fields(Statistics)
            }
            np.savez(staging / "arrays.npz", **arrays)
            (staging / _MANIFEST).write_text(json.dumps({"key": key, "versions": versions()}, indent=2))
            shutil.rmtree(path, ignore_errors=True)
            os.rename(staging, path)
        except OSError as error:
            shutil.rmtree(staging, ignore_errors=True)
            raise OutputError(f"Statistics cannot be written to {self.folder}: {error}.", "Set artefacts.") from error
        return path
