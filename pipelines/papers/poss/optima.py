"""Column OPT of Table 2 of the POSS paper on full data: proved optima of R^2 for k = 8, or the remaining gap."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dsel.search.exact.proof import Proof
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import regression, standardized
from pipelines.table import json_line, text_table

K = 8
NAMES = ("housing", "eunite2001", "ionosphere", "sonar", "coil2000", "mushrooms", "clean1")


def optimum(name: str, seconds: float) -> dict[str, Any] | None:
    """Return the certificate for one standardized data set, or None if there is no file."""
    arrays = load(name)
    if arrays is None:
        return None
    objective = regression(standardized(arrays["X"]), standardized(arrays["Y"][:, :1]))
    proof = Proof.begin(objective, min(K, objective.n))
    proof.run(seconds)
    return {"data": name, "n": objective.n, **proof.certificate().as_dict()}


def run(only: Sequence[str], seconds: float) -> None:
    """Print the optima and, as the last line, the same figures as JSON."""
    start = time.monotonic()
    rows = []
    for name in only or NAMES:
        row = optimum(name, seconds)
        if row is None:
            print(missing(name))
        else:
            rows.append(row)
    print(f"POSS Table 2, column OPT: R^2 of the best {K} columns of the full data\n")
    header = ("data set", "columns", "R^2", "upper bound", "", "nodes", "seconds")
    print(text_table(header, [_written(row) for row in rows]))
    print(json_line({"table": "poss-optima", "seconds": time.monotonic() - start, "rows": rows}))


def _written(row: dict[str, Any]) -> list[str]:
    state = "proved" if row["proven"] else f"gap {row['relative_to_total']:.4f}"
    return [
        row["data"], str(row["n"]), f"{row['r2']:.6f}", f"{row['r2_bound']:.6f}", state, f"{row['nodes']:,}",
        f"{row['seconds']:.1f}",
    ]  # fmt: skip
