"""A log file in object storage. Objects cannot grow, so the whole log is uploaded from time to time."""

from __future__ import annotations

import logging
import time

from dsel.errors import DselError
from dsel.storage.paths import AnyPath, ObjectPath

#: A new line triggers an upload if the last one is this many seconds ago.
UPLOAD_SECONDS = 10.0


def log_handler(path: AnyPath) -> logging.Handler:
    """Return a handler that appends to the file. Raises OSError, or in object storage the errors of `ObjectPath`."""
    return ObjectLogHandler(path) if isinstance(path, ObjectPath) else logging.FileHandler(path)


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
            logging.lastResort.handle(  # type: ignore[union-attr]
                logging.LogRecord("dsel", logging.WARNING, __file__, 0, "the log is not saved: %s", (error,), None)
            )

    def close(self) -> None:
        self.flush()
        super().close()
