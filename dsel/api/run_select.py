"""What `select`, `plan`, `stability`, `eigh`, `sums` and `check_part` do when they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dsel._lib.events import Event, is_observed, telling
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.dataset import Dataset
from dsel.data.offset import split_offset
from dsel.data.requested import dataset_of
from dsel.engine.connect import active_client, engine_for, engine_of
from dsel.engine.this_machine import worker_memory as memory_of_worker
from dsel.errors import OptionError
from dsel.passes.noise import Noise
from dsel.passes.statistics_cache import StatisticsCache
from dsel.passes.sums import Sums, noisy_sums_of, sums_of
from dsel.planning.calibration import calibrated
from dsel.planning.decompose import decompose, eigh_request
from dsel.planning.eigh import Eigendecomposition, EighMethod
from dsel.planning.plan import Plan, available_resources
from dsel.planning.validation import ValidatedRequest, validate
from dsel.search.anytime import AnytimeSearch, slice_event
from dsel.search.method import OnSlice
from dsel.search.placement import Site
from dsel.selection.context import RunContext
from dsel.selection.pipeline import plan_selection, run_events, run_validated
from dsel.selection.progress_line import showing_progress
from dsel.selection.result import Selection
from dsel.selection.results.check_part import PartShare, part_share
from dsel.selection.stability.result import Stability
from dsel.selection.stability.run import run_stability


def select_from(
    dataset: Dataset, request: SelectionRequest, cache: StatisticsCache | None = None, *,
    progress: bool | None = False, on_event: Callable[[Event], None] | None = None,
) -> Selection:  # fmt: skip
    """Run a request on a dataset, on the workers of the active Dask client if that helps.

    Parameters
    ----------
    dataset : Dataset
        The data.
    request : SelectionRequest
        What to select.
    cache : StatisticsCache, optional
        Where statistics of data with a fingerprint are read and saved.
    progress : bool, optional
        Show a line that says what runs; None for in notebooks and terminals only.
    on_event : callable, optional
        Called with each `Event` of the run.

    Returns
    -------
    Selection
        The selection.

    Raises
    ------
    DselError
        As `select` raises them.
    """
    validated = validate(dataset, request)
    if on_event is not None:
        with telling(on_event), run_events(validated) as ended:
            selection = _selected(validated, cache, progress)
            ended(selection)
            return selection
    return _selected(validated, cache, progress)


def _selected(validated: ValidatedRequest, cache: StatisticsCache | None, progress: bool | None) -> Selection:
    """Run a validated request on the workers of the active client if that helps."""
    dataset = validated.dataset
    helps = not dataset.in_memory or validated.placed(Site(cluster=True)).on_workers
    client = active_client() if helps else None
    with running(client, RunContext(cache=cache), progress) as context:
        return run_validated(validated, context)


def _telling_slices(before: OnSlice | None, stage: str) -> OnSlice:
    """Return what tells observers of each slice, after what is called already."""

    def on_slice(search: AnytimeSearch) -> None:
        if before is not None:
            before(search)
        slice_event(stage, search)

    return on_slice


def planned(
    X: Any, Y: Any, workers: int | None, worker_memory: str | int | None, calibrate: bool, **arguments: Any
) -> Plan:
    """Return what a selection will take. See `dsel.plan`."""
    dataset, request = asked(X, Y, **arguments)
    validated = validate(dataset, request)
    if workers is not None and workers < 1:
        raise OptionError(f"workers is {workers}.", "It is a number of workers >= 1.")
    with engine_for(dataset) as engine:
        limit = engine.worker_memory if worker_memory is None else memory_of_worker(workers, worker_memory)
        available = available_resources(workers or engine.workers, limit, not engine.in_process or workers is not None)
        made = plan_selection(validated, RunContext(engine), available=available)
    return calibrated(made, dataset) if calibrate else made


def on_subsamples(X: Any, Y: Any, arguments: dict[str, Any], **sampling: Any) -> Stability:
    """Return how often columns are chosen on subsamples. See `dsel.stability`."""
    dataset, request = asked(X, Y, **arguments)
    with engine_for(dataset) as engine:
        return run_stability(dataset, request, RunContext(engine), **sampling)


def decomposed(X: Any, method: EighMethod, **asked_for: Any) -> Eigendecomposition:
    """Return the leading eigenvalues and eigenvectors of X'X. See `dsel.eigh`."""
    request = eigh_request(**asked_for)
    validated = validate(dataset_of(request, X), request)
    with engine_for(validated.dataset) as engine:
        available = available_resources(engine.workers, engine.worker_memory, not engine.in_process)
        return decompose(validated, method, engine, available)


@contextmanager
def running(
    client: Any, context: RunContext, progress: bool | None, stage: str = "search"
) -> Iterator[RunContext]:  # fmt: skip
    """Provide the context on a client's workers, or in this process if it is None, with a line of progress.

    stage: what observers are told of each slice of.
    """
    with showing_progress(context, progress) as (shown, line):
        if is_observed():
            shown = replace(shown, on_slice=_telling_slices(shown.on_slice, stage))
        on_tasks = None if line is None else line.tasks
        with engine_of(client, on_tasks) as engine:
            yield replace(shown, engine=engine)


def asked(X: Any, Y: Any, **arguments: Any) -> tuple[Dataset, SelectionRequest]:
    """Return the data and the request of a call, which names columns of frames by their labels."""
    if "offset" in arguments:
        named = (arguments.get("targets") or arguments.get("target")) if Y is None else Y
        X, arguments["offset"] = split_offset(X, arguments["offset"], named)
    request = _request(**arguments)
    dataset = dataset_of(request, X, Y)
    return dataset, dataset.named(request)


def _request(**arguments: Any) -> SelectionRequest:
    """Return the request of a call. What is not a field of a request is an option of the method."""
    if "options" in arguments:
        raise OptionError("options is not an argument.", "Give the method's options as keyword arguments.")
    fields = {*SelectionRequest.model_fields, *SelectionRequest.renamed} - {"options"}
    options = {name: value for name, value in arguments.items() if name not in fields}
    return SelectionRequest.of(options=options, **{name: arguments[name] for name in fields & set(arguments)})


def sums_of_rows(X: Any, Y: Any, noise: Mapping[str, Any] | None, *, sample_weight: Any, **columns: Any) -> Sums:
    """Return the sums of some rows. See `dsel.sums`."""
    dataset = as_dataset(X, Y, sample_weight=sample_weight, **columns)
    dtype = str(sample_weight.dtype) if hasattr(sample_weight, "dtype") else None
    cache = None
    if dataset.store is not None:
        saved = dataset.store.path.with_name(f"{dataset.store.path.name}.artefacts")
        cache = StatisticsCache(saved) if saved.exists() else None
    with engine_for(dataset) as engine:
        if noise is not None:
            return noisy_sums_of(dataset, Noise.of(noise, dataset), engine)
        return sums_of(dataset, weight_dtype=dtype, engine=engine, cache=cache)


def part_of_check(selection: Selection, X: Any, Y: Any, sample_weight: Any) -> PartShare:
    """Return the share of some rows in a check. See `dsel.check_part`."""
    dataset = as_dataset(X, Y, sample_weight=sample_weight)
    with engine_for(dataset) as engine:
        return part_share(selection, dataset, engine)
