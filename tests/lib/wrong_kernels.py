"""Kernels that ask for the wrong array, and what each raises. Only run where kernels are checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import KernelArrays, int_vector, row, vector
from dsel.objective.dense import DenseObjective
from dsel.objective.kernels import layout
from dsel.objective.objective_interface import FEW_TARGETS
from dsel.search.exact.branch_and_bound import layout as bb_layout


@compiled()
def of_another_type(P: Any) -> Any:
    return vector(P, layout.A).sum()


@compiled()
def of_another_layout(P: Any) -> Any:
    return vector(P, bb_layout.FLOOR).sum()


@compiled()
def missing(P: Any) -> Any:
    return vector(P, layout.F).sum()


@compiled()
def out_of_bounds(P: Any, i: int) -> Any:
    return int_vector(P, layout.K)[i]


@compiled()
def row_of(P: Any, j: int) -> Any:
    return row(P, layout.M, j).sum()


if __name__ == "__main__":
    tables = DenseObjective(np.eye(3), np.ones((3, FEW_TARGETS + 1)), 1.0).subset_tables(2, 1)
    assert row_of(tables.P, 0) == 3.0 * (FEW_TARGETS + 1)
    tables[layout.M][1] = 0
    for kernel, arguments in (
        (of_another_type, (tables.P,)), (of_another_layout, (tables.P,)),
        (missing, (KernelArrays(layout.TABLES).P,)), (out_of_bounds, (tables.P, 3)), (row_of, (tables.P, 1)),
    ):  # fmt: skip
        try:
            kernel(*arguments)
        except Exception as error:
            print(type(error).__name__)
        else:
            print("ran")
