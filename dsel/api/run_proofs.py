"""What `certify` and `alternatives` do when they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dsel._lib.events import Event, telling
from dsel.api.run_select import running
from dsel.config.job import ListLimits
from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset
from dsel.engine.connect import active_client
from dsel.errors import OptionError
from dsel.jobs.certify import certify_selection, data_again, proof_events
from dsel.jobs.proof_store import ProofBudget
from dsel.jobs.size_proofs import why_no_list
from dsel.passes.statistics_cache import StatisticsCache
from dsel.selection.alternatives import Alternatives
from dsel.selection.context import RunContext
from dsel.selection.result import Selection


def certified(
    selection: Selection, X: Any, Y: Any, limits: dict[str, Any], earlier: dict[str, Any], sample_weight: Any,
    offset: Any, progress: bool | None, on_event: Callable[[Event], None] | None,
) -> Selection:  # fmt: skip
    """Return a selection with certificates. See `dsel.certify`."""
    _require_selection(selection)
    if unknown := earlier.keys() - ProofBudget.renamed.keys():
        raise TypeError(f"certify() got an unexpected keyword argument {min(unknown)!r}")
    budget = ProofBudget.of(**limits, **earlier)
    dataset, request = data_again(selection, X, Y, sample_weight, offset)
    client = None if dataset.in_memory else active_client()
    with telling(on_event), proof_events(dataset, request, selection) as ended:
        with running(client, RunContext(), progress, "certificate") as context:
            proved = certify_selection(dataset, request, selection, budget, context)
        ended(proved)
        return proved


def near_best_subsets(
    selection: Selection, X: Any, Y: Any, limits: dict[str, Any], sample_weight: Any, offset: Any,
    progress: bool | None, **proof: Any,
) -> Alternatives:  # fmt: skip
    """Return the near-best subsets of a selection. See `dsel.alternatives`."""
    _require_selection(selection)
    budget = ProofBudget.of(**proof, near_best=ListLimits.of(**limits))
    dataset, request = data_again(selection, X, Y, sample_weight, offset)
    return alternatives_from(dataset, request, selection, budget, progress=progress)


def alternatives_from(
    dataset: Dataset, request: SelectionRequest, selection: Selection, budget: ProofBudget,
    cache: StatisticsCache | None = None, *, progress: bool | None = False,
) -> Alternatives:  # fmt: skip
    """Return the near-best subsets of a selection of a dataset.

    Parameters
    ----------
    dataset, request, selection : Dataset, SelectionRequest, Selection
        The data, what was asked, and what was found.
    budget : ProofBudget
        Which subsets are listed, and how long to search.
    cache : StatisticsCache, optional
        Where statistics of data with a fingerprint are read and saved.
    progress : bool, optional
        Show a line that says what runs; None for in notebooks and terminals only.

    Returns
    -------
    Alternatives
        The near-best subsets.

    Raises
    ------
    DselError
        As `alternatives` raises them.
    """
    with running(None if dataset.in_memory else active_client(), RunContext(cache=cache), progress) as context:
        proved = certify_selection(dataset, request, replace(selection, alternatives=None), budget, context)
    if proved.alternatives is None:
        raise why_no_list(proved)
    return proved.alternatives.listed_for(selection.error, selection.indices)


def _require_selection(selection: Any) -> None:
    if not isinstance(selection, Selection):
        raise OptionError(f"selection is a {type(selection).__name__}.", "Use what select or open_selection returns.")
