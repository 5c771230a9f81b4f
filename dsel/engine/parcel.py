"""What tasks need of a search or a proof: pickled here, and opened by workers alone.

A user's function lies in a module that the scheduler or a worker may lack. The scheduler only passes the bytes on, so
it needs no such module. A worker that cannot open them says which module fails, and where.

A large value is sent to workers in pieces of a few MiB, each a task in a small graph, rather than inside one graph. The
scheduler keeps the pieces as it keeps any task, so a piece that is lost with its worker is made again. A value that is
scattered would be lost.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any
from uuid import uuid4

import cloudpickle

from dsel.errors import ClusterError, CriterionError, DselError
from dsel.search.pareto.evaluations import cannot_travel

#: Seconds in which the processes of a cluster have to answer.
_ANSWER_SECONDS = 20

#: A module, and what is taken from it ("" for the module itself).
Name = tuple[str, str]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler that keeps arrays apart from the bytes, and notes what must be imported to open them."""

    def __init__(self) -> None:
        self.file, self.buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        self.names: dict[Name, None] = {}
        super().__init__(self.file, protocol=5, buffer_callback=self.buffers.append)

    def reducer_override(self, obj: Any) -> Any:
        """Note where a function, a class or the class of an object is imported from."""
        if isinstance(obj, ModuleType):
            self.names[obj.__name__, ""] = None
        else:
            named = obj if hasattr(obj, "__qualname__") else type(obj)
            name = (str(named.__module__), named.__qualname__)
            if name[0] != "__main__" and _reached(name) is named:  # otherwise its code is in the bytes
                self.names[name] = None
        return super().reducer_override(obj)


def _pickled(value: Any) -> _Pickler:
    pickler = _Pickler()
    try:
        pickler.dump(value)
    except Exception as error:  # of any kind: objects say themselves how they are pickled
        raise cannot_travel(error) from error
    return pickler


def _reached(name: Name) -> Any:
    """Return what has this name, or None if its module was not imported or has no such name."""
    reached: Any = sys.modules.get(name[0])
    for step in filter(None, name[1].split(".")):
        reached = getattr(reached, step, None)
    return reached


class Parcel:
    """A pickled value, which a worker opens once for all its tasks.

    Parameters
    ----------
    value : Any
        What tasks take. It must be picklable.

    Raises
    ------
    CriterionError
        If it is not.
    """

    def __init__(self, value: Any) -> None:
        pickler = _pickled(value)
        self._bytes, self._buffers, self._names = pickler.file.getvalue(), pickler.buffers, [*pickler.names]
        self._close()

    def _close(self) -> None:
        self._lock, self._value = threading.Lock(), None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffers": [pickle.PickleBuffer(b) for b in self._buffers], "_lock": 0, "_value": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._close()

    def open(self) -> Any:
        """Return the value.

        Raises
        ------
        CriterionError
            If a module that it needs cannot be imported here, with the module and the worker.
        """
        with self._lock:
            if self._value is None:
                try:
                    self._value = pickle.loads(self._bytes, buffers=self._buffers)
                except (Exception, SystemExit) as error:  # a module's own code may raise anything
                    why = first_failure(self._names) or f"cannot read what the tasks need: {_text(error)}"
                    raise _unreadable(_here(), why) from error
        return self._value


class Shipment:
    """A value for the tasks of one search or proof: a future of its `Parcel`, which is sent again if it is lost.

    Parameters
    ----------
    client : distributed.Client
        The client that submits the tasks.
    value : Any
        What the tasks take. It must be picklable.
    """

    def __init__(self, client: Any, value: Any) -> None:
        self.value, self._client, self._parcel = value, client, Parcel(value)
        self._future: Any = None

    @property
    def future(self) -> Any:
        """The future of the parcel. The errors of `require_code` are raised if it cannot arrive."""
        if self._future is not None and self._future.status == "error":
            self.require_readable(self._future.exception())
        if self._future is None or self._future.status in ("cancelled", "lost", "error"):
            self._future = self._client.submit(_same, self._parcel, pure=False)
        return self._future

    def require_readable(self, error: BaseException | None) -> None:
        """Raise an error if that of a task says that the scheduler or a worker cannot read the tasks."""
        if isinstance(error, DselError):
            raise error
        if is_unreadable(error):
            require_code(self._client, self.value)
            raise ClusterError(f"The tasks cannot be read where they run: {error}") from error

    def release(self) -> None:
        """Let the workers forget the parcel."""
        self._future = None


