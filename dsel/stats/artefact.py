"""Statistics on disk: written whole or not at all, named by everything they depend on, reused when nothing changed."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import fields
from typing import Any

import numpy as np

from dsel.errors import AccessError, StorageError
from dsel.places import Place, Remote, drop_unfinished, make_folder, new_file, new_tree, put_in_place
from dsel.stats.statistics import Statistics
from dsel.versions import versions

log = logging.getLogger("dsel")

FORMAT = 1
_MANIFEST = "manifest.json"


class ArtefactStore:
    """A folder of statistics. A name is the digest of the manifest's `key`: format, input fingerprint, options.

    On disk they appear by a rename. In object storage they appear with the manifest, which is written last; what is
    beside it may be written again at any time, for statistics of the same key are the same to the bit.
    """

    def __init__(self, folder: Place) -> None:
        self.folder = folder

    @staticmethod
    def key(fingerprint: str, **options: Any) -> dict[str, Any]:
        """What the statistics depend on."""
        return {"format": FORMAT, "kind": "gram", "input": fingerprint, "options": options}

    def path(self, key: dict[str, Any]) -> Place:
        """Where statistics with this key stand."""
        digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=10).hexdigest()
        return self.folder / f"{key['kind']}-{digest}"

    def load(self, key: dict[str, Any]) -> Statistics | None:
        """The statistics, or None where there are none for just this key (or they cannot be read)."""
        path = self.path(key)
        try:
            if json.loads((path / _MANIFEST).read_text())["key"] != key:
                return None
            with (path / "arrays.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                values = {field.name: arrays[field.name] for field in fields(Statistics)}
            found = Statistics(**{**values, "m": int(values["m"])})
        except StorageError:
            raise
        except Exception:  # damaged bytes raise nearly anything: zlib.error, NotImplementedError, struct.error
            return None
        return found if _consistent(found) else None

    def save(self, key: dict[str, Any], statistics: Statistics) -> Place | None:
        """Write them whole or not at all; what another process saved meanwhile stays.

        A folder that cannot be written costs the next run a pass, not this one its result: a warning, and None.
        """
        path = self.path(key)
        staging = path if isinstance(path, Remote) else new_tree(self.folder, path.name)
        try:
            make_folder(staging)
            arrays: dict[str, Any] = {
                field.name: np.asarray(getattr(statistics, field.name)) for field in fields(Statistics)
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


def _consistent(s: Statistics) -> bool:
    """Whether the arrays belong together: n columns, N targets (B has none where Y = X)."""
    n, N = s.mean_x.size, s.mean_y.size
    x, y = (s.mean_x, s.constant), (s.mean_y, s.yy, s.constant_y)
    vectors = all(v.shape == (n,) for v in x) and all(v.shape == (N,) for v in y)
    return s.m > 0 and vectors and s.K.shape == (n, n) and s.B.shape == (n, N)
