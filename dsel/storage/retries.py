"""Which requests to object storage are repeated, and how its errors are reported.

A translated error keeps the status and the code, never the server's text, because that may contain tokens.

A process opens each connection to a bucket once, with the credentials of its environment.
"""

from __future__ import annotations

import os
import re
import socket
from datetime import timedelta
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dsel.errors import AccessError, DselError, MissingExtraError, MissingInputError, StorageError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

#: Delays between requests double from the first to the longest.
FIRST_DELAY = timedelta(seconds=0.2)
LONGEST_DELAY = timedelta(seconds=15)
#: How often dsel repeats a request that obstore does not repeat itself.
MAX_RETRIES = 4

#: Where credentials come from, by scheme.
REMEDIES = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION), or give the machine or pod a role.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or give the machine or pod a service account.",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, or give the machine or pod an identity.",
}


class RetryPolicy:
    """Decide whether to repeat one request that obstore gave up, and when.

    obstore repeats most requests itself. It gives up at once if an answer breaks off, or if it takes the request for
    one that must not be repeated.
    """

    def __init__(self, where: str, max_retries: int = MAX_RETRIES) -> None:
        self._where, self._max_retries = where, max_retries
        self._attempts = 0

    def delay_after(self, error: Exception) -> float:
        """Return the seconds to wait before the next attempt. Raises the translated error if there is none."""
        translated = translate_error(error, self._where)
        if not isinstance(translated, StorageError):
            raise translated from None
        self._attempts += 1
        if _is_exhausted(str(error)) or self._attempts > self._max_retries:
            raise translate_error(error, self._where, self._attempts) from None
        return float(min(FIRST_DELAY.total_seconds() * 2 ** (self._attempts - 1), LONGEST_DELAY.total_seconds()))


def translate_error(error: Exception, where: str, attempts: int = 1) -> Exception:
    """Return an error of obstore as an error of dsel that names `where`.

    Errors of other origin, and errors that callers handle, are returned unchanged.
    """
    from obstore import exceptions

    text = str(error)
    scheme = where.partition("://")[0]
    remedy = REMEDIES[scheme]
    code = _first(r"<Code>(\w+)</Code>", text)
    if is_missing_bucket(text):
        bucket = "/".join(where.split("/")[:3])
        return MissingInputError(f"There is no bucket {bucket}.", "Check its name, or create it first.")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"There is no object {where}.")
    passed_on = (DselError, exceptions.AlreadyExistsError, exceptions.NotModifiedError, exceptions.PreconditionError)
    if isinstance(error, passed_on) or not isinstance(error, exceptions.BaseError):
        return error
    said = f" ({code})" if code else ""
    status = _first(r"status code: (\d+)", text)
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError) or status in (
        "401",
        "403",
    ):
        return AccessError(f"Access to {where} is denied{said}.", f"Ask for permission to read and write it. {remedy}")
    if "token request" in text or "credentials" in text.lower() or "MissingAccount" in text or "169.254." in text:
        return AccessError(f"There are no credentials for {where}.", remedy)
    if status.startswith(("3", "4")):
        region = " AWS_REGION must be the region of the bucket." if scheme == "s3" else ""
        return AccessError(f"The request for {where} is refused: status {status}{said}.", f"{remedy}{region}")
    attempts = max(attempts, 1 + int(_first(r"after (\d+) retries", text) or 0))
    why = f"status {status}{said}" if status else _without_status(text)
    times = "once" if attempts == 1 else f"{attempts} times"
    return StorageError(
        f"{where} does not answer correctly: {why}, tried {times}.",
        "Start the same command again when the storage works; it continues.", attempts,
    )  # fmt: skip


