"""An objective as a file that workers read once, named by the digest of its numbers."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.damage import DamagedFileError, warn_of_damage
from dsel._lib.npz import pack_npz, read_npz
from dsel.errors import ClusterError, OutputError
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_interface import Objective
from dsel.storage.paths import AnyPath, make_folder, write_bytes

#: Objectives read in this process, by digest. They are large: only the last one is kept, no longer than its search.
_loaded: dict[str, DenseObjective] = {}
#: Of several threads that need an objective, one reads it, and the others wait.
_lock = threading.Lock()


@dataclass(frozen=True)
class ObjectiveFile:
    """The place of the arrays (.npz), and their digest."""

    place: AnyPath
    digest: str

    def load(self) -> DenseObjective:
        """Return the objective; the file is read on the first call in this process. Errors: ClusterError."""
        with _lock:
            found = _loaded.get(self.digest)
            if found is None:
                found = _from_arrays(read_arrays(self.place))
                _loaded.clear()
                _loaded[self.digest] = found
        return found


def unload(digest: str) -> None:
    """Release the memory of an objective that this process has read, if it has."""
    _loaded.pop(digest, None)  # without the lock: a worker calls this where it must not wait for a file


def write_arrays(place: AnyPath, arrays: dict[str, Any]) -> None:
    """Write arrays, completely or not at all, and their folder where it is missing. Errors: OutputError."""
    try:
        make_folder(place.parent)
        write_bytes(place, pack_npz(arrays))
    except OSError as error:
        raise OutputError(f"{place} cannot be written: {error.strerror}.", "Name another folder.") from error


def read_arrays(place: AnyPath) -> dict[str, Any]:
    """Return the arrays of a file that the client has written. Errors: ClusterError."""
    try:
        with place.open("rb") as file:
            return read_npz(file)
    except DamagedFileError as error:
        raise ClusterError(f"{place} is damaged: {error}.", "Start the same job again: it writes the file.") from error
    except OSError as error:
        raise ClusterError(
            f"A worker cannot read {place}: {error}.",
            "Put the folder of the result on a file system that the workers share, or set search_on: client.",
        ) from error


def save_objective(objective: Objective, folder: AnyPath) -> ObjectiveFile:
    """Write an objective, completely or not at all; the same objective is written once.

    M is written, too, where the searches use it. Errors: OutputError, and those of `ObjectPath` in object storage.
    """
    arrays = _to_arrays(objective)
    digest = _digest(arrays)
    place = folder / f"objective-{digest}.npz"
    if not _is_saved(place, digest):
        write_arrays(place, arrays)
    return ObjectiveFile(place.absolute(), digest)


def _is_saved(place: AnyPath, digest: str) -> bool:
    """Return whether an earlier run has left the file, and it is whole."""
    try:
        with place.open("rb") as file:
            if _digest(read_npz(file)) == digest:
                return True
        warn_of_damage(place, "it is written again", "its numbers are other ones")
    except FileNotFoundError:
        pass
    except (OSError, DamagedFileError) as error:
        warn_of_damage(place, "it is written again", error)
    return False


def _digest(arrays: dict[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=10)
    for name, array in arrays.items():
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _to_arrays(objective: Objective) -> dict[str, Any]:
    arrays = {
        "K": objective.K, "columns": objective.columns, "scale": objective.scale,
        "included": np.asarray(objective.included, np.int64),
        "scalars": np.array([objective.c, objective.lam, objective.total, objective.tolerance]),
    }  # fmt: skip
    if objective.few_targets:
        return {**arrays, "cross": objective.cross}
    return {**arrays, "moments": objective.M}


def _from_arrays(arrays: dict[str, Any]) -> DenseObjective:
    c, lam, total, tolerance = (float(x) for x in arrays["scalars"])
    return DenseObjective(
        K=arrays["K"], cross=arrays.get("cross"), c=c, lam=lam, columns=arrays["columns"],
        included=tuple(int(j) for j in arrays["included"]), scale=arrays["scale"], total=total, tolerance=tolerance,
        moments=arrays.get("moments"),
    )  # fmt: skip
