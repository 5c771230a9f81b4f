"""Results recorded before a change of the code, and a test that they are still the same to the last bit."""

from __future__ import annotations

import os

# One thread of BLAS, as in the tests: sums over threads would depend on how many there are.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
