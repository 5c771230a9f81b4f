"""What of a result must stay, as plain values; and its digest.

Floats are written by `float.hex`. Times are left out, and so are the texts of notes and plans and the names of
representations, which may be put in other words.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

#: Counts that follow the clock.
CLOCKED = ("utilisation", "tasks", "lost_tasks", "lost_evaluations")
#: Fields of a plan that are numbers, and the same on every machine.
PLAN = (
    "passes", "bytes_read", "tasks", "flops", "worker_bytes", "worker_limit", "client_bytes", "disk_bytes", "exact",
    "iterations", "fold_every", "workers",
)  # fmt: skip
#: Of a certificate: what was proved for a size, and at last in how many nodes.
CERTIFICATE = ("size", "value", "bound", "gap", "proven", "indices", "nodes")
#: Names of representations in the table, where they are called something else now.
RECORDED_NAMES = {"column-blocks": "shards", "row-gram": "rows"}
STAGE = ("passes", "bytes_read", "tasks", "flops")
#: A longer field is kept in the table by its digest alone; an empty one is not written.
_SHOWN = 200


def plain(value: Any) -> Any:
    """A value as JSON holds it, each float by its bits."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    assert value is None or isinstance(value, str | int | bool), repr(value)
    return value


def of_selection(found: Any) -> dict[str, Any]:
    """What must stay of a Selection."""
    held = found.plan or {}
    figures = {
        "exact": held.get("exact"),
        "planned": _without(held.get("planned", {}), "seconds"),
        "measured": _without(held.get("measured", {}), "seconds", "worker_memory"),
    }
    fields = {
        "indices": found.indices, "labels": found.labels, "error": found.error, "r2": found.r2, "lam": found.lam,
        "criterion": found.criterion, "coefficients": found.coefficients, "intercept": found.intercept,
        "front": [(row.size, row.error, row.r2, row.indices, row.criterion) for row in found.front],
        "trace": [(row.iteration, row.size, row.error) for row in found.trace],
        "path": [
            (p.action, p.index, p.label, p.size, p.error, p.accuracy, p.test_error, p.test_accuracy)
            for p in found.path
        ],
        "certificate": [[row[name] for name in CERTIFICATE] for row in found.certificate],
        "ended": found.ended, "iterations": found.iterations, "counts": _counts(found),
        "notes": len(found.notes), "passes": found.passes, "bytes_read": found.bytes_read, "plan": figures,
        "shape": found.shape, "targets": found.targets, "include": found.include, "exclude": found.exclude,
        "constant": found.constant, "weights": found.weights,
    }  # fmt: skip
    return {name: plain(value) for name, value in fields.items()}


def _counts(found: Any) -> dict[str, Any]:
    counts = _without(found.counts, *CLOCKED)
    if "representation" in counts:
        counts["representation"] = RECORDED_NAMES.get(counts["representation"], counts["representation"])
    return counts


def of_plan(made: Any) -> dict[str, Any]:
    """What must stay of a Plan: its numbers."""
    fields = {name: getattr(made, name) for name in PLAN}
    fields["stages"] = [[getattr(stage, name) for name in STAGE] for stage in made.stages]
    fields["notes"], fields["fits"] = len(made.notes), not made.lacks
    return {name: plain(value) for name, value in fields.items()}


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def digest(value: Any) -> str:
    """Of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def entry(fields: dict[str, Any], about: str = "") -> dict[str, Any]:
    """A case as the table holds it. about: for people, not compared."""
    short = {
        name: value if _size(value) <= _SHOWN else f"digest {digest(value)}"
        for name, value in fields.items()
        if value is not None and value not in ([], {})
    }
    shown = {name: repr(float.fromhex(fields[name])) for name in ("error", "r2") if name in fields}
    if about:
        shown["about"] = about
    return {"digest": digest(fields), "shown": shown, "fields": short}


def _size(value: Any) -> int:
    return len(json.dumps(value))


def machine() -> dict[str, str]:
    """What the last bits depend on beside the code: the libraries, and the kernels that they take on this processor."""
    import llvmlite.binding
    import numba
    import scipy
    from threadpoolctl import threadpool_info

    kernels = sorted({str(found.get("architecture")) for found in threadpool_info() if found["user_api"] == "blas"})
    return {
        "python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__,
        "numba": numba.__version__, "processor": llvmlite.binding.get_host_cpu_name(), "blas": " ".join(kernels),
    }  # fmt: skip
