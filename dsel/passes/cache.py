"""Statistics on disk: written whole or not at all, named by everything they depend on, reused when nothing changed."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import fields
from typing import Any

import numpy as np

from dsel._lib.versions import versions
from dsel.errors import AccessError, StorageError
from dsel.passes.column_factor import ColumnStatistics
from dsel.passes.statistics import Statistics
from dsel.storage.paths import Place, Remote, drop_unfinished, make_folder, new_file, new_tree, put_in_place

log = logging.getLogger("dsel")

FORMAT = 2
_MANIFEST = "manifest.json"
_KINDS: dict[str, type[Any]] = {"gram": Statistics, "columns": ColumnStatistics}


class ArtefactStore:
    """A folder of statistics. A name is the digest of the manifest's `key`: format, input fingerprint, options.

    On disk they appear by a rename. In object storage they appear with the manifest, which is written last; what is
    beside it may be written again at any time, for statistics of the same key are the same to the bit.
    """

    def __init__(self, folder: Place) -> None:
        self.folder = folder

    @staticmethod
    def key(fingerprint: str, kind: str = "gram", **options: Any) -> dict[str, Any]:
        """What the statistics depend on. kind: gram (Statistics), columns (ColumnStatistics)."""
        return {"format": FORMAT, "kind": kind, "input": fingerprint, "options": options}

    def path(self, key: dict[str, Any]) -> Place:
        """Where statistics with this key stand."""
        digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=10).hexdigest()
        return self.folder / f"{key['kind']}-{digest}"

    def has(self, key: dict[str, Any]) -> bool:
        """Whether there seem to be statistics for just this key: their arrays are not read."""
        path = self.path(key)
        try:
            whole = bool(json.loads((path / _MANIFEST).read_text())["key"] == key)
        except (OSError, AccessError, ValueError, LookupError, TypeError):
            return False
        return whole and (path / "arrays.npz").is_file()

    def load(self, key: dict[str, Any]) -> Statistics | ColumnStatistics | None:
        """The statistics, or None where there are none for just this key (or they cannot be read)."""
        path, kind = self.path(key), _KINDS[key["kind"]]
        try:
            if json.loads((path / _MANIFEST).read_text())["key"] != key:
                return None
            with (path / "arrays.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                values = {field.name: arrays[field.name] for field in fields(kind)}
            found = kind(**{**values, "m": int(values["m"]), "weight": float(values["weight"])})
        except StorageError:
            raise
        except Exception:  # damaged bytes raise nearly anything: zlib.error, NotImplementedError, struct.error
            return None
        return found if found.consistent else None

    def save(self, key: dict[str, Any], statistics: Statistics | ColumnStatistics) -> Place | None:
        """Write them whole or not at all; what another process saved meanwhile stays.

        A folder that cannot be written costs the next run a pass, not this one its result: a warning, and None.
        """
        path = self.path(key)
        staging = path if isinstance(path, Remote) else new_tree(self.folder, path.name)
        try:
            make_folder(staging)
            arrays: dict[str, Any] = {
                field.name: np.asarray(getattr(statistics, field.name)) for field in fields(statistics)
            }
            with new_file(staging / "arrays.npz") as file:
                np.savez(file, **arrays)
            with new_file(staging / _MANIFEST) as file:
                file.write(json.dumps({"key": key, "versions": versions()}, indent=2).encode())
            self._publish(key, staging, path)
        except (OSError, AccessError, StorageError) as error:
            log.warning(
                "statistics are not saved, the next run reads the data again: %s cannot be written (%s); "
                "name another folder with artefacts", self.folder, error,
            )  # fmt: skip
            return None
        finally:
            drop_unfinished(staging)
        return path

    def _publish(self, key: dict[str, Any], staging: Place, path: Place) -> None:
        if staging == path or self.load(key) is not None:
            return
        try:
            put_in_place(staging, path.name)
        except OSError:
            if self.load(key) is None:
                raise
