"""Connections to buckets, opened once per process with the credentials of its own environment."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dsel.errors import AccessError, MissingExtraError
from dsel.storage import retries as retry_settings
from dsel.storage.retries import REMEDIES, translate_error

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

#: How often obstore repeats a request, with the delays of dsel.storage.retries.
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
        "backoff": {"init_backoff": retry_settings.FIRST_DELAY, "max_backoff": retry_settings.LONGEST_DELAY, "base": 2},
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
