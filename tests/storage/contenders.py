"""Several contenders for one lock, each in a thread."""

from __future__ import annotations

import threading

from dsel.errors import OutputError
from dsel.storage.locks import locked
from dsel.storage.paths import AnyPath


def winners(folder: AnyPath, count: int) -> list[int]:
    """Return the contenders that got the lock of `folder`. The winner keeps it until all others were refused."""
    begin, got, refused = threading.Barrier(count), [], threading.Semaphore(0)

    def contend(number: int) -> None:
        begin.wait()
        try:
            with locked(folder, f"run {number}") as lock:
                lock.require()
                got.append(number)
                for _ in range(count - 1):
                    refused.acquire(timeout=600)
                lock.require()
        except OutputError:
            refused.release()

    threads = [threading.Thread(target=contend, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got
