"""Compile kernels into numba's cache: `python -m dsel._lib.compile_kernels MODULE:NAME ...`."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from dsel._lib.jit import is_compiled


def compile_kernels(names: list[str]) -> None:
    """Compile the kernels that no other process has compiled yet, until the process that asked for them ends."""
    parent = os.getppid()
    for name in names:
        if os.getppid() != parent:
            return
        module, function = name.split(":")
        kernel = getattr(import_module(module), function)
        if not is_compiled(kernel):
            kernel.load()


if __name__ == "__main__":
    compile_kernels(sys.argv[1:])
