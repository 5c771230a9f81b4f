"""Select on subsamples of the rows, whose Gram matrices come from one pass.

The rows are divided into parts once, and the pass sums the Gram matrix of each part. A subsample is a set of parts, and
its Gram matrix is the sum of theirs. With parts that are drawn at random, half of the parts is a random half of the
rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel._lib.versions import versions
from dsel.config.request import SCALED, SelectionRequest
from dsel.config.size_rule import RowSplit, check_split
from dsel.data.dataset import Dataset
from dsel.data.divide_rows import partition_rows
from dsel.errors import DataError, OptionError
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.registry import find_loss
from dsel.passes.columns.column_statistics import ScalesOfParts
from dsel.passes.data_pass import log_passes
from dsel.passes.finite_values import naming_columns
from dsel.passes.loss_data import loss_targets, read_columns
from dsel.passes.statistics import Statistics, combined
from dsel.planning.representations.representation import Prepared
from dsel.planning.validation import ValidatedRequest, validate
from dsel.selection.context import RunContext
from dsel.selection.loss_notes import INFINITE, NO_FINITE
from dsel.selection.near_copies import one_of_each
from dsel.selection.pipeline import LONG_SECONDS, plan_selection, run_validated
from dsel.selection.result import Selection
from dsel.selection.search_sizes import subsets_of_part
from dsel.selection.stability.result import Stability

log = logging.getLogger("dsel")

Resample = Literal["pairs", "halves", "bootstrap"]
_WORDS = {"pairs": "halves in complementary pairs", "halves": "halves", "bootstrap": "bootstrap samples"}
#: Newton steps to the intercept without columns.
_STEPS = 20


def run_stability(
    dataset: Dataset, request: SelectionRequest, context: RunContext, *, resample: Resample = "pairs",
    samples: int = 100, parts: int = 20, split: RowSplit = "random", row_groups: Any = None,
) -> Stability:  # fmt: skip
    """Return how often each column is chosen on subsamples. See `dsel.stability`."""
    began = time.monotonic()
    asked, rows = request, None
    notes: tuple[str, ...] = ()
    if find_loss(request.loss).name != "squared":
        rows, dataset, request, notes = _quadratic_model(dataset, request, context)
        context = replace(context, cache=None)  # its statistics are those of the data as they are
    validated = _validated(dataset, request, resample, samples, parts, split, row_groups)
    plan = plan_selection(validated, context).require()
    for line in plan.lines():
        log.debug("plan: %s", line)
    with log_passes() as made, naming_columns(dataset):
        prepared = plan.chosen.prepare(validated, context.engine, context.cache)
    unusable = prepared.statistics.unusable(request.preprocess)
    whole = prepared.objective(request.lam)
    validated, copies = one_of_each(validated, prepared.statistics, whole, context.engine)
    for note in copies.notes:
        log.info("%s", note)
    assert prepared.folds is not None
    sums = [prepared.folds[key] for key in sorted(prepared.folds)]
    if len(sums) < parts:
        raise DataError(f"{parts - len(sums)} of {parts} parts have no row of weight above 0.", "Take fewer parts.")
    assert validated.partition is not None
    partition, about = validated.partition, prepared.statistics.mean_x
    scales = None if rows is None else ScalesOfParts(rows, partition, about, asked, context.engine)
    if asked.preprocess in SCALED and scales is not None:  # its samples are scaled
        unscaled = "center" if request.preprocess == "standardize" else "none"
        validated = replace(validated, request=request.model_copy(update={"preprocess": unscaled}))
    counts = list(_draws(resample, samples, parts, request.seed))
    frequencies = np.zeros((request.limit, validated.items.size))
    chosen = np.zeros(request.limit)
    started = time.monotonic()
    for number, times in enumerate(counts):
        if number == 1 and (left := (time.monotonic() - started) * (len(counts) - 1)) > LONG_SECONDS:
            log.warning("the other %d subsamples are expected to take about %.0f s", len(counts) - 1, left)
        sample = combined(sums, times.tolist())
        if scales is not None:  # those by the weights of the rows, as a loss has them: its model has others
            scale = sample.scaling(asked.preprocess).scale_x
            if asked.scales_matter:
                scale = scales.of(np.tensordot(times, scales.sums(), 1))
            sample = sample.in_units(scale)
        frequencies += _selected(dataset, validated, context, prepared, sample, number, chosen)
        if (number + 1) % max(1, len(counts) // 5) == 0:
            log.info("subsample %d of %d", number + 1, len(counts))
    base = validated.items.of(validated.include)
    usable = np.setdiff1d(np.flatnonzero(~unusable), [*validated.exclude, *validated.include])
    candidates = validated.items.count(usable)
    divided = partition.description.replace("folds", "parts of the rows")
    weight = asked.sample_weight
    named = weight if weight is None or isinstance(weight, str | bool) else "data in memory"
    loss = find_loss(asked.loss).name if isinstance(asked.loss, Loss) else asked.loss
    changes = {"sample_weight": named, "loss": loss, "offset": None}
    recorded = asked.model_copy(update=changes).model_dump(mode="json", exclude={"criterion", "choose_k", "max_k"})
    return Stability(
        names=tuple(dict.fromkeys(validated.items.label(j, dataset.names) for j in range(dataset.n))),
        frequencies=frequencies / len(counts), chosen=chosen / len(counts), candidates=candidates,
        included=tuple(int(j) for j in base), resample=resample, samples=len(counts), parts=parts,
        description=f"{len(counts)} {_WORDS[resample]} of {divided}", request=recorded, shape=(dataset.m, dataset.n),
        source=dataset.name, passes=made.passes, bytes_read=made.bytes_read, seconds=time.monotonic() - began,
        versions=versions(), notes=notes,
    )  # fmt: skip


def _quadratic_model(
    dataset: Dataset, request: SelectionRequest, context: RunContext
) -> tuple[Dataset, Dataset, SelectionRequest, tuple[str, ...]]:
    """Return the data, and a quadratic model of a loss about its best subset of all rows as weighted least squares.

    Subsamples are selected by this model: the best subset of all rows tells the weights and targets of the rows. Also
    returns notes on columns of this subset whose coefficients have no end.
    """
    validated = validate(dataset, request)
    assert validated.loss is not None
    best = run_validated(validated, replace(context, state=None, on_slice=None, compare=None))
    model = _modelled_rows(validated.dataset, best, request.missing == "mean")
    preprocess = request.preprocess
    if not validated.loss.has_intercept:  # a constant changes nothing, so the model has one
        preprocess = "standardize" if preprocess in SCALED else "center"
    asked = {
        "loss": "squared",
        "offset": None,
        "class_weight": None,
        "sample_weight": "model",
        "preprocess": preprocess,
    }
    endless = [note.split(":")[0] for note in best.notes if INFINITE in note or note.startswith(NO_FINITE)]
    notes = tuple(f"on all rows, {words}: shares are from a model between that fit and no columns" for words in endless)
    return validated.dataset, model, request.model_copy(update=asked), notes


def _validated(
    dataset: Dataset, request: SelectionRequest, resample: Resample, samples: int, parts: int, split: RowSplit,
    row_groups: Any,
) -> ValidatedRequest:  # fmt: skip
    """Return the request with the parts of the rows. Errors: OptionError for what does not fit."""
    if resample not in get_args(Resample):
        raise OptionError(f"resample is {resample!r}.", f"One of {', '.join(get_args(Resample))}.")
    if samples < 2 or (resample == "pairs" and samples % 2):
        raise OptionError(f"samples is {samples}.", "It must be at least 2, and even for pairs.")
    if parts < 4 or (resample != "bootstrap" and parts % 2):
        raise OptionError(f"parts is {parts}.", "It must be at least 4, and even: half of the parts is a subsample.")
    if split not in ("random", "blocks"):
        raise OptionError(f"split is {split!r}.", "One of random, blocks.")
    if request.k == "auto":
        raise OptionError("k is auto, but stability selection needs a number.", "Give the largest size as k.")
    if request.criterion is not None:
        raise OptionError("Stability selection cannot use a criterion: it has Gram matrices only.", "Leave it out.")
    try:
        if not isinstance(split, str):
            raise ValueError("split must be random, blocks or forward: subsamples are made of parts of equal size")
        check_split(split, 1, row_groups)
    except ValueError as error:
        raise OptionError(f"{error}.") from error
    validated = validate(dataset, request)
    if validated.method.uses_rows:
        raise OptionError(
            f"{validated.method.name} needs the rows of a subsample: stability selection has Gram matrices only.",
            "Use a method such as forward or poss.",
        )
    partition = partition_rows(
        dataset, folds=parts, split=split, row_groups=row_groups, seed=request.seed, argument="parts"
    )
    requirements = replace(
        validated.requirements, whole_gram=True, gram_sums=parts, fewer_sums="fewer parts, at least 4 and even",
        row_bytes=partition.row_bytes,
        notes=(*validated.requirements.notes, f"the Gram matrices of {parts} parts of the rows take one pass"),
    )  # fmt: skip
    return replace(validated, partition=partition, requirements=requirements)


def _draws(resample: Resample, samples: int, parts: int, seed: int) -> Iterator[Ints]:
    """Yield how often each part is in each subsample."""
    rng = np.random.default_rng((seed, parts))
    for _ in range(samples // 2 if resample == "pairs" else samples):
        if resample == "bootstrap":
            yield np.bincount(rng.integers(0, parts, parts), minlength=parts)
            continue
        half = np.zeros(parts, np.int64)
        half[rng.permutation(parts)[: parts // 2]] = 1
        yield half
        if resample == "pairs":
            yield 1 - half


def _selected(
    dataset: Dataset, validated: ValidatedRequest, context: RunContext, prepared: Prepared, sample: Statistics,
    number: int, chosen: Floats,
) -> Floats:  # fmt: skip
    """Return (k, p) whether each column, or group, is in the best subset of each size.

    chosen: (k,) to which the sizes without included columns are added.
    """
    request, items = validated.request, validated.items
    subsets = subsets_of_part(
        dataset, validated, replace(context, state=None), prepared, sample, f"Subsample {number + 1} has",
        "divide the rows into more parts",
    )  # fmt: skip
    is_chosen = np.zeros((request.limit, items.size))
    for size in range(1, request.limit + 1):
        members = subsets[min(max(size - validated.included, 0), len(subsets) - 1)]
        is_chosen[size - 1, items.of([*validated.include.tolist(), *members])] = 1.0
        chosen[size - 1] += items.count(members)
    return is_chosen


def _modelled_rows(dataset: Dataset, selection: Selection, filled: bool) -> Dataset:
    """Return the data with the weights and targets of a quadratic model about a selection. One pass over its columns.

    Rows whose curvature at the selection is small have one between it and no columns, see `LossOfRows.model_to_null`.

    filled: whether missing values are replaced by the means of the selection.
    """
    targets = loss_targets(dataset)
    fill = np.zeros(dataset.n)
    if filled and selection.fill is not None:
        fill[list(selection.indices)] = selection.fill
    S = np.sort(np.array(selection.indices, np.int64))
    X = read_columns(dataset, S, fill if filled else None)
    coefficients = selection.coefficients[np.argsort(selection.indices, kind="stable")]
    loss = selection.loss
    scores = X @ coefficients + selection.intercept
    eta = scores[:, 0] if loss.contrasts is None else scores @ loss.contrasts
    y = loss.encode(targets.y)
    w = loss.row_weights(y, targets.w)
    at = eta if targets.offset is None else (eta.T + targets.offset).T
    rows = loss.of_rows(y, np.ones(dataset.m) if w is None else w)
    null = np.zeros_like(at) if targets.offset is None else at - eta
    for _ in range(_STEPS if loss.has_intercept else 0):
        weight, step = rows.working_response(null)
        null = null - np.average(step, axis=0, weights=weight)
    weight, step = rows.model_to_null(at, null)
    return dataset.with_rows("model", weight, (eta - step).reshape(dataset.m, -1))
