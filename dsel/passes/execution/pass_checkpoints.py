"""Checkpoints of passes: what an interrupted pass has merged so far, so that the next run continues there.

Between checkpoints a pass makes a graph of as many tasks as fit into the interval. The results at the end of each are
nodes of the tree of merges (`dsel.passes.execution.waves`), so the result of a pass that was interrupted has the
same bits. A folder holds a file for each node, at most FAN_IN - 1 of a level, and `state.json`, which is written last.

Partial results as files: one NumPy archive holds a header, the structure of a value, and its arrays.

A file appears whole or not at all. Nothing in it is code, so that reading one that somebody else wrote is safe.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from scipy.linalg.lapack import dtpttr, dtrttp

from dsel._lib.damage import DamagedFileError, warn_of_damage
from dsel._lib.npz import read_npz
from dsel._lib.versions import versions
from dsel.errors import AccessError, OutputError
from dsel.passes.data_pass import Combine, MergeTree, Node, OnDisk
from dsel.storage.json_files import read_json, write_json
from dsel.storage.paths import (
    AnyPath,
    ObjectPath,
    discard_tree,
    list_names,
    make_folder,
    open_for_writing,
    publish_tree,
    staging_tree,
)

C = TypeVar("C", bound=type[Any])

#: The classes of partial results, by name.
_CLASSES: dict[str, type[Any]] = {}
_HEADER = "header"
#: What reading a damaged file raises.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError)


def storable(kind: C) -> C:
    """Make the values of a class storable: its attributes are storable. Use it as a decorator."""
    _CLASSES[kind.__name__] = kind
    return kind


class UnstorableError(TypeError):
    """A value has a part that cannot be stored."""


class UpperTriangle:
    """Mark a square matrix of which the upper triangle alone has a meaning: half of it is stored."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix


def write_value(file: AnyPath, header: dict[str, Any], value: Any) -> None:
    """Write a value with a header in one step. The arrays are not copied.

    Raises
    ------
    UnstorableError
        If the value has a part that is no number, text, array, list, dict or `storable` object.
    OSError
        If the file cannot be written.
    """
    arrays: list[Any] = []
    text = json.dumps([header, _structure(value, arrays)])
    named = {str(i): array for i, array in enumerate(arrays)}
    staging = file if isinstance(file, ObjectPath) else staging_tree(file.parent, file.name)
    try:
        with open_for_writing(staging) as out:
            np.savez(out, **{_HEADER: np.frombuffer(text.encode(), np.uint8), **named})
        if staging != file:
            publish_tree(staging, file.name)
    except BaseException:
        if staging != file:
            staging.unlink(missing_ok=True)
        raise


def stored_bytes(value: Any) -> int:
    """Return the bytes of the arrays of a value."""
    arrays: list[Any] = []
    _structure(value, arrays)
    return sum(array.nbytes for array in arrays)


def read_value(file: AnyPath, *, with_arrays: bool = True) -> tuple[dict[str, Any], Any] | None:
    """Return header and value, or None if the file is missing or damaged. Without its arrays, the value is None."""
    try:
        return load_value(file, with_arrays=with_arrays)
    except (OSError, AccessError):
        return None
    except DAMAGE as error:
        warn_of_damage(file, "what it held is computed again", error)
        return None


def load_value(file: AnyPath, *, with_arrays: bool = True) -> tuple[dict[str, Any], Any]:
    """Return header and value. Errors: OSError, AccessError, and `DAMAGE` for a file that is not what was written."""
    with file.open("rb") as source:
        found = read_npz(source, None if with_arrays else (_HEADER,))
    header, structure = json.loads(found[_HEADER].tobytes())
    return dict(header), _value(structure, found) if with_arrays else None