def is_missing_bucket(text: str) -> bool:
    """Return whether the text of an error says that the bucket does not exist."""
    return any(word in text for word in ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"))


def _without_status(text: str) -> str:
    for pattern, meaning in (
        (r"kind: Timeout|TimedOut|timed out", "no answer in time"),
        (r"kind: Connect", "no connection"),
        (r"body error|response body", "the answer ended early"),
    ):
        if re.search(pattern, text):
            return meaning
    return "the connection broke"


def _is_exhausted(text: str) -> bool:
    """Return whether obstore has used all the retries, or all the time, that it was given."""
    found = re.search(r"in ([\d.]+)(\w?s), after (\d+) retries, max_retries: (\d+), retry_timeout: (\d+)s", text)
    if found is None:
        return False
    seconds = float(found.group(1)) if found.group(2) == "s" else 0.0
    return int(found.group(3)) >= int(found.group(4)) or seconds >= float(found.group(5))


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else ""


#: How often obstore repeats a request, with the delays above.
RETRIES = 8
#: A connection that carries no data for this long is closed, and the request repeated.
READ_TIMEOUT = timedelta(seconds=60)
#: For so long requests are repeated.
RETRY_TIMEOUT = timedelta(minutes=3)
#: The same for a hurried request, which is not repeated.
HURRIED_TIMEOUT = timedelta(seconds=5)

_METADATA_ADDRESS = ("169.254.169.254", 80)

#: Environment variables that name credentials (one is enough), and the variable that allows plain http.
_CREDENTIALS = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
         "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE", "AWS_METADATA_ENDPOINT"),
        "AWS_ALLOW_HTTP",
    ),
    "gs": (
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH",
         "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_SKIP_SIGNATURE"),
        "GOOGLE_ALLOW_HTTP",
    ),
    "az": (
        ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN",
         "AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_STORAGE_TOKEN",
         "AZURE_USE_AZURE_CLI", "AZURE_SKIP_SIGNATURE", "AZURE_STORAGE_USE_EMULATOR"),
        "AZURE_ALLOW_HTTP",
    ),
}  # fmt: skip


def obstore_module() -> ModuleType:
    """Return the module obstore. Raises MissingExtraError if it is not installed."""
    try:
        import obstore
    except ImportError as error:
        raise MissingExtraError(
            "Object storage needs obstore, which is not installed.", "pip install 'dsel[cloud]'"
        ) from error
    return obstore


@lru_cache(maxsize=64)
def connection(
    scheme: str, bucket: str, prefix: str | None = None, *, hurried: bool = False
) -> S3Store | GCSStore | AzureStore:
    """Return this process's connection to a bucket, or to the objects below `prefix` in it.

    hurried: whether each request is sent once, and given up after a few seconds.

    Raises MissingExtraError without obstore, AccessError without credentials.
    """
    obstore_module()
    from obstore.store import AzureStore, GCSStore, S3Store

    _require_credentials(scheme, bucket)
    client: Any = {
        "allow_http": os.environ.get(_CREDENTIALS[scheme][1], "").lower() in ("1", "true", "yes"),
        "read_timeout": HURRIED_TIMEOUT if hurried else READ_TIMEOUT,
        "timeout": HURRIED_TIMEOUT if hurried else timedelta(minutes=10),
        "connect_timeout": timedelta(seconds=5),
    }  # fmt: skip
    retries: Any = {
        "max_retries": 0 if hurried else RETRIES, "retry_timeout": RETRY_TIMEOUT,
        "backoff": {"init_backoff": FIRST_DELAY, "max_backoff": LONGEST_DELAY, "base": 2},
    }  # fmt: skip
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    try:
        store: S3Store | GCSStore | AzureStore = kinds[scheme](
            bucket, prefix=prefix, client_options=client, retry_config=retries
        )
    except Exception as error:
        raise translate_error(error, f"{scheme}://{bucket}") from None
    return store


def _require_credentials(scheme: str, bucket: str) -> None:
    """Raise AccessError if the environment names no credentials and the machine has no role to provide them."""
    variables, _ = _CREDENTIALS[scheme]
    home = os.path.expanduser("~/.config/gcloud/application_default_credentials.json")
    if any(os.environ.get(name) for name in variables) or (scheme == "gs" and os.path.exists(home)):
        return
    try:
        socket.create_connection(_METADATA_ADDRESS, timeout=2).close()
    except OSError as error:
        raise AccessError(f"There are no credentials for {scheme}://{bucket}.", REMEDIES[scheme]) from error
