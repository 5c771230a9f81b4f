"""Paths on disk and in object storage behind one set of functions.

`AnyPath` is a `pathlib.Path` or an `ObjectPath`. The two have most methods in common. The functions here cover the
rest, above all how to write something so that readers see the old content or the new, never a part:

- a file: on disk it is written under a temporary name and renamed, in object storage one request replaces it;
- a folder: on disk it is renamed as well. Object storage cannot rename. There the folder keeps a unique name, and the
  file that refers to it is written last.

`foreign_owner` names the owner of a file that is not this user. `latest_name` is the latest good run of a folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

from dsel.errors import OptionError
from dsel.storage.leftovers import temporary_tag
from dsel.storage.object_store import SCHEMES
from dsel.storage.object_store import FileInfo as FileInfo
from dsel.storage.object_store import ObjectPath as ObjectPath
from dsel.storage.zarr_store import complete_store, object_zarr_store

AnyPath = Path | ObjectPath
#: The URLs of repositories of Icechunk begin with it.
ICECHUNK: Final = "icechunk://"


@dataclass(frozen=True)
class RepositoryPath:
    """The folder of a repository of Icechunk, and the query of its URL, which names what is read from it."""

    folder: AnyPath
    query: str

    @classmethod
    def from_url(cls, url: str) -> RepositoryPath:
        """Return the folder and the query of an icechunk:// URL. Errors: OptionError for a place that is no path."""
        place, _, query = url.removeprefix(ICECHUNK).partition("?")
        return cls(as_path(place), query)

    def __str__(self) -> str:
        return f"{ICECHUNK}{self.folder}" + (f"?{self.query}" if self.query else "")


def as_path(path: str | AnyPath) -> AnyPath:
    """Return a Path, or an ObjectPath for an s3://, gs:// or az:// URL. In a str, ~ is the home folder.

    Raises OptionError for other URLs, and for a URL that lacks a slash: that would be a local folder named "s3:".
    """
    if isinstance(path, ObjectPath):
        return path
    if not isinstance(path, str | os.PathLike):
        raise OptionError(f"{path!r:.60} is not a path.", "Give a path, or an s3://, gs:// or az:// URL.")
    text = os.fspath(path)
    if path == "":  # an unset shell variable; as a Path it would be the current folder
        raise OptionError("A path is empty.", "Give a path, or an s3://, gs:// or az:// URL.")
    if "\0" in text or any(len(os.fsencode(part)) > 255 for part in text.split("/")) or len(os.fsencode(text)) > 4095:
        what = "has a NUL character" if "\0" in text else "is too long"
        raise OptionError(f"The path {text[:40]!r}... {what}.", "Give a path, or an s3://, gs:// or az:// URL.")
    scheme, colon, rest = text.partition(":")
    if isinstance(path, Path):
        if colon and scheme in SCHEMES:  # Path("s3://a/b") has lost a slash
            raise OptionError(f"A {scheme}:// URL was given as a Path, which changes it.", "Give it as a str.")
        return path
    if not rest.startswith("//"):
        if colon and scheme in SCHEMES:
            raise OptionError(f"{scheme}: is followed by one slash or none.", f"Write {scheme}://bucket/path.")
        return Path(os.path.expanduser(text))
    if scheme not in SCHEMES:
        more = " dsel.select and the key store of job files take icechunk://." if scheme == "icechunk" else ""
        raise OptionError(f"{scheme}:// is not supported here.", f"Use a local path, s3://, gs:// or az://.{more}")
    return ObjectPath.from_url(text)


def walk(folder: AnyPath) -> Iterator[FileInfo]:
    """Yield all files below `folder`. The tag is the time of change, or in object storage the ETag."""
    if isinstance(folder, ObjectPath):
        yield from folder.walk()
        return
    for parent, _, files in os.walk(folder):
        relative = os.path.relpath(parent, folder).replace(os.sep, "/")
        for file in files:
            try:
                status = os.stat(os.path.join(parent, file))
            except FileNotFoundError:  # a temporary file, which another process has renamed meanwhile
                continue
            yield FileInfo(file if relative == "." else f"{relative}/{file}", status.st_size, str(status.st_mtime_ns))


