"""Names of the array types, and of the numbers that compiled functions take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Numba compiles a function again for a literal argument: callers pass np.int64(2), not 2, nor a variable set to 2.
Int = int | np.int64
Bool = bool | np.bool_
