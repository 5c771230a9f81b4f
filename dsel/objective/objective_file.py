"""A quadratic objective as a file that workers open once: named by the digest of its numbers."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel.errors import ClusterError, OutputError
from dsel.objective.dense import QuadraticObjective
from dsel.storage.paths import Place, make_folder, write_bytes

#: Objectives opened in this process, by digest: the last one only, for they are large, and no longer than its search.
_opened: dict[str, QuadraticObjective] = {}


@dataclass(frozen=True)
class StoredObjective:
    """Where the arrays stand (.npz), and their digest."""

    place: Place
    digest: str

    def open(self) -> QuadraticObjective:
        """The objective, read the first time it is asked for in this process. Errors: ClusterError."""
        if self.digest not in _opened:
            try:
                with self.place.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                    found = _restored(dict(arrays))
            except (OSError, ValueError, KeyError) as error:
                raise ClusterError(
                    f"A worker cannot read the objective at {self.place}: {error}.",
                    "Put the folder of the result on a file system that the workers share.",
                ) from error
            _opened.clear()
            _opened[self.digest] = found
        return _opened[self.digest]


def let_go_of(digest: str) -> None:
    """Let go of an objective that this process has opened, if it has."""
    _opened.pop(digest, None)


def store_objective(objective: QuadraticObjective, folder: Place) -> StoredObjective:
    """Write it, whole or not at all; the same objective is written once. M is written too where the searches use it.
    Errors: OutputError, those of `Remote` in object storage."""
    digest = digest_of(objective)
    place = folder / f"objective-{digest}.npz"
    if not place.exists():
        arrays = io.BytesIO()
        np.savez(arrays, **_arrays(objective))
        try:
            make_folder(folder)
            write_bytes(place, arrays.getvalue())
        except OSError as error:
            raise OutputError(f"{place} cannot be written: {error.strerror}.", "Name another folder.") from error
    return StoredObjective(place.absolute(), digest)


def digest_of(objective: QuadraticObjective) -> str:
    """Of everything that f depends on."""
    digest = hashlib.blake2b(digest_size=10)
    for name, array in _arrays(objective).items():
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _arrays(objective: QuadraticObjective) -> dict[str, Any]:
    arrays = {
        "K": objective.K, "columns": objective.columns, "scale": objective.scale,
        "included": np.asarray(objective.included, np.int64),
        "scalars": np.array([objective.c, objective.lam, objective.total, objective.tolerance]),
    }  # fmt: skip
    if objective.factored:
        return {**arrays, "cross": objective.cross}
    return {**arrays, "moments": objective.M}


def _restored(arrays: dict[str, Any]) -> QuadraticObjective:
    c, lam, total, tolerance = (float(x) for x in arrays["scalars"])
    return QuadraticObjective(
        K=arrays["K"], cross=arrays.get("cross"), c=c, lam=lam, columns=arrays["columns"],
        included=tuple(int(j) for j in arrays["included"]), scale=arrays["scale"], total=total, tolerance=tolerance,
        moments=arrays.get("moments"),
    )  # fmt: skip