def require_code(client: Any, value: Any, *, scheduler: bool = False) -> None:
    """Raise an error unless all workers of a client can import what a value needs.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.
    value : Any
        What tasks take, such as a criterion. Of its data nothing is sent.
    scheduler : bool
        Whether the scheduler reads the value, too. Otherwise it needs dsel alone.

    Raises
    ------
    CriterionError
        If a module cannot be imported somewhere, with the module and the place.
    """
    names = [*_pickled(value).names]
    with suppress(TimeoutError, OSError):  # a process that does not answer is another matter
        ask = {"on_error": "return", "callback_timeout": _ANSWER_SECONDS}
        answers = client.sync(client._run, first_failure, names, **ask)
        _require_none({f"Worker {address}": answer for address, answer in answers.items()})
        try:
            ask = {"callback_timeout": _ANSWER_SECONDS}
            answer = client.sync(client._run_on_scheduler, first_failure, names if scheduler else [], **ask)
        except (ImportError, AttributeError) as error:
            answer = error
        _require_none({"The scheduler": answer})


def is_unreadable(error: BaseException | None) -> bool:
    """Return whether this may be the error of a scheduler or a worker that cannot import what a task needs."""
    return isinstance(error, ImportError | AttributeError) or "deserialization" in str(error)


def first_failure(names: Sequence[Name]) -> str | None:
    """Return which of the names cannot be imported in this process, and why; None if all can."""
    for module, name in names:
        try:
            import_module(module)
        except (Exception, SystemExit) as error:
            return f"cannot import the module {module!r}: {_text(error)}"
        if name and _reached((module, name)) is None:
            return f"has a module {module!r} without {name!r}"
    return None


def _require_none(answers: dict[str, Any]) -> None:
    for place, answer in answers.items():
        if isinstance(answer, Exception) and not isinstance(answer, OSError | TimeoutError):
            # It cannot read the function that was sent, which is one of dsel.
            answer = f"cannot import the module {getattr(answer, 'name', None) or 'dsel'!r}: {_text(answer)}"
        if isinstance(answer, str):
            raise _unreadable(place, answer)


def _unreadable(place: str, why: str) -> CriterionError:
    return CriterionError(
        f"{place} {why}.",
        "The cluster needs the same modules as this process: install them there, add their folder to PYTHONPATH, or "
        "send a file with client.upload_file.",
    )


def _same(parcel: Parcel) -> Parcel:
    return parcel


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _here() -> str:
    from distributed import get_worker

    try:
        return f"Worker {get_worker().address}"
    except ValueError:
        return "This process"


#: Bytes of values that are sent with a graph, at most, and of a piece.
MOST_WITH_GRAPH = 2 << 20


def send_in_pieces(client: Any, value: Any, name: str, kept: list[Any], of: int = 1) -> Any:
    """Return a delayed object with the value, which workers assemble from pieces that they have.

    Parameters
    ----------
    client : distributed.Client
        The client of the workers.
    value : Any
        What to send. It must be picklable.
    name : str
        The unique name of the delayed object.
    kept : list
        It gets the pieces. They must exist as long as the value is needed.
    of : int
        How many values of about this size one graph takes.
    """
    from dask.delayed import delayed

    outside: list[pickle.PickleBuffer] = []
    parts: list[Any] = [
        pickle.dumps(value, protocol=5, buffer_callback=outside.append),
        *(buffer.raw() for buffer in outside),
    ]
    if of * sum(map(len, parts)) <= MOST_WITH_GRAPH:
        return delayed(value, name=name, traverse=False)
    token, pieces = uuid4().hex[:8], []
    for i, part in enumerate(parts):
        whole = memoryview(part)
        cuts = [bytes(whole[at : at + MOST_WITH_GRAPH]) for at in range(0, len(whole), MOST_WITH_GRAPH)]
        of_part = [
            delayed(bytes, pure=False)(cut, dask_key_name=f"{name}-{token}-{i}-{j}") for j, cut in enumerate(cuts)
        ]
        pieces.append([client.persist(one) for one in of_part])  # one message each
    kept.extend(pieces)
    return delayed(_assembled, pure=False)(pieces, dask_key_name=name)


def _assembled(pieces: list[list[bytes]]) -> Any:
    first, *buffers = (bytearray().join(part) for part in pieces)  # arrays of a bytearray can be written
    return pickle.loads(first, buffers=buffers)
