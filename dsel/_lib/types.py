"""Names of the array types, and of the numbers that compiled functions take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Numba compiles a function again for a literal argument: callers pass np.int64(2), not 2, nor a variable set to 2.
Int = int | np.int64
Bool = bool | np.bool_


def is_a(value: Any, package: str, name: str) -> bool:
    """Return whether the type of a value has this name and comes from this package, which is not imported."""
    kind = type(value)
    return kind.__name__ == name and kind.__module__.split(".")[0] == package
