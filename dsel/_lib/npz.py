"""Reading .npz and .npy files in several threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from typing import IO

import numpy as np
from numpy.lib.npyio import NpzFile

# NumPy parses the header of each array with `ast`. Before Python 3.11.8 and 3.12.2 that can raise SystemError ("AST
# constructor recursion depth mismatch") while another thread parses, too: https://github.com/python/cpython/issues/106905
_PARSER_IS_SHARED = sys.version_info < (3, 11, 8) or (3, 12) <= sys.version_info < (3, 12, 2)

parser_lock: AbstractContextManager[object] = RLock() if _PARSER_IS_SHARED else nullcontext()
"""Must be held while a header, or a signature of `inspect`, is parsed."""


@contextmanager
def open_npz(file: IO[bytes]) -> Iterator[NpzFile]:
    """Open an .npz archive that holds no Python objects. Errors: ValueError, OSError, zipfile.BadZipFile."""
    with parser_lock, np.load(file, allow_pickle=False) as arrays:
        yield arrays
