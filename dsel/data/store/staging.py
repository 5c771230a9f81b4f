"""Where a store is built, and the one step that publishes it.

On disk a store is built in a folder next to it, and renamed:

    STORE.ingesting/progress.json   what is written (source, options, chunks), and how many rows are complete
    STORE.ingesting/store/          the Zarr group
    STORE.ingesting/replaced/       for a moment: the old store that is overwritten
    STORE.ingesting/.lock           the lock of the process that writes

Object storage cannot rename. There the arrays are written to their final place, and STORE/zarr.json last: without it
there is no store. STORE.ingesting/ holds progress.json and the lock. An old store that is overwritten is gone when the
new one is begun.

STORE appears only when it is complete. After any interruption the progress file says which rows can be trusted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from dsel._lib.disk import DISK_FULL
from dsel.data.schema import METADATA_FILE, X, staging_path
from dsel.errors import CapacityError, DselError, OutputError
from dsel.storage.json_files import read_json, write_json
from dsel.storage.locks import Lock, locked, remove_free_folder
from dsel.storage.paths import AnyPath, ObjectPath, discard_tree

_CLEARED = {"key": None, "rows": 0}


def staging_of(store: AnyPath) -> Staging:
    """Return the staging area of the store `store`."""
    return ObjectStaging(store) if isinstance(store, ObjectPath) else Staging(store)


class Staging:
    """The unfinished form of one store: on disk, a folder next to it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        #: The Zarr group that becomes the store.
        self.group = self.folder / "store"
        #: A local folder for temporary files.
        self.scratch: Path = self.folder

    @property
    def folder(self) -> Any:
        return staging_path(self.store)

    @property
    def progress_file(self) -> Any:
        return self.folder / "progress.json"

    @contextmanager
    def locked(self) -> Iterator[Lock]:
        """Hold the lock. At the end remove all that a later call cannot continue. Raises OutputError."""
        try:
            with locked(self.folder, uuid4().hex[:8], str(self.store)) as lock:
                try:
                    if self._is_published():
                        self.forget()
                    yield lock
                finally:
                    with suppress(OutputError):  # another run may hold the lock by now
                        lock.require()
                        self.discard_unusable()
        finally:
            if not self.progress_file.exists():
                remove_free_folder(self.folder)

    def state(self) -> dict[str, Any]:
        """Return the content of the progress file; empty if there is none."""
        state = read_json(self.progress_file)
        return state if isinstance(state, dict) else {}

    def rows_done(self, key: dict[str, Any]) -> int:
        """Return the rows that an interrupted call with the same `key` has completed; 0 if there is none."""
        state = self.state()
        if state.get("key") != key or not (self.group / X / METADATA_FILE).is_file():
            return 0
        return int(state["rows"])

    def save(self, key: dict[str, Any], rows: int, **more: Any) -> None:
        """Record that the first `rows` rows are in the group, and what else a later call needs."""
        write_json(self.progress_file, {"key": key, "rows": rows, **more})

    def settle(self) -> None:
        """Remove what a call has left that was killed after the store had appeared. Errors are ignored."""
        with suppress(OSError, DselError):
            if self.folder.exists():
                with self.locked():
                    pass

    def _is_published(self) -> bool:
        """Return whether an ingest was interrupted after the store had appeared, before it forgot its progress."""
        key = self.state().get("key")
        return isinstance(key, dict) and "append" not in key and self._has_appeared()

    def clear(self) -> None:
        """Remove what an earlier call left. Only files that this module creates are removed."""
        for file in ("progress.json", "lock"):  # earlier releases locked a file called `lock`
            (self.folder / file).unlink(missing_ok=True)
        for folder in ("store", "replaced"):
            discard_tree(self.folder / folder)
            with suppress(FileNotFoundError):  # a thread may have finished its last chunk meanwhile
                shutil.rmtree(self.folder / folder)

    def publish(self) -> None:
        """One rename makes the store appear. An old store is moved away first and removed last."""
        if self.store.exists():
            self.store.rename(self.folder / "replaced")
        self.group.rename(self.store)
        self.forget()

    def _has_appeared(self) -> bool:
        """Return whether the store is what the progress file of an ingest is about."""
        return bool(self.store.exists()) and not self.group.exists()

    def forget(self) -> None:
        """Remove the progress file of a store that has appeared, and what else is left."""
        self.clear()

    def discard_unusable(self) -> None:
        """Remove what is left if no progress file says that it can be continued."""
        if not self.progress_file.exists():
            self.clear()


class ObjectStaging(Staging):
    """Objects that are already in their final place."""

    def __init__(self, store: ObjectPath) -> None:
        self.store = self.group = store
        self.scratch = Path(tempfile.gettempdir())

    def rows_done(self, key: dict[str, Any]) -> int:
        is_complete = (self.store / METADATA_FILE).is_file()  # then there is nothing to continue
        return 0 if is_complete else super().rows_done(key)

    def clear(self) -> None:
        """Remove the objects of an earlier call or of the store that is overwritten, its metadata first.

        The progress file stays. If this is interrupted, it says that the objects left may be removed.
        """
        write_json(self.progress_file, _CLEARED)
        (self.store / METADATA_FILE).unlink()
        self.store.remove_tree()

    def publish(self) -> None:
        """Remove the progress file. The store appeared when its zarr.json was written."""
        self.forget()

    def _has_appeared(self) -> bool:
        return bool((self.store / METADATA_FILE).is_file())  # an ingest that replaces a store removes it first

    def forget(self) -> None:
        self.progress_file.unlink()

    def discard_unusable(self) -> None:
        if read_json(self.progress_file) == _CLEARED and not self.store.exists():
            self.progress_file.unlink()


def check_place(store: AnyPath, overwrite: bool) -> None:
    """Raise OutputError unless `store` can be created, or may and can be overwritten."""
    if not isinstance(store, ObjectPath):
        if not store.parent.is_dir():
            raise OutputError(f"There is no folder {store.parent} to put {store.name} into.", "Create it first.")
        if not os.access(store.parent, os.W_OK | os.X_OK):
            raise OutputError(
                f"The folder {store.parent} is not writable.", "Change its permissions or choose another one."
            )
    if (store / METADATA_FILE).is_file() or (isinstance(store, Path) and store.exists() and not overwrite):
        if not overwrite:
            staging_of(store).settle()
            raise OutputError(f"{store} exists already.", "Choose another name, or allow overwriting (overwrite).")
    elif store.exists() and (isinstance(store, Path) or not staging_of(store).progress_file.is_file()):
        raise OutputError(f"{store} is not a Zarr store, so it is not overwritten.", "Choose another name.")


@contextmanager
def output_errors(store: AnyPath) -> Iterator[None]:
    """Translate errors of the file system while `store` is written into errors with a remedy."""
    try:
        yield
    except DselError:
        raise
    except OSError as error:
        if error.errno in DISK_FULL:
            raise CapacityError(
                f"The disk is full while {store} is written: {error}.", "Free some space; the same call continues."
            ) from error
        raise OutputError(f"{store} cannot be written: {error}.", "The same call continues from here.") from error
