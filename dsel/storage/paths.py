"""Where things stand: a Path, or a name in object storage. What differs between the two is here, once.

A file is replaced by a rename, an object by one request: `aside` and `write_bytes` do either, and readers see the old
content or the new. A tree of files cannot be put in place by one request where nothing can be renamed: there it is
written under a name of its own, and the file that names it is written last.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from dsel.errors import OptionError
from dsel.storage.object_store import SCHEMES, Entry, Remote
from dsel.storage.zarr_store import zarr_objects

__all__ = [
    "Entry",
    "Place",
    "Remote",
    "as_place",
    "aside",
    "drop_unfinished",
    "final_name",
    "inside",
    "look",
    "make_folder",
    "names_in",
    "new_file",
    "new_tree",
    "put_in_place",
    "sweep",
    "walk",
    "write_bytes",
    "zarr_store",
]

Place = Path | Remote


def as_place(where: str | Place) -> Place:
    """A Path (of a str, ~ is the home folder), or a Remote for s3://, gs:// and az://. Errors: OptionError for other
    URLs, and for one short of a slash, which would be a folder named s3: here."""
    if isinstance(where, Remote):
        return where
    text = str(where)
    if where == "":  # an unset variable of a shell, which would be the folder one stands in
        raise OptionError("A path is empty.", "Name a path, or an s3://, gs:// or az:// URL.")
    scheme, colon, rest = text.partition(":")
    if isinstance(where, Path):
        if colon and scheme in SCHEMES:  # Path("s3://a/b") has lost a slash
            raise OptionError(f"A {scheme}:// URL was given as a Path, which changes it.", "Give it as a str.")
        return where
    if not rest.startswith("//"):
        if colon and scheme in SCHEMES:
            raise OptionError(f"{scheme}: is followed by one slash or none.", f"Write {scheme}://bucket/path.")
        return Path(os.path.expanduser(text))
    if scheme not in SCHEMES:
        raise OptionError(f"{scheme}:// is not known.", "Use a local path, s3://, gs:// or az://.")
    return Remote.from_url(text)


def walk(folder: Place) -> Iterator[Entry]:
    """All files below, with sizes and tags (times of change, or the storage's own)."""
    if isinstance(folder, Remote):
        yield from folder.walk()
        return
    for parent, _, files in os.walk(folder):
        relative = os.path.relpath(parent, folder).replace(os.sep, "/")
        for file in files:
            status = os.stat(os.path.join(parent, file))
            yield Entry(file if relative == "." else f"{relative}/{file}", status.st_size, str(status.st_mtime_ns))


def names_in(folder: Place) -> set[str]:
    """What stands directly below; nothing where there is no folder."""
    if isinstance(folder, Remote):
        return folder.names()
    return {part.name for part in folder.iterdir()} if folder.is_dir() else set()


def look(file: Place) -> Entry:
    """Size and tag. Errors: FileNotFoundError."""
    if isinstance(file, Remote):
        found = file.look()
        if found is None:
            raise FileNotFoundError(f"There is no object {file}.")
        return found
    status = file.stat()
    return Entry(file.name, status.st_size, str(status.st_mtime_ns))


def inside(place: Place, folder: Place) -> bool:
    """Whether `place` is `folder` or lies in it."""
    if isinstance(place, Remote) or isinstance(folder, Remote):
        return isinstance(place, Remote) and isinstance(folder, Remote) and place.is_relative_to(folder)
    return place.resolve().is_relative_to(folder.resolve())


def make_folder(folder: Place) -> None:
    """With those above it. In object storage there is nothing to make."""
    if not isinstance(folder, Remote):
        folder.mkdir(parents=True, exist_ok=True)


def zarr_store(place: Place) -> Any:
    """What Zarr takes for a store. It knows nothing above `place`, where Zarr would write metadata of parents."""
    return zarr_objects(place) if isinstance(place, Remote) else place


@contextmanager
def aside(file: Place, data: bytes) -> Iterator[Any]:
    """Yields a function that puts `data` in the place of `file`, at once; up to there it is beside it, on disk."""
    if isinstance(file, Remote):
        yield lambda: file.write_bytes(data)
        return
    temporary = file.with_name(f".{file.name}-{uuid4().hex[:8]}")
    try:
        with temporary.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        yield lambda: os.replace(temporary, file)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes(file: Place, data: bytes) -> None:
    """Whole or not at all, and in the place of what was there. Errors: OSError."""
    with aside(file, data) as put:
        put()


@contextmanager
def new_file(file: Place) -> Iterator[IO[bytes]]:
    """A file to write to, flushed to disk at the end; in object storage it appears then, whole. Errors: OSError."""
    if isinstance(file, Remote):
        with tempfile.TemporaryFile() as out:
            yield out
            out.seek(0)
            file.put(out)
        return
    with file.open("wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


def new_tree(folder: Place, name: str) -> Place:
    """Where to write a tree that is to become `folder`/`name`: under another name, which nobody reads."""
    stem, dot, suffix = name.partition(".")
    token = uuid4().hex[:8]
    return folder / (f"{stem}-{token}{dot}{suffix}" if isinstance(folder, Remote) else f".{name}-{token}")


def final_name(tree: Place, name: str) -> str:
    """The name under which a tree from `new_tree` will stand."""
    return tree.name if isinstance(tree, Remote) else name


def put_in_place(tree: Place, name: str) -> None:
    """The tree takes its final name, and the place of what was there."""
    if not isinstance(tree, Remote):
        target = tree.with_name(name)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(tree, target)


def drop_unfinished(tree: Place) -> None:
    """Remove what `put_in_place` has not moved. In object storage the next writer does it (`sweep`)."""
    if not isinstance(tree, Remote):
        shutil.rmtree(tree, ignore_errors=True)


def sweep(folder: Place, name: str, keep: str | None) -> None:
    """Remove trees from `new_tree` that interrupted or replaced writers left in object storage, but for `keep`."""
    if not isinstance(folder, Remote):
        return
    stem, dot, suffix = name.partition(".")
    for top in sorted(folder.names()):
        if top.startswith(f"{stem}-") and top.endswith(f"{dot}{suffix}") and top != keep:
            (folder / top).remove_tree()
