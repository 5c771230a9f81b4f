"""Which requests to object storage are repeated, and how its errors are reported.

A translated error keeps the status and the code, never the server's text, because that may contain tokens.
"""

from __future__ import annotations

import re
from datetime import timedelta

from dsel.errors import AccessError, DselError, MissingInputError, StorageError

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
        return retry_delay(self._attempts - 1)


def retry_delay(retries: int) -> float:
    """Return the seconds to wait before the next attempt, after this many retries."""
    return float(min(FIRST_DELAY.total_seconds() * 2**retries, LONGEST_DELAY.total_seconds()))


def translate_error(error: Exception, where: str, attempts: int = 1) -> Exception:
    """Return an error of obstore as an error of dsel that names `where`.

    Errors of other origin, and errors that callers handle, are returned unchanged.
    """
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
    remedy = REMEDIES[scheme]
    code = _first(r"<Code>(\w+)</Code>", text)
    if is_missing_bucket(text):
        bucket = "/".join(where.split("/")[:3])
        return MissingInputError(f"There is no bucket {bucket}.", "Check its name, or create it first.")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"There is no object {where}.")
    passed_on = (DselError, AlreadyExistsError, NotModifiedError, PreconditionError)
    if isinstance(error, passed_on) or not isinstance(error, BaseError):
        return error
    said = f" ({code})" if code else ""
    status = _first(r"status code: (\d+)", text)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
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
