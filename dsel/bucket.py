"""Object storage by URL: s3://, gs:// and az://, through obstore (the extra `cloud`).

A `Remote` is a name, as a Path is one: it holds no connection and no secret, and pickled it is three strings. Each
process, workers too, opens a bucket once, with the credentials of its own environment: AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY and the
like, or the role of the machine or pod.

What one request writes is there whole or not at all. Requests that fail for the moment (5xx, connections cut, no answer
in time, bodies that end early) are made again after pauses that grow; what remains of an error is its status and code,
never what the server wrote, for that may hold tokens.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import PurePosixPath
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, overload

from dsel.errors import AccessError, DselError, MissingExtraError, MissingInputError, OptionError, StorageError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

T = TypeVar("T")

#: What tells one content of an object from another that took its place: e_tag and version.
Version = dict[str, str]

SCHEMES = ("s3", "gs", "az")

#: A request is made at most once more than this, with pauses that double from the first to the longest.
RETRIES = 8
FIRST_PAUSE = timedelta(seconds=0.2)
LONGEST_PAUSE = timedelta(seconds=15)
#: Where it is not obstore that does it, so many times.
AGAIN = 4
#: A connection that carries nothing for so long is given up, and the request made again.
SILENCE = timedelta(seconds=60)

#: Read at a time from a file of a source.
READ_BYTES = 8 << 20

_METADATA_ADDRESS = ("169.254.169.254", 80)

#: Environment variables of which one names the credentials, the variable that allows plain http, and a remedy.
_CREDENTIALS = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
         "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE", "AWS_METADATA_ENDPOINT"),
        "AWS_ALLOW_HTTP",
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION), or give the machine or pod a role.",
    ),
    "gs": (
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH",
         "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_SKIP_SIGNATURE"),
        "GOOGLE_ALLOW_HTTP",
        "Set GOOGLE_APPLICATION_CREDENTIALS, or give the machine or pod a service account.",
    ),
    "az": (
        ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN",
         "AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_STORAGE_TOKEN",
         "AZURE_USE_AZURE_CLI", "AZURE_SKIP_SIGNATURE", "AZURE_STORAGE_USE_EMULATOR"),
        "AZURE_ALLOW_HTTP",
        "Set AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, or give the machine or pod an identity.",
    ),
}  # fmt: skip


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
        obstore = _obstore()

        try:
            meta = self._ask(lambda store: obstore.head(store, self.key))
        except FileNotFoundError:
            return None
        return _entry(self.name, meta)

    def names(self) -> set[str]:
        """What stands directly below this name."""
        obstore = _obstore()

        found: Any = self._ask(lambda store: obstore.list_with_delimiter(store, self.key))
        keys = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        return {key[len(self.key) + 1 :] for key in keys}

    def walk(self) -> Iterator[Entry]:
        """All objects below this name."""
        obstore = _obstore()

        head = len(self.key) + 1
        for meta in self._ask(lambda store: obstore.list(store, self.key, chunk_size=1000).collect()):
            yield _entry(meta["path"][head:], meta)

    def read_bytes(self) -> bytes:
        """Errors: FileNotFoundError where there is no such object."""
        return self.read_version()[0]

    def read_version(self) -> tuple[bytes, Version]:
        """The object and its version. Errors: FileNotFoundError."""
        obstore = _obstore()

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
        obstore = _obstore()
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
        obstore = _obstore()
        from obstore.exceptions import PreconditionError

        options: Any = {"range": (start, stop), **({"if_match": tag} if tag.startswith('"') else {})}
        try:
            return self._ask(lambda store: bytes(obstore.get(store, self.key, options=options).bytes()))
        except PreconditionError as error:
            raise StorageError(f"{self} was replaced while it was read.", "Start again when it is at rest.") from error

    def _delete(self, keys: list[str]) -> None:
        obstore = _obstore()

        def delete(store: Any) -> None:
            for start in range(0, len(keys), 1000):
                try:
                    obstore.delete(store, keys[start : start + 1000])
                except FileNotFoundError as error:  # not so on S3, where what is not there counts as removed
                    if _no_bucket(str(error)):
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


class Patience:
    """Whether and when a request is made again that obstore has given up at once: one whose answer broke off, or that
    it takes for unrepeatable."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._attempts = 0

    def after(self, error: Exception) -> float:
        """Seconds to wait. Errors: what `explained` makes of it, where nothing is to be waited for."""
        told = explained(error, self._where)
        if not isinstance(told, StorageError):
            raise told from None
        self._attempts += 1
        if told.attempts > 1 or self._attempts > AGAIN:
            raise explained(error, self._where, self._attempts) from None
        return pause(self._attempts - 1)


def pause(attempt: int) -> float:
    """Seconds to wait after so many attempts in vain and one more."""
    return float(min(FIRST_PAUSE.total_seconds() * 2**attempt, LONGEST_PAUSE.total_seconds()))


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
    obstore = _obstore()

    if isinstance(data, bytes):  # one request, so that no part is left behind
        return _version(obstore.put(store, key, data, use_multipart=False))
    data.seek(0)
    return _version(obstore.put(store, key, data))


def _version(meta: Any) -> Version:
    """What a conditional put is told: some storages go by the tag, others by the version."""
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}


def _delete_one(store: Any, key: str) -> None:
    obstore = _obstore()

    try:
        obstore.delete(store, key)
    except FileNotFoundError as error:
        if _no_bucket(str(error)):
            raise


def _obstore() -> ModuleType:
    try:
        import obstore
    except ImportError as error:
        raise MissingExtraError(
            "Object storage needs obstore, which is not installed.", "pip install 'dsel[cloud]'"
        ) from error
    return obstore


