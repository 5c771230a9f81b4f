"""Object storage by URL: s3://, gs:// and az://, through obstore (the extra `cloud`).

An `ObjectPath` is only a name, as a Path is: it holds no connection and no secret, and it pickles to three strings.
Each process, workers included, opens a bucket once, with the credentials of its environment: AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY and so
on, or the role of the machine or pod.

One request writes an object completely or not at all. Requests with a temporary failure (status 5xx, a broken
connection, no answer in time, an answer that ends early) are repeated with growing delays (dsel.storage.retries).
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import IO, Any, Literal, TypeVar

from dsel.errors import OptionError, StorageError
from dsel.storage.retries import MAX_RETRIES, RetryPolicy, connection, is_missing_bucket, obstore_module

T = TypeVar("T")

SCHEMES = ("s3", "gs", "az")

#: Bytes that one request reads from a file that is read as a stream.
READ_BYTES = 8 << 20


@dataclass(frozen=True)
class FileInfo:
    """One file or object: its key relative to the listed folder, its size, and a tag that changes with the content."""

    key: str
    size: int
    tag: str


@dataclass(frozen=True)
class ObjectPath:
    """The name of an object, or of all objects below it, with the methods of pathlib.Path that dsel needs.

    All methods that send a request raise AccessError, StorageError, or MissingInputError if there is no such bucket.
    """

    scheme: str
    bucket: str
    key: str

    @classmethod
    def from_url(cls, url: str) -> ObjectPath:
        """Parse scheme://bucket/path. Raises OptionError for anything else, and if the URL may contain a secret."""
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        if "@" in bucket or ":" in bucket or "?" in rest:  # do not repeat it: it may be a password or a signature
            raise OptionError(
                f"The {scheme}:// URL contains credentials or a query.",
                "Write scheme://bucket/path; credentials come from the environment.",
            )
        parts = [part for part in key.split("/") if part]
        if not bucket or not parts or any(part in (".", "..") for part in parts):
            raise OptionError(f"{url!r} does not name a path in a bucket.", f"Write it as {scheme}://bucket/path.")
        return cls(scheme, bucket, "/".join(parts))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.scheme, self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def parent(self) -> ObjectPath:
        key = str(PurePosixPath(self.key).parent)
        return ObjectPath(self.scheme, self.bucket, "" if key == "." else key)

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    def with_name(self, name: str) -> ObjectPath:
        return ObjectPath(self.scheme, self.bucket, str(PurePosixPath(self.key).with_name(name)))

    def absolute(self) -> ObjectPath:
        return self

    def resolve(self) -> ObjectPath:
        return self

    def is_relative_to(self, other: ObjectPath) -> bool:
        here, there = PurePosixPath(self.key), PurePosixPath(other.key)
        return (self.scheme, self.bucket) == (other.scheme, other.bucket) and here.is_relative_to(there)

    def is_file(self) -> bool:
        """Return whether an object of exactly this name exists."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def exists(self) -> bool:
        """Return whether an object of this name exists, or any object below it."""
        return self.is_file() or bool(self.list_names())

    def stat(self) -> FileInfo:
        """Return size and tag of the object. Raises FileNotFoundError."""
        listed = self._listed()
        if listed is not None:
            if "" not in listed:
                raise FileNotFoundError(f"There is no object {self}.")
            return FileInfo(self.name, listed[""].size, listed[""].tag)
        return _info(self.name, self._request(lambda obstore, store: obstore.head(store, self.key)))

    def list_names(self) -> set[str]:
        """Return the names directly below this one."""
        listed = self._listed()
        if listed is not None:
            return {key.partition("/")[0] for key in listed if key}
        found: Any = self._request(lambda obstore, store: obstore.list_with_delimiter(store, self.key))
        keys = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        start = len(self.key) + 1 if self.key else 0
        return {key[start:] for key in keys}

    def walk(self) -> Iterator[FileInfo]:
        """Yield all objects below this name."""
        listed = self._listed()
        if listed is not None:
            yield from (replace(info, key=key) for key, info in listed.items() if key)
            return
        prefix = len(self.key) + 1
        for meta in self._request(lambda obstore, store: obstore.list(store, self.key, chunk_size=1000).collect()):
            yield _info(meta["path"][prefix:], meta)

    def is_listed(self) -> bool:
        """Return whether a listing answers questions about this object, without a request (`listed_once`)."""
        return self._listed() is not None

    def _listed(self) -> dict[str, FileInfo] | None:
        """Return this object and all below it by relative key, if a listing knows them; None if none does."""
        for root, found in _listings.get():
            if self.is_relative_to(root):
                own = self.key[len(root.key) + 1 :]
                start = f"{own}/" if own else ""
                below = {key[len(start) :]: info for key, info in found.items() if key.startswith(start)}
                return {**below, "": found[own]} if own in found else below
        return None

    def read_bytes(self) -> bytes:
        """Return the content of the object. Raises FileNotFoundError."""
        return self._request(lambda obstore, store: bytes(obstore.get(store, self.key).bytes()))

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, data: bytes) -> None:
        """Write or replace the object in one request."""
        self._request(lambda obstore, store: obstore.put(store, self.key, data, use_multipart=False))

    def upload(self, file: IO[bytes]) -> None:
        """Write or replace the object from a file of any size."""

        def put(obstore: Any, store: Any) -> None:
            file.seek(0)
            obstore.put(store, self.key, file)

        self._request(put)

    def create(self, data: bytes) -> bool:
        """Write a new object; return False if it exists already. Of several callers, one succeeds.

        The data must be unique to the caller. That is how it recognises its own object if an answer was lost.
        """
        obstore_module()
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self._request(lambda obstore, store: obstore.put(store, self.key, data, mode="create"))
        except (AlreadyExistsError, PreconditionError):
            with suppress(FileNotFoundError):
                return self.read_bytes() == data
            return False
        return True

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object. It is no error if it does not exist."""
        self._delete([self.key])

    def remove_tree(self) -> None:
        """Remove all objects below this name."""
        keys = [f"{self.key}/{info.key}" for info in self.walk()]
        if keys:
            self._delete(keys)

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open the object for reading; a request reads a few megabytes. Raises FileNotFoundError."""
        info = self.stat()
        if info.size <= READ_BYTES:
            return io.BytesIO(self.read_range(0, info.size, info.tag) if info.size else b"")
        return io.BufferedReader(_RangeReader(self, info), READ_BYTES)

    def read_range(self, start: int, stop: int, tag: str) -> bytes:
        """Return bytes [start, stop) of the object. Raises StorageError if it no longer has this tag."""
        obstore_module()
        from obstore.exceptions import PreconditionError

        options: Any = {"range": (start, stop), **({"if_match": tag} if tag.startswith('"') else {})}
        try:
            return self._request(lambda obstore, store: bytes(obstore.get(store, self.key, options=options).bytes()))
        except PreconditionError as error:
            raise StorageError(
                f"{self} was replaced while it was read.", "Start again when nothing writes to it."
            ) from error

    def _delete(self, keys: list[str]) -> None:
        def delete(obstore: Any, store: Any, keys: list[str] = keys) -> None:
            for start in range(0, len(keys), 1000):
                try:
                    obstore.delete(store, keys[start : start + 1000])
                except FileNotFoundError as error:  # S3 counts a missing object as removed; others do not
                    if is_missing_bucket(str(error)):
                        raise
                    for key in keys[start : start + 1000] if len(keys) > 1 else ():
                        delete(obstore, store, [key])

        self._request(delete)

    def _request(self, request: Callable[[Any, Any], T]) -> T:
        """Send a request that is safe to repeat: a function of the module obstore and the connection."""
        obstore, hurry = obstore_module(), _hurry.get()
        policy = RetryPolicy(str(self), max_retries=0 if hurry else MAX_RETRIES)
        while True:
            try:
                return request(obstore, connection(self.scheme, self.bucket, hurried=hurry))
            except Exception as error:
                time.sleep(policy.delay_after(error))


#: Whether the requests of this context are hurried.
_hurry: ContextVar[bool] = ContextVar("hurry", default=False)


@contextmanager
def hurried() -> Iterator[None]:
    """Send each request once, and give it up after a few seconds: the storage has just failed for minutes.

    Use it for what a command does at its end, so that a server that does not answer delays the end only once.
    """
    token = _hurry.set(True)
    try:
        yield
    finally:
        _hurry.reset(token)


#: The listings that answer in this context: of each root, its objects by relative key.
_listings: ContextVar[tuple[tuple[ObjectPath, dict[str, FileInfo]], ...]] = ContextVar("listings", default=())


@contextmanager
def listed_once(root: object) -> Iterator[None]:
    """Answer all questions about which objects lie below a path from one listing, until the block ends.

    Nothing happens for a path on disk, or if a listing answers already. Use it where nothing is written.
    """
    if not isinstance(root, ObjectPath) or any(root.is_relative_to(known) for known, _ in _listings.get()):
        yield
        return
    found = {info.key: info for info in root.walk()}
    token = _listings.set((*_listings.get(), (root, found)))
    try:
        yield
    finally:
        _listings.reset(token)


@contextmanager
def ending(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` when the block ends, hurried if the block ended because storage did not answer."""
    try:
        yield
    except StorageError:
        with hurried(), suppress(StorageError):
            end()
        raise
    except BaseException:
        end()
        raise
    end()


def is_hurried() -> bool:
    """Return whether the requests of this context are hurried."""
    return _hurry.get()


class _RangeReader(io.RawIOBase):
    """An object as a seekable file. Replacing the object while it is read is an error."""

    def __init__(self, path: ObjectPath, info: FileInfo) -> None:
        self._path, self._info, self._position = path, info, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._info.size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._info.size)
        if stop <= self._position:
            return 0
        data = self._path.read_range(self._position, stop, self._info.tag)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _info(key: str, meta: Any) -> FileInfo:
    return FileInfo(key, int(meta["size"]), meta["e_tag"] or meta["last_modified"].isoformat())
