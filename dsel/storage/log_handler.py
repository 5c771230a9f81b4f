"""A log in object storage, where nothing can be appended to: all of it is put there anew, now and then."""

from __future__ import annotations

import logging
import time

from dsel.errors import DselError
from dsel.storage.paths import Place, Remote

#: A line waits at most about so many seconds (and for the next line) until it is put there.
UPLOAD_SECONDS = 10.0


def log_handler(path: Place) -> logging.Handler:
    """A handler that adds lines to the file. Errors: OSError on disk, those of `Remote` in object storage."""
    return RemoteLog(path) if isinstance(path, Remote) else logging.FileHandler(path)


class RemoteLog(logging.Handler):
    """Keeps the lines in memory, those of earlier runs first; the log is small. Storage that fails on the way does not
    stop the run: what it cost is said on standard error, and the next line tries again."""

    def __init__(self, place: Remote) -> None:
        super().__init__()
        self._place = place
        try:
            self._text = place.read_bytes()
        except FileNotFoundError:
            self._text = b""
        self._put_there = self._text
        self._last = -UPLOAD_SECONDS

    def emit(self, record: logging.LogRecord) -> None:
        self._text += self.format(record).encode() + b"\n"
        if time.monotonic() - self._last >= UPLOAD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Put all lines there."""
        if self._text == self._put_there:
            return
        text, self._last = self._text, time.monotonic()
        try:
            self._place.write_bytes(text)
            self._put_there = text
        except DselError as error:
            logging.lastResort.handle(  # type: ignore[union-attr]
                logging.LogRecord("dsel", logging.WARNING, __file__, 0, "the log is not saved: %s", (error,), None)
            )

    def close(self) -> None:
        self.flush()
        super().close()
