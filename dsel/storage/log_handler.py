"""A log file in object storage. Objects cannot grow, so the whole log is uploaded from time to time."""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress

from dsel.errors import DselError, StorageError
from dsel.storage.object_store import is_hurried
from dsel.storage.paths import AnyPath, ObjectPath

#: A new line triggers an upload if the last one is this many seconds ago.
UPLOAD_SECONDS = 10.0
#: For so long a hurried end waits for an upload that has begun.
JOIN_SECONDS = 10.0


def log_handler(path: AnyPath, *, is_new: bool = False) -> logging.Handler:
    """Return a handler that appends to the file. `is_new`: the file is known not to exist.

    Raises OSError, or in object storage the errors of `ObjectPath`.
    """
    return ObjectLogHandler(path, is_new=is_new) if isinstance(path, ObjectPath) else FileLogHandler(path)


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
    """Keep the log in memory, after the lines of earlier runs, and upload it in a separate thread.

    So storage that does not answer never delays the run. A failed upload does not stop it either: a warning goes to
    standard error, and the next line tries again.

    Parameters
    ----------
    path : ObjectPath
        The object.
    is_new : bool
        Whether the object is known not to exist.
    """

    def __init__(self, path: ObjectPath, *, is_new: bool = False) -> None:
        super().__init__()
        self._path = path
        self._text = b""
        if not is_new:
            with suppress(FileNotFoundError):
                self._text = path.read_bytes()
        self._uploaded = self._text
        self._uploading = threading.Lock()
        self._changed, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._upload_lines, name="dsel-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        self._text += self.format(record).encode() + b"\n"
        self._changed.set()

    def flush(self) -> None:
        """Do nothing: the thread uploads the lines, and `close` the last ones."""

    def _upload_lines(self) -> None:
        while not self._closed.is_set():
            self._changed.wait()
            if self._closed.is_set():
                return
            self._changed.clear()
            self._upload()
            self._closed.wait(UPLOAD_SECONDS)

    def _upload(self) -> None:
        """Upload all lines, if there are new ones."""
        with self._uploading:
            text = self._text
            if text == self._uploaded:
                return
            try:
                self._path.write_bytes(text)
                self._uploaded = text
            except DselError as error:
                _warn(error)

    def close(self) -> None:
        """Upload the last lines. A hurried end leaves an upload behind that takes long."""
        self._closed.set()
        self._changed.set()
        self._thread.join(JOIN_SECONDS if is_hurried() else None)
        if self._thread.is_alive():
            _warn(StorageError(f"{self._path} does not answer."))
        else:
            self._upload()
        super().close()