def add_files(digest: Any, files: Iterable[FileInfo]) -> None:
    """Add the keys, sizes and tags of files to a digest of hashlib."""
    for file in sorted(files, key=lambda file: file.key):
        digest.update(f"{file.key}\0{file.size}\0{file.tag}\n".encode())


def list_names(folder: AnyPath) -> set[str]:
    """Return the names directly below `folder`; none if the folder does not exist."""
    if isinstance(folder, ObjectPath):
        return folder.list_names()
    return {child.name for child in folder.iterdir()} if folder.is_dir() else set()


def stat(file: AnyPath) -> FileInfo:
    """Return the size and the tag of a file. Raises FileNotFoundError."""
    if isinstance(file, ObjectPath):
        return file.stat()
    status = file.stat()
    return FileInfo(file.name, status.st_size, str(status.st_mtime_ns))


def is_inside(path: AnyPath, folder: AnyPath) -> bool:
    """Return whether `path` is `folder` or lies below it."""
    if isinstance(path, ObjectPath) or isinstance(folder, ObjectPath):
        return isinstance(path, ObjectPath) and isinstance(folder, ObjectPath) and path.is_relative_to(folder)
    # Not Path.resolve: it raises for links that form a loop.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def make_folder(folder: AnyPath) -> None:
    """Create a folder and its parents. Object storage has no folders, so there it does nothing."""
    if not isinstance(folder, ObjectPath):
        folder.mkdir(parents=True, exist_ok=True)


def zarr_store(path: AnyPath, *, complete: bool = False) -> Any:
    """Return a store of Zarr rooted at `path`, so that Zarr writes no metadata above it.

    If it is complete, to be read only, then reading an absent chunk raises LostChunkError.
    """
    from zarr.storage import LocalStore

    store = object_zarr_store(path) if isinstance(path, ObjectPath) else LocalStore(path, read_only=complete)
    return complete_store()(store) if complete else store


def described_array(path: AnyPath, metadata: Mapping[str, Any], *, complete: bool = False) -> Any:
    """Return the Zarr array at `path` with these metadata: its zarr.json is neither read nor written."""
    import zarr
    from zarr.storage import StorePath

    return zarr.Array.from_dict(StorePath(zarr_store(path, complete=complete)), dict(metadata))


@contextmanager
def staged_write(file: AnyPath, data: bytes) -> Iterator[Callable[[], None]]:
    """Write `data` to a temporary file on disk, and yield a function that puts it in the place of `file`.

    In object storage nothing is written before the function is called. Raises OSError.
    """
    if isinstance(file, ObjectPath):
        yield lambda: file.write_bytes(data)
        return
    with _temporary_file(file, data) as temporary:
        yield lambda: os.replace(temporary, file)


def write_bytes(file: AnyPath, data: bytes) -> None:
    """Write or replace a file; readers see the old content or the new. Raises OSError."""
    with staged_write(file, data) as publish:
        publish()


def write_files(folder: AnyPath, files: Mapping[str, bytes]) -> None:
    """Write files into a folder that nobody reads yet: one request each in object storage. Raises OSError."""
    for key, data in files.items():
        file = folder / key
        make_folder(file.parent)
        file.write_bytes(data)


def create_file(file: AnyPath, data: bytes) -> bool:
    """Write a new file; return False if it exists already. Of several callers, one succeeds. Raises OSError.

    NFS, too, creates hard links atomically. A file system without hard links shows the file empty for a moment.
    """
    if isinstance(file, ObjectPath):
        return file.create(data)
    with _temporary_file(file, data) as temporary:
        try:
            os.link(temporary, file)
        except FileExistsError:  # NFS also says so if its first answer was lost and it repeated the request
            return temporary.stat().st_nlink == 2
        except OSError:
            try:
                with file.open("xb") as out:
                    out.write(data)
            except FileExistsError:
                return False
    return True


