"""A log file in object storage. Objects cannot grow, so the whole log is uploaded from time to time."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress

from dsel.errors import DselError
from dsel.storage.paths import AnyPath, ObjectPath

#: A new line triggers an upload if the last one is this many seconds ago.
UPLOAD_SECONDS = 10.0


def log_handler(path: AnyPath) -> logging.Handler:
    """Return a handler that appends to the file. Raises OSError, or in object storage the errors of `ObjectPath`."""
    return ObjectLogHandler(path) if isinstance(path, ObjectPath) else FileLogHandler(path)


class FileLogHandler(logging.FileHandler):
    """Append to a file. If that fails, such as on a full disk, say so once and let the run continue."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Warn on standard error, once."""
        if not self._failed:
            self._failed = True
            _warn(sys.exc_info()[1])

    def close(self) -> None:
        """Close the file. Lines that do not fit any more are lost."""
        with suppress(OSError):
            super().close()


def _warn(error: BaseException | None) -> None:
    logging.lastResort.handle(  # type: ignore[union-attr]
        logging.LogRecord("dsel", logging.WARNING, __file__, 0, "the log is not saved: %s", (error,), None)
    )


class ObjectLogHandler(logging.Handler):
    """Keep the log in memory, after the lines of earlier runs, and upload it.

    A failed upload does not stop the run: a warning goes to standard error, and the next line tries again.
    """

    def __init__(self, path: ObjectPath) -> None:
        super().__init__()
        self._path = path
        try:
            self._text = path.read_bytes()
        except FileNotFoundError:
            self._text = b""
        self._uploaded = self._text
        self._last = -UPLOAD_SECONDS

    def emit(self, record: logging.LogRecord) -> None:
        self._text += self.format(record).encode() + b"\n"
        if time.monotonic() - self._last >= UPLOAD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Upload all lines."""
        if self._text == self._uploaded:
            return
        text, self._last = self._text, time.monotonic()
        try:
            self._path.write_bytes(text)
            self._uploaded = text
        except DselError as error:
            _warn(error)

    def close(self) -> None:
        self.flush()
        super().close()
