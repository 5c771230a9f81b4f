"""Where a store is built, and the one step that publishes it.

On disk, in a folder beside it, and a rename:

    STORE.ingesting/progress.json   what is being written (source, options, chunks) and how many rows are done
    STORE.ingesting/store/          the Zarr group
    STORE.ingesting/replaced/       for a moment: the old store that is being overwritten
    STORE.ingesting/lock            held by the process that writes

In object storage nothing can be renamed. There the arrays are written where they are to be, and last STORE/zarr.json,
without which there is no store; STORE.ingesting/ holds progress.json and the lock. An old store that is
overwritten is gone from the moment the new one is begun.

STORE appears only when everything is in it. Whatever is interrupted, at whatever moment, the progress file
says how far the group can be trusted.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from dsel.data.schema import METADATA_FILE, X, staging_path
from dsel.errors import CapacityError, DselError, OutputError
from dsel.storage.bucket_lock import BucketLockFile
from dsel.storage.json_files import read_json, write_json
from dsel.storage.locks import locked
from dsel.storage.paths import Place, Remote

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLEARED = {"key": None, "rows": 0}


def staging_of(store: Place) -> Staging | BucketStaging:
    """The unfinished form of the store `store`."""
    return BucketStaging(store) if isinstance(store, Remote) else Staging(store)


@dataclass(frozen=True)
class Staging:
    """On disk."""

    store: Path

    @property
    def folder(self) -> Path:
        return self.store.with_name(staging_path(self.store).name)

    @property
    def scratch(self) -> Path:
        """A local folder for temporary files."""
        return self.folder

    @property
    def group(self) -> Path:
        """The Zarr group that becomes the store."""
        return self.folder / "store"

    @property
    def progress_file(self) -> Path:
        return self.folder / "progress.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold its lock, which goes with the process, however that ends.

        On the way out the folder is removed if there is nothing in it to go on from.
        Errors: OutputError when another process holds the lock.
        """
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OutputError(f"Another process is writing {self.store}.", "Wait for it, or stop it.") from error
            try:
                yield
            finally:
                if self.folder.exists() and not self.progress_file.exists():
                    self.clear()
                    (self.folder / "lock").unlink()
                    with suppress(OSError):
                        self.folder.rmdir()

    def rows_done(self, key: dict[str, Any]) -> int:
        """Rows that an interrupted call with the same `key` has finished; 0 when there is none."""
        try:
            state = json.loads(self.progress_file.read_text())
        except (OSError, ValueError):
            return 0
        same = isinstance(state, dict) and state.get("key") == key
        return int(state["rows"]) if same and (self.group / X / METADATA_FILE).is_file() else 0

    def save(self, key: dict[str, Any], rows: int) -> None:
        """Replace the progress file: the first `rows` rows are in the group."""
        temporary = self.folder / "progress.tmp"
        temporary.write_text(json.dumps({"key": key, "rows": rows}, indent=1))
        temporary.replace(self.progress_file)

    def clear(self) -> None:
        """Remove what an earlier call left. Only what this module makes is touched."""
        for file in ("progress.json", "progress.tmp"):
            (self.folder / file).unlink(missing_ok=True)
        for folder in ("store", "replaced"):
            with suppress(FileNotFoundError):
                shutil.rmtree(self.folder / folder)

    def publish(self) -> None:
        """One rename makes the store appear. An old store steps aside first and is removed last."""
        if self.store.exists():
            self.store.rename(self.folder / "replaced")
        self.group.rename(self.store)
        shutil.rmtree(self.folder)


@dataclass(frozen=True)
class BucketStaging:
    """In object storage."""

    store: Remote

    @property
    def folder(self) -> Remote:
        return self.store.with_name(staging_path(self.store).name)

    @property
    def scratch(self) -> Path:
        """A local folder for temporary files."""
        return Path(tempfile.gettempdir())

    @property
    def group(self) -> Remote:
        """The Zarr group: the store itself, which is none yet."""
        return self.store

    @property
    def progress_file(self) -> Remote:
        return self.folder / "progress.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Errors: OutputError when another process holds it."""
        with locked(BucketLockFile(self.folder), uuid4().hex[:8], str(self.store)):
            try:
                yield
            finally:
                if read_json(self.progress_file) == _CLEARED and not self.store.exists():
                    self.progress_file.unlink()

    def rows_done(self, key: dict[str, Any]) -> int:
        """Rows that an interrupted call with the same `key` has finished; 0 when there is none."""
        state = read_json(self.progress_file)
        if not isinstance(state, dict) or state.get("key") != key:
            return 0
        whole = (self.store / METADATA_FILE).is_file()  # finished, and then replaced or not: nothing to go on from
        return int(state["rows"]) if not whole and (self.group / X / METADATA_FILE).is_file() else 0

    def save(self, key: dict[str, Any], rows: int) -> None:
        """Replace the progress file: the first `rows` rows are in the group."""
        write_json(self.progress_file, {"key": key, "rows": rows})

    def clear(self) -> None:
        """Remove what an earlier call left, and the store that is overwritten: what names it first. The progress file
        stays, to say whose objects these are should this be interrupted."""
        write_json(self.progress_file, _CLEARED)
        (self.store / METADATA_FILE).unlink()
        self.store.remove_tree()

    def publish(self) -> None:
        """The store is there since its zarr.json is."""
        self.progress_file.unlink()


def check_place(store: Place, overwrite: bool) -> None:
    """OutputError unless `store` can be made, or may and can be overwritten."""
    if isinstance(store, Remote):
        _check_bucket(store, overwrite)
        return
    if not store.parent.is_dir():
        raise OutputError(f"There is no folder {store.parent} to put {store.name} into.", "Make it first.")
    if not os.access(store.parent, os.W_OK | os.X_OK):
        raise OutputError(f"The folder {store.parent} is not writable.", "Change its permissions or choose another.")
    if not store.exists():
        return
    if not overwrite:
        raise OutputError(f"{store} is there already.", "Choose another name, or say overwrite.")
    if not (store / METADATA_FILE).is_file():
        raise OutputError(f"{store} is not a Zarr store, so it is not overwritten.", "Choose another name.")


def _check_bucket(store: Remote, overwrite: bool) -> None:
    if (store / METADATA_FILE).is_file():
        if not overwrite:
            raise OutputError(f"{store} is there already.", "Choose another name, or say overwrite.")
    elif store.exists() and not BucketStaging(store).progress_file.is_file():
        raise OutputError(f"{store} is not a Zarr store, so it is not overwritten.", "Choose another name.")


@contextmanager
def output_errors(store: Place) -> Iterator[None]:
    """Turn what the file system says while `store` is written into an error with a remedy."""
    try:
        yield
    except DselError:
        raise
    except OSError as error:
        if error.errno in DISK_FULL:
            raise CapacityError(
                f"The disk is full while {store} is written: {error}.",
                "Free some space; the same call goes on.",
            ) from error
        raise OutputError(f"{store} cannot be written: {error}.", "The same call goes on from here.") from error