@contextmanager
def _temporary_file(file: Path, data: bytes) -> Iterator[Path]:
    """Yield a file with `data` in the folder of `file`, flushed to disk; remove it at the end if it is still there."""
    temporary = file.with_name(f".{file.name}-{temporary_tag()}")
    try:
        with _named(file), temporary.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Raise the OSErrors of the block with the name of `file` in place of the temporary name."""
    try:
        yield
    except OSError as error:
        error.filename = str(file)
        raise


@contextmanager
def open_for_writing(file: AnyPath) -> Iterator[IO[bytes]]:
    """Open a file for writing; flush it to disk at the end. An object appears at the end, complete. Raises OSError."""
    if isinstance(file, ObjectPath):
        with tempfile.TemporaryFile() as out:
            yield out
            file.upload(out)
        return
    with file.open("wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


def staging_tree(folder: AnyPath, name: str) -> AnyPath:
    """Return a unique path in `folder` at which to write a tree that will be published as `name`."""
    stem, dot, suffix = name.partition(".")
    if isinstance(folder, ObjectPath):
        return folder / f"{stem}-{uuid4().hex[:8]}{dot}{suffix}"
    return folder / f".{name}-{temporary_tag()}"


def published_name(tree: AnyPath, name: str) -> str:
    """Return the name that `publish_tree` gives to a tree: `name`, or in object storage its unique name."""
    return tree.name if isinstance(tree, ObjectPath) else name


def publish_tree(tree: AnyPath, name: str) -> None:
    """Rename a tree to `name` and replace what had that name. In object storage it keeps its unique name."""
    if not isinstance(tree, ObjectPath):
        target = tree.with_name(name)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(tree, target)


def discard_tree(tree: AnyPath) -> None:
    """Remove a tree that was not published. In object storage the next writer does it (`remove_stale`)."""
    if not isinstance(tree, ObjectPath):
        shutil.rmtree(tree, ignore_errors=True)


def remove_stale(folder: AnyPath, name: str, names: Iterable[str], keep: str | None) -> None:
    """Remove trees called `name` that earlier writers left in object storage, except the one called `keep`.

    names: those in the folder.
    """
    if not isinstance(folder, ObjectPath):
        return
    stem, dot, suffix = name.partition(".")
    for found in sorted(names):
        if found.startswith(f"{stem}-") and found.endswith(f"{dot}{suffix}") and found != keep:
            (folder / found).remove_tree()


def foreign_owner(path: AnyPath) -> str | None:
    """Return the name of the other user who owns a file, or None if that is this user or root.

    Object storage does not say who wrote a file, and what does not exist has no owner: None.
    """
    if isinstance(path, ObjectPath):
        return None
    try:
        owner = os.stat(path).st_uid
    except FileNotFoundError:
        return None
    if owner in (os.geteuid(), 0):
        return None
    try:
        return path.owner()
    except KeyError:  # a user without a name
        return f"user {owner}"


#: The pointer to the latest good run in a folder of runs: a symbolic link on disk, a small file in object storage.
LATEST = "latest"


def point_to(folder: AnyPath, name: str) -> None:
    """Make `latest` in a folder point to the run of this name; readers find the old one or the new one.

    A disk without symbolic links gets a file with the name, as object storage does.
    """
    pointer = folder / LATEST
    if not isinstance(pointer, ObjectPath):
        temporary = pointer.with_name(f".{LATEST}-{uuid4().hex[:8]}")
        with suppress(OSError, NotImplementedError):
            temporary.symlink_to(name, target_is_directory=True)
            os.replace(temporary, pointer)
            return
    write_bytes(pointer, f"{name}\n".encode())


def latest_name(folder: AnyPath) -> str | None:
    """Return the name of the run that `latest` in a folder points to, or None if there is none."""
    pointer = folder / LATEST
    try:
        if not isinstance(pointer, ObjectPath) and pointer.is_symlink():
            return os.readlink(pointer).rstrip("/")
        return pointer.read_text().strip() or None
    except OSError:
        return None


def resolve_run(path: AnyPath) -> AnyPath:
    """Return the folder of a run: that which `latest` or a folder of runs stands for, else the path itself."""
    folder = path.parent if path.name == LATEST else path
    if path.name != LATEST and (path / "job.json").is_file():
        return path
    name = latest_name(folder)
    return path if name is None else folder / name
