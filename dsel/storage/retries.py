"""What an error of object storage means to the user, and whether the request is made again.

What remains of an error is its status and code, never what the server wrote, for that may hold tokens.
"""

from __future__ import annotations

import re
from datetime import timedelta

from dsel.errors import AccessError, DselError, MissingInputError, StorageError

#: Pauses between requests double from the first to the longest.
FIRST_PAUSE = timedelta(seconds=0.2)
LONGEST_PAUSE = timedelta(seconds=15)
#: Where it is not obstore that makes a request again, so many times.
AGAIN = 4

#: Where credentials come from.
REMEDIES = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION), or give the machine or pod a role.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or give the machine or pod a service account.",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, or give the machine or pod an identity.",
}


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
        if _over(str(error)) or self._attempts > AGAIN:
            raise explained(error, self._where, self._attempts) from None
        return pause(self._attempts - 1)


def pause(attempt: int) -> float:
    """Seconds to wait after so many attempts in vain and one more."""
    return float(min(FIRST_PAUSE.total_seconds() * 2**attempt, LONGEST_PAUSE.total_seconds()))


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
    remedy = REMEDIES[scheme]
    code = _first(r"<Code>(\w+)</Code>", text)
    if no_bucket(text):
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


def no_bucket(text: str) -> bool:
    """Whether an error's text says that there is no such bucket."""
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


def _over(text: str) -> bool:
    """Whether obstore has made a request again as often, or for as long, as it was told to: it also stops where it
    takes a request for unrepeatable, or has had the head of an answer, however many went wrong before."""
    found = re.search(r"in ([\d.]+)(\w?s), after (\d+) retries, max_retries: (\d+), retry_timeout: (\d+)s", text)
    if found is None:
        return False
    seconds = float(found.group(1)) if found.group(2) == "s" else 0.0
    return int(found.group(3)) >= int(found.group(4)) or seconds >= float(found.group(5))


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else ""