@lru_cache(maxsize=64)
def connection(scheme: str, bucket: str, prefix: str | None = None) -> S3Store | GCSStore | AzureStore:
    """This process's own connections to a bucket, or to what stands below `prefix` there.

    Errors: MissingExtraError, AccessError without credentials.
    """
    _obstore()
    from obstore.store import AzureStore, GCSStore, S3Store

    _require_credentials(scheme, bucket)
    client: Any = {
        "allow_http": os.environ.get(_CREDENTIALS[scheme][1], "").lower() in ("1", "true", "yes"),
        "read_timeout": SILENCE, "timeout": timedelta(minutes=10), "connect_timeout": timedelta(seconds=5),
    }  # fmt: skip
    retries: Any = {
        "max_retries": RETRIES, "retry_timeout": timedelta(minutes=3),
        "backoff": {"init_backoff": FIRST_PAUSE, "max_backoff": LONGEST_PAUSE, "base": 2},
    }  # fmt: skip
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    try:
        store: S3Store | GCSStore | AzureStore = kinds[scheme](
            bucket, prefix=prefix, client_options=client, retry_config=retries
        )
    except Exception as error:
        raise explained(error, f"{scheme}://{bucket}") from None
    return store


def _require_credentials(scheme: str, bucket: str) -> None:
    """Without any in the environment there is the machine's role, if its address answers at all."""
    variables, _, remedy = _CREDENTIALS[scheme]
    home = os.path.expanduser("~/.config/gcloud/application_default_credentials.json")
    if any(os.environ.get(name) for name in variables) or (scheme == "gs" and os.path.exists(home)):
        return
    try:
        socket.create_connection(_METADATA_ADDRESS, timeout=2).close()
    except OSError as error:
        raise AccessError(f"There are no credentials for {scheme}://{bucket}.", remedy) from error


def explained(error: Exception, where: str, attempts: int = 1) -> Exception:
    """An error of obstore as one of dsel that names `where`; others, and those that callers handle, as they are."""
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        NotModifiedError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )

    text = str(error)
    scheme = where.partition("://")[0]
    remedy = _CREDENTIALS[scheme][2]
    code = _first(r"<Code>(\w+)</Code>", text)
    if _no_bucket(text):
        bucket = "/".join(where.split("/")[:3])
        return MissingInputError(f"There is no bucket {bucket}.", "Check its name, or make it first.")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"There is no object {where}.")
    passed_on = (DselError, AlreadyExistsError, NotModifiedError, PreconditionError)
    if isinstance(error, passed_on) or not isinstance(error, BaseError):
        return error
    said = f" ({code})" if code else ""
    status = _first(r"status code: (\d+)", text)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        return AccessError(f"Access to {where} is denied{said}.", f"Ask for the right to read and write it. {remedy}")
    if "token request" in text or "credentials" in text.lower() or "MissingAccount" in text or "169.254." in text:
        return AccessError(f"There are no credentials for {where}.", remedy)
    if status.startswith(("3", "4")):
        region = " AWS_REGION must be the bucket's own." if scheme == "s3" else ""
        return AccessError(f"The request for {where} is refused: status {status}{said}.", f"{remedy}{region}")
    attempts = max(attempts, 1 + int(_first(r"after (\d+) retries", text) or 0))
    why = f"status {status}{said}" if status else _without_status(text)
    times = "once" if attempts == 1 else f"{attempts} times"
    return StorageError(
        f"{where} does not answer as it should: {why}, asked {times}.",
        "Start the same again when the storage is well: it goes on.", attempts,
    )  # fmt: skip


def _no_bucket(text: str) -> bool:
    return any(word in text for word in ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"))


def _without_status(text: str) -> str:
    for pattern, meaning in (
        (r"kind: Timeout|TimedOut|timed out", "no answer in time"),
        (r"kind: Connect", "no connection"),
        (r"body error|response body", "the answer ends early"),
    ):
        if re.search(pattern, text):
            return meaning
    return "the connection broke"


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else ""


@lru_cache(maxsize=64)
def zarr_objects(place: Remote) -> Any:
    """What stands below `place` as Zarr sees it, with errors of dsel."""
    from zarr.storage import ObjectStore

    class Objects(ObjectStore[Any]):
        async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
            get = super().get
            return await _ask_async(f"{place}/{key}", lambda: get(key, *args, **kwargs))

        async def set(self, key: str, value: Any) -> None:
            obstore = _obstore()

            data = value.as_buffer_like()  # one request, so that no part is left behind
            await _ask_async(
                f"{place}/{key}", lambda: obstore.put_async(self.store, key, data, use_multipart=False)
            )  # fmt: skip

        async def set_if_not_exists(self, key: str, value: Any) -> None:
            set_if_not_exists = super().set_if_not_exists  # what a lost answer leaves to find is the same
            await _ask_async(f"{place}/{key}", lambda: set_if_not_exists(key, value))

        async def exists(self, key: str) -> bool:
            exists = super().exists
            return await _ask_async(f"{place}/{key}", lambda: exists(key))

        async def list_dir(self, prefix: str) -> AsyncGenerator[str, None]:
            listed = super().list_dir

            async def names() -> list[str]:
                return [name async for name in listed(prefix)]

            for name in await _ask_async(f"{place}/{prefix}", names):
                yield name

    return Objects(connection(place.scheme, place.bucket, place.key))


async def _ask_async(where: str, request: Callable[[], Awaitable[T]]) -> T:
    patience = Patience(where)
    while True:
        try:
            return await request()
        except Exception as error:
            await asyncio.sleep(patience.after(error))
