"""Object storage by URL: s3://, gs:// and az://, through obstore (the extra `cloud`).

A `Remote` is a name, as a Path is one: it holds no connection and no secret, and pickled it is three strings. Each
process, workers too, opens a bucket once, with the credentials of its own environment: AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY and the
like, or the role of the machine or pod.

What one request writes is there whole or not at all. Requests that fail for the moment (5xx, connections cut, no answer
in time, bodies that end early) are made again after pauses that grow (dsel.storage.retries).
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, Literal, TypeVar, overload

from dsel.errors import OptionError, StorageError
from dsel.storage.connection import connection, obstore_module
from dsel.storage.retries import Patience, explained, no_bucket

T = TypeVar("T")

#: What tells one content of an object from another that took its place: e_tag and version.
Version = dict[str, str]

SCHEMES = ("s3", "gs", "az")

#: Read at a time from a file of a source.
READ_BYTES = 8 << 20


@dataclass(frozen=True)
class Entry:
    """One object: its key below where was listed, its size, and a tag that another content would change."""

    key: str
    size: int
    tag: str


@dataclass(frozen=True)
class Remote:
    """An object, or all objects below it, as pathlib.Path names a file or a folder. Methods are those of Path, as far
    as they are needed; nothing has to be made before something is put below it.

    Errors of all methods that ask the server: AccessError, StorageError, MissingInputError where there is no bucket.
    """

    scheme: str
    bucket: str
    key: str

    @classmethod
    def from_url(cls, url: str) -> Remote:
        """Errors: OptionError for what is not scheme://bucket/path, or holds what may be a secret."""
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        if "@" in bucket or ":" in bucket or "?" in rest:  # not repeated: it may be a password or a signature
            raise OptionError(
                f"The {scheme}:// URL holds credentials or a query.",
                "Write scheme://bucket/path; credentials come from the environment.",
            )
        parts = [part for part in key.split("/") if part]
        if not bucket or not parts or any(part in (".", "..") for part in parts):
            raise OptionError(f"{url!r} names no place in a bucket.", f"Write it as {scheme}://bucket/path.")
        return cls(scheme, bucket, "/".join(parts))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> Remote:
        return Remote(self.scheme, self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def parent(self) -> Remote:
        return Remote(self.scheme, self.bucket, str(PurePosixPath(self.key).parent))

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    def with_name(self, name: str) -> Remote:
        return Remote(self.scheme, self.bucket, str(PurePosixPath(self.key).with_name(name)))

    def absolute(self) -> Remote:
        return self

    def resolve(self) -> Remote:
        return self

    def is_relative_to(self, other: Remote) -> bool:
        here, there = PurePosixPath(self.key), PurePosixPath(other.key)
        return (self.scheme, self.bucket) == (other.scheme, other.bucket) and here.is_relative_to(there)

    def is_file(self) -> bool:
        """Whether there is an object of just this name."""
        return self.look() is not None

    def exists(self) -> bool:
        """Whether there is an object of this name, or any below it."""
        return self.is_file() or bool(self.names())

    def look(self) -> Entry | None:
        """Size and tag of the object, None where there is none."""
        obstore = obstore_module()

        try:
            meta = self._ask(lambda store: obstore.head(store, self.key))
        except FileNotFoundError:
            return None
        return _entry(self.name, meta)

    def names(self) -> set[str]:
        """What stands directly below this name."""
        obstore = obstore_module()

        found: Any = self._ask(lambda store: obstore.list_with_delimiter(store, self.key))
        keys = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        return {key[len(self.key) + 1 :] for key in keys}

    def walk(self) -> Iterator[Entry]:
        """All objects below this name."""
        obstore = obstore_module()

        head = len(self.key) + 1
        for meta in self._ask(lambda store: obstore.list(store, self.key, chunk_size=1000).collect()):
            yield _entry(meta["path"][head:], meta)

    def read_bytes(self) -> bytes:
        """Errors: FileNotFoundError where there is no such object."""
        return self.read_version()[0]

    def read_version(self) -> tuple[bytes, Version]:
        """The object and its version. Errors: FileNotFoundError."""
        obstore = obstore_module()

        def get(store: Any) -> tuple[bytes, Version]:
            found = obstore.get(store, self.key)
            return bytes(found.bytes()), _version(found.meta)

        return self._ask(get)

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> None:
        """One request: readers see what was there before, or all of `data`."""
        self.put(data)

    def put(self, data: bytes | IO[bytes], mode: Literal["overwrite", "create"] | Version = "overwrite") -> Version:
        """Write the object, at once or not at all; returns its version.

        mode: "create" where there must be none, a version where it must be that one, else TakenError. With these two
        a request is made once, and StorageError does not tell whether it was carried out.
        """
        obstore = obstore_module()
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        if mode == "overwrite":
            return self._ask(lambda store: _put(store, self.key, data))
        try:  # once only: the same again might find what it has written itself
            return _version(obstore.put(connection(self.scheme, self.bucket), self.key, data, mode=mode))
        except (AlreadyExistsError, PreconditionError):
            raise TakenError(str(self)) from None
        except Exception as error:
            raise explained(error, str(self)) from None

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object; that there is none is no error."""
        self._delete([self.key])

    def remove_tree(self) -> None:
        """Remove all objects below this name."""
        keys = [f"{self.key}/{entry.key}" for entry in self.walk()]
        if keys:
            self._delete(keys)

    @overload
    def open(self, mode: Literal["rb"]) -> IO[bytes]: ...
    @overload
    def open(self, mode: Literal["r"] = "r", *, encoding: str, newline: str | None = None) -> IO[str]: ...
    def open(self, mode: str = "r", *, encoding: str | None = None, newline: str | None = None) -> IO[Any]:
        """To read, a few megabytes at a time. Errors: FileNotFoundError."""
        found = self.look()
        if found is None:
            raise FileNotFoundError(f"There is no object {self}.")
        binary = io.BufferedReader(_Ranges(self, found), READ_BYTES)
        return binary if mode == "rb" else io.TextIOWrapper(binary, encoding=encoding, newline=newline)

    def read_range(self, start: int, stop: int, tag: str) -> bytes:
        """Bytes [start, stop) of the object with this tag; DselError where it was replaced since."""
        obstore = obstore_module()
        from obstore.exceptions import PreconditionError

        options: Any = {"range": (start, stop), **({"if_match": tag} if tag.startswith('"') else {})}
        try:
            return self._ask(lambda store: bytes(obstore.get(store, self.key, options=options).bytes()))
        except PreconditionError as error:
            raise StorageError(f"{self} was replaced while it was read.", "Start again when it is at rest.") from error

    def _delete(self, keys: list[str]) -> None:
        obstore = obstore_module()

        def delete(store: Any) -> None:
            for start in range(0, len(keys), 1000):
                try:
                    obstore.delete(store, keys[start : start + 1000])
                except FileNotFoundError as error:  # not so on S3, where what is not there counts as removed
                    if no_bucket(str(error)):
                        raise
                    for key in keys[start : start + 1000]:
                        _delete_one(store, key)

        self._ask(delete)

    def _ask(self, request: Callable[[Any], T]) -> T:
        """Make a request that may be made again."""
        patience = Patience(str(self))
        while True:
            try:
                return request(connection(self.scheme, self.bucket))
            except Exception as error:
                time.sleep(patience.after(error))


class TakenError(Exception):
    """A conditional put found another object than it was told to replace."""


class _Ranges(io.RawIOBase):
    """An object as a file that can be read anywhere; one that is replaced meanwhile is an error."""

    def __init__(self, place: Remote, found: Entry) -> None:
        self._place, self._found, self._at = place, found, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._found.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._found.size)
        if stop <= self._at:
            return 0
        data = self._place.read_range(self._at, stop, self._found.tag)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _entry(key: str, meta: Any) -> Entry:
    return Entry(key, int(meta["size"]), meta["e_tag"] or meta["last_modified"].isoformat())


def _put(store: Any, key: str, data: bytes | IO[bytes]) -> Version:
    obstore = obstore_module()

    if isinstance(data, bytes):  # one request, so that no part is left behind
        return _version(obstore.put(store, key, data, use_multipart=False))
    data.seek(0)
    return _version(obstore.put(store, key, data))


def _version(meta: Any) -> Version:
    """What a conditional put is told: some storages go by the tag, others by the version."""
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}


def _delete_one(store: Any, key: str) -> None:
    obstore = obstore_module()

    try:
        obstore.delete(store, key)
    except FileNotFoundError as error:
        if no_bucket(str(error)):
            raise
