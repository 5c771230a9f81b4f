"""Select features from data larger than memory, on Dask clusters, and prove how good a selection is."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsel.api.proofs import alternatives, certify, submodularity_ratio
    from dsel.api.select import eigh, plan, select, stability
    from dsel.api.sums import check_part, from_sums, open_sums, sums
    from dsel.config.size_rule import SizeRule
    from dsel.criteria import CrossValidated, Remembered
    from dsel.data.append.append import append
    from dsel.data.ingest import ingest
    from dsel.data.store.reader import open_store
    from dsel.jobs.verify import verify
    from dsel.planning.eigh import Eigendecomposition
    from dsel.selection.alternatives import Alternatives
    from dsel.selection.result import Selection, open_selection, report
    from dsel.selection.stability.result import Stability

__all__ = [
    "Alternatives",
    "CrossValidated",
    "Eigendecomposition",
    "Remembered",
    "Selection",
    "SizeRule",
    "Stability",
    "alternatives",
    "append",
    "certify",
    "check_part",
    "eigh",
    "from_sums",
    "ingest",
    "open_selection",
    "open_store",
    "open_sums",
    "plan",
    "report",
    "select",
    "stability",
    "submodularity_ratio",
    "sums",
    "verify",
]

_HOMES = {
    name: module
    for module, names in {
        "dsel.api.proofs": "alternatives certify submodularity_ratio",
        "dsel.api.select": "eigh plan select stability",
        "dsel.api.sums": "check_part from_sums open_sums sums",
        "dsel.config.size_rule": "SizeRule",
        "dsel.criteria": "CrossValidated Remembered",
        "dsel.data.append.append": "append",
        "dsel.data.ingest": "ingest",
        "dsel.data.store.reader": "open_store",
        "dsel.jobs.verify": "verify",
        "dsel.planning.eigh": "Eigendecomposition",
        "dsel.selection.alternatives": "Alternatives",
        "dsel.selection.result": "Selection open_selection report",
        "dsel.selection.stability.result": "Stability",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import dsel` and `dsel --help` stay fast."""
    if name == "__version__":
        from importlib.metadata import version

        return version("dsel")
    if name not in _HOMES:
        raise AttributeError(f"module 'dsel' has no attribute {name!r}")
    collects = gc.isenabled()
    gc.disable()  # Imports leave no garbage; its collection is an eighth of their time.
    try:
        return getattr(import_module(_HOMES[name]), name)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