def _structure(value: Any, arrays: list[Any]) -> Any:
    """Return a value as JSON, with the numbers of the arrays in it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, UpperTriangle):
        arrays.append(dtrttp(value.matrix, uplo="U")[0])
        return {"upper": len(arrays) - 1, "size": value.matrix.shape[0]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_structure(one, arrays) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[_structure(key, arrays), _structure(one, arrays)] for key, one in value.items()]}
    if _CLASSES.get(type(value).__name__) is type(value):
        parts = value.stored_parts() if hasattr(value, "stored_parts") else vars(value)
        return {"object": type(value).__name__, "parts": _structure(dict(parts), arrays)}
    raise UnstorableError(f"A {type(value).__name__} cannot be stored.")


def _value(structure: dict[str, Any], arrays: Any) -> Any:
    if "value" in structure:
        return structure["value"]
    if "array" in structure:
        return arrays[str(structure["array"])]
    if "upper" in structure:
        return dtpttr(structure["size"], arrays[str(structure["upper"])], uplo="U")[0]
    if "list" in structure:
        return [_value(one, arrays) for one in structure["list"]]
    if "tuple" in structure:
        return tuple(_value(one, arrays) for one in structure["tuple"])
    if "dict" in structure:
        return {_value(key, arrays): _value(one, arrays) for key, one in structure["dict"]}
    found = object.__new__(_CLASSES[structure["object"]])
    found.__dict__.update(_value(structure["parts"], arrays))
    if hasattr(type(found), "consistent") and not found.consistent:
        raise DamagedFileError("the shapes of its arrays do not fit together")
    return found


log = logging.getLogger("dsel")

_STATE = "state.json"
#: Passes that take less are not saved when they are complete: on disk, and in object storage.
_SHORT_SECONDS, _SHORT_OBJECT_SECONDS = 1.0, 10.0


@dataclass
class PassCheckpoints:
    """Where passes save what they have merged so far, and how often.

    Parameters
    ----------
    folder : Path or ObjectPath
        A separate folder.
    seconds : float
        The time between checkpoints.
    require : callable
        Raises if the folder may no longer be written. It is called before each checkpoint.
    keep : bool
        Whether the results of complete passes stay until `clear`, for a stage of several passes.
    on_save : callable
        Called after each checkpoint.
    is_clear : bool
        Whether nothing is saved there. It saves requests to object storage.
    """

    folder: AnyPath
    seconds: float
    require: Callable[[], None] = lambda: None
    keep: bool = False
    on_save: Callable[[], None] = lambda: None
    is_clear: bool = False
    saved: int = field(default=0, init=False)

    def open(self, identity: bytes, combine: Combine | None) -> SavedTree:
        """Return the tree of a pass with this identity, with what an earlier run has saved of it."""
        return SavedTree(self, hashlib.blake2b(identity, digest_size=12).hexdigest(), combine)

    def clear(self) -> None:
        """Remove all that is saved: the results of the passes are saved elsewhere."""
        if not self.is_clear:
            self.folder.remove_tree() if isinstance(self.folder, ObjectPath) else discard_tree(self.folder)
            self.is_clear = True


class SavedTree:
    """The tree of merges of one pass, and its files."""

    def __init__(self, checkpoints: PassCheckpoints, name: str, combine: Combine | None) -> None:
        self._checkpoints = checkpoints
        self._folder = checkpoints.folder / f"pass-{name}"
        self._files: set[str] = set()
        self._storable = True
        self._began = time.monotonic()
        self.tree = MergeTree(combine, self._load())

    def is_due(self) -> bool:
        """Return whether the time between checkpoints has passed."""
        return time.monotonic() - self._began >= self._checkpoints.seconds

    def save(self) -> None:
        """Write the nodes that are not saved yet, then the list of all, then remove those that are merged.

        Where it cannot be written, log a warning: the pass continues without.
        """
        if not self._storable:
            return
        self._checkpoints.require()
        self._checkpoints.is_clear = False
        names = {_name(node): node for node in self.tree.nodes}
        try:
            make_folder(self._folder)
            for name, node in names.items():
                if name not in self._files:  # a node that is not saved is in memory
                    write_value(self._folder / name, {}, node[2])
            state = {"versions": versions(), "nodes": [[level, first] for level, first, _ in self.tree.nodes]}
            write_json(self._folder / _STATE, state)
        except UnstorableError:
            self._storable = False
            return
        except (OSError, OutputError) as error:
            log.warning("the pass is not saved, an interrupted run starts it again: %s", error)
            return
        self.tree.nodes = [(node[0], node[1], self._on_disk(node)) for node in self.tree.nodes]
        for stale in self._files - names.keys():
            with suppress(OSError):
                (self._folder / stale).unlink(missing_ok=True)
        self._files, self._began = set(names), time.monotonic()
        self._checkpoints.saved += 1
        self._checkpoints.on_save()
        log.debug("saved a pass after %d parts", self.tree.leaves)

    def keep_result(self, seconds: float) -> None:
        """Save a complete pass that took `seconds` in this run, if results are kept and it was not short."""
        short = _SHORT_OBJECT_SECONDS if isinstance(self._folder, ObjectPath) else _SHORT_SECONDS
        if self._checkpoints.keep and seconds >= min(short, self._checkpoints.seconds):
            self.save()

    def close(self) -> None:
        """Remove the files of a complete pass, unless results are kept."""
        if self._files and not self._checkpoints.keep:
            _remove(self._folder)

    def _on_disk(self, node: Node) -> OnDisk:
        """Return a node of which no copy stays in memory."""
        if isinstance(node[2], OnDisk):
            return node[2]
        file = self._folder / _name(node)
        read = getattr(node[2], "bytes_read", 0)  # in this run; the file does not have it

        def load() -> Any:
            found = read_value(file)
            if found is None:
                raise OutputError(f"{file} was damaged or removed.", "Start the same job again.")
            value = found[1]
            if read:
                value.bytes_read = read
            return value

        return OnDisk(load)

    def _load(self) -> Iterator[Node]:
        if self._checkpoints.is_clear:
            return
        state = read_json(self._folder / _STATE, lost="the pass starts again")
        if not isinstance(state, dict) or state.get("versions") != versions():
            return
        nodes: list[Node] = []
        for level, first in state["nodes"]:
            node = (level, first, None)
            if read_value(self._folder / _name(node)) is None:
                break
            nodes.append((level, first, self._on_disk(node)))
        self._files = {_name(node) for node in nodes}
        for stale in list_names(self._folder) - self._files - {_STATE}:  # also damaged ones
            with suppress(OSError):
                (self._folder / stale).unlink(missing_ok=True)
        if nodes:
            log.info("continuing a pass that was interrupted")
        yield from nodes


def _name(node: Node) -> str:
    return f"node-{node[0]}-{node[1]}.npz"


def _remove(folder: AnyPath) -> None:
    with suppress(OSError):
        (folder / _STATE).unlink(missing_ok=True)
        folder.remove_tree() if isinstance(folder, ObjectPath) else discard_tree(folder)


#: Where passes are saved now, or None.
CURRENT: ContextVar[PassCheckpoints | None] = ContextVar("CURRENT", default=None)


@contextmanager
def checkpoint_passes(checkpoints: PassCheckpoints) -> Iterator[PassCheckpoints]:
    """Save the passes that this thread makes in the block."""
    token = CURRENT.set(checkpoints)
    try:
        yield checkpoints
    finally:
        CURRENT.reset(token)


def identity_of_pass(*parts: Any) -> bytes:
    """Return bytes that are the same for the same pass over the same data with the same arguments."""
    import cloudpickle

    return bytes(cloudpickle.dumps(parts))
