"""Every check of a request that needs the labels and shape of the data, or the methods, and no pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from dsel._lib.text import counted, counted_items, noun, shorten
from dsel.config.import_path import load_function
from dsel.config.request import SelectionRequest
from dsel.config.size_rule import INFORMATION, SizeRule
from dsel.config.types import first_error, suggest_option
from dsel.data.column_groups import (
    ColumnGroups,
    Items,
    SingleColumns,
    column_groups,
    grouped_categories,
    named_columns,
)
from dsel.data.dataset import Dataset
from dsel.data.divide_rows import split_held_out
from dsel.data.labels import format_labels
from dsel.data.offset import with_offset
from dsel.data.row_partition import RowPartition
from dsel.data.schema import SOURCE
from dsel.errors import OptionError
from dsel.objective.groups import items_of
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.registry import find_loss
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.passes.cross_validation.held_out import held_out_dataset
from dsel.passes.cross_validation.rows import check_intercept
from dsel.passes.finite_values import naming_columns, require_finite
from dsel.passes.loss_data import keeps, loss_targets, too_many_rows
from dsel.passes.statistics import ColumnScales
from dsel.passes.sums import Sums, needs_rows
from dsel.planning.size_plan import MOST_COLUMNS, partition_of, plan_size
from dsel.search.method import CrossValidation, Method, Options, ProblemSummary, Requirements
from dsel.search.placement import Placement, Site
from dsel.search.registry import METHODS, find_method, methods_with

#: Of data with as many columns, the indicator columns of categories are not grouped by default: groups need their whole
#: Gram matrix.
MOST_GROUPED = 10_000
_NO_FOLDS = 'choose_k="ebic" (or another criterion), which sums no Gram matrix for each part of the rows'


@dataclass(frozen=True)
class ValidatedRequest:
    """A request after every check that needs no pass over the data.

    Parameters
    ----------
    dataset : Dataset
        The rows to select on: all, or the others where a share is held out.
    request : SelectionRequest
        What was asked. An automatic k has its upper limit.
    method : Method
        The method of that name.
    options : Options
        The method's own options, with their defaults.
    include, exclude : (i,) arrays of int
        Ascending 0-based columns that are always or never chosen.
    requirements : Requirements
        What the method needs for this request.
    summary : ProblemSummary
        The numbers of the problem.
    criterion : callable, optional
        The user's criterion.
    held_out : Dataset, optional
        Rows that every step of the method is tested on.
    size_rule : SizeRule, optional
        How the number of columns is chosen, with `by` resolved.
    partition : RowPartition, optional
        The parts of the rows whose Gram matrices the pass sums.
    groups : ColumnGroups, optional
        The groups of columns that are chosen together.
    loss : Loss, optional
        The loss that is minimized; None for the squared error.
    loss_folds : RowPartition, optional
        The folds by which the number of columns is chosen for a loss.
    """

    dataset: Dataset
    request: SelectionRequest
    method: Method
    options: Options
    include: NDArray[np.int64]
    exclude: NDArray[np.int64]
    requirements: Requirements
    summary: ProblemSummary
    criterion: Callable[..., float] | None = None
    held_out: Dataset | None = None
    size_rule: SizeRule | None = None
    partition: RowPartition | None = None
    groups: ColumnGroups | None = None
    loss: Loss | None = None
    loss_folds: RowPartition | None = None

    def placed(self, site: Site) -> Placement:
        """Return where the search runs."""
        summary = self.summary
        if self.groups is not None:
            summary = replace(
                summary, n=len(self.groups.names), included=self.included,
                excluded=len(self.groups.of(self.exclude)), grouped=True,
            )  # fmt: skip
        return self.method.place(summary, self.options, site)

    @property
    def included(self) -> int:
        """How many columns, or groups of columns, are always chosen."""
        return self.items.count(self.include)

    @property
    def most_columns(self) -> int:
        """How many columns are chosen at most."""
        return self.items.most_columns(self.request.limit)

    @property
    def items(self) -> Items:
        """What is chosen: groups of columns, if there are any, or single columns."""
        return self.groups or SingleColumns(self.summary.n)

    def useless(self, statistics: ColumnScales) -> NDArray[np.bool_]:
        """Return (n,) which columns explain nothing: constant ones, too, where the loss has no intercept to learn."""
        needs_no_constant = self.loss is not None and not self.loss.has_intercept
        return statistics.unusable("center" if needs_no_constant else self.request.preprocess)

    def subject(self, objective: Objective) -> ItemObjective:
        """Return the objective over what is chosen, from that over the columns that may be chosen."""
        return items_of(objective, self.items.local(objective.columns), self.included)


def validate(dataset: Dataset, request: SelectionRequest) -> ValidatedRequest:
    """Return the request with its method, options and columns resolved.

    Parameters
    ----------
    dataset : Dataset
        The data. Nothing but labels and shapes is used, and targets in memory next to a store.
    request : SelectionRequest
        What was asked.

    Returns
    -------
    ValidatedRequest
        The request, which can be planned and run.

    Raises
    ------
    OptionError
        The request does not fit the method or the data.
    CapacityError
        The option `memory` is too small to begin with.
    MissingInputError, DataError
        The held-out rows cannot be used.
    """
    method = find_method(request.method)
    request = _with_own_loss(method, request)
    options = _options(method, request)
    n = dataset.n
    if method.unsupervised_only and dataset.n_targets:
        raise OptionError(f"{method.name} selects columns for X itself (Y = X).", "Leave Y out, or choose another.")
    if method.uses_rows and not dataset.n_targets:
        raise OptionError(f"{method.name} needs targets Y.", "Give Y, or choose another method.")
    _require_finite_targets(dataset)
    loss = _loss(dataset, request, method)
    if loss is not None:
        _require_fit(method, options.conflict_with_loss())
    if loss is not None and request.offset is not None:
        dataset = with_offset(dataset, request.offset)
    request = with_category_groups(dataset, request)
    groups = _groups(dataset, request, method, options)
    items = groups or SingleColumns(n)
    _require_enough(items, request)
    include, exclude = _columns(dataset, request, items)
    count = items.count
    if isinstance(dataset, Sums):
        _require_no_rows(request, method)
    size = plan_size(dataset, request, method, options, count(include), count(np.delete(np.arange(n), exclude)), loss)
    request = size.request
    criterion = load_function(request.criterion) if isinstance(request.criterion, str) else request.criterion
    summary = ProblemSummary(
        dataset.m, n, dataset.n_targets, request.limit, count(include), exclude.size, request.lam, criterion is not None
    )
    requirements = method.requirements(summary, size.options(options))
    if request.polish != "none":  # exchanges need rows of many columns
        requirements = replace(requirements, few_columns=False)
    partition, held_out = size.partition, size.held_out
    scored = requirements.cross_validation
    if scored is not None:
        _check_scoring(dataset, request, scored)
        dataset, held_out = _held_out(dataset, request, scored)
        if scored.folds:
            partition = partition_of(dataset, scored, scored.folds, request.seed)
    if groups is not None:
        requirements = replace(requirements, whole_gram=True, iterations=None)
    requirements = replace(requirements, notes=(*requirements.notes, *size.notes))
    if loss is None and partition is not None:
        requirements = replace(
            requirements, whole_gram=scored is None or scored.whole_gram, gram_sums=partition.parts * partition.repeats,
            fewer_sums="fewer folds" if scored is not None else _NO_FOLDS, row_bytes=partition.row_bytes,
        )  # fmt: skip
    if request.reduce is not None:
        _check_reduction(request, requirements)
    return ValidatedRequest(
        dataset, request, method, options, include, exclude, requirements, summary, criterion, held_out, size.rule,
        None if loss is not None else partition, groups, loss, None if loss is None else partition,
    )  # fmt: skip


def _with_own_loss(method: Method, request: SelectionRequest) -> SelectionRequest:
    """Return the request with the loss as an option, if the method has custom losses: those on left-out rows."""
    if "loss" not in method.options.model_fields:
        return request
    return request.model_copy(update={"loss": "squared", "options": {"loss": request.loss, **request.options}})


def _without_weight(dataset: Dataset) -> list[str]:
    """Return the columns of classes in memory of which no row has a weight."""
    if dataset.weights is None or not (dataset.in_memory and dataset.blocks and dataset.n_targets > 1):
        return []
    found = loss_targets(dataset)
    assert found.w is not None
    seen = found.y[found.w > 0.0].any(axis=0)
    return [str(label) for label in dataset.targets[~seen]]


def _loss(dataset: Dataset, request: SelectionRequest, method: Method) -> Loss | None:
    """Return the loss to minimize, or None for the squared error. Errors: OptionError where it cannot be used."""
    loss = find_loss(request.loss)
    if request.class_weight is not None and not loss.classifies:
        raise OptionError(
            f'class_weight is for classes, and the loss is "{loss.name}".',
            'Use loss="logistic" or loss="multinomial", or give weights of rows by sample_weight.',
        )
    if loss.name == "squared":
        if request.offset is not None:
            raise OptionError("offset needs a loss other than the squared error.", "Subtract it from the target.")
        return None
    name = f'loss="{loss.name}"'
    if isinstance(dataset, Sums):
        raise OptionError(f"{name} needs the rows of the data: sums have the squared error only.", "Leave loss out.")
    many = loss.contrasts is not None
    if dataset.n_targets != loss.target_columns and not (many and dataset.n_targets > 2):
        several = loss.target_columns > 1
        remedy = "Name them with targets, or give Y with these columns." if several else "Name one with targets."
        if loss.classifies:
            more = 'For three or more classes use loss="multinomial".'
            remedy = 'For two classes use loss="logistic".' if many else f"{remedy} {more}"
        if loss.classifies and (empty := _without_weight(dataset)):
            remedy = f"Leave out the rows of {shorten(empty)}: all of them have weight 0."
        raise OptionError(f"{name} takes {loss.target_words}, and there are {dataset.n_targets}.", remedy)
    if dataset.classes and not loss.classifies and loss.target_columns > 1:
        target, levels = next(iter(dataset.classes.items()))
        raise OptionError(
            f"{name} takes numbers and booleans, and the target {target} has the classes {shorten(levels)}.",
            "Give 1 and 0, or booleans: which class counts as an event is then clear.",
        )
    if dataset.classes and not loss.classifies:
        target, levels = next(iter(dataset.classes.items()))
        raise OptionError(
            f"{name} is for numbers, and the target {target} has the classes {shorten(levels)}.",
            f'Use loss="{"logistic" if len(levels) == 2 else "multinomial"}", or give numbers.',
        )
    if many and request.offset is not None:
        raise OptionError(f"{name} takes no offset: one for all classes changes nothing.", "Leave offset out.")
    if not method.takes_loss:
        raise OptionError(
            f"{method.name} scores squared errors on left-out rows, and takes no other loss.",
            f"Use one of {', '.join(methods_with('takes_loss'))}.",
        )
    most = request.limit if request.k != "auto" else min(request.max_k or MOST_COLUMNS, dataset.n)
    if not loss.by_rows and not keeps(dataset, most, loss):
        raise too_many_rows(loss, dataset, most)
    refused = {
        "criterion": request.criterion is not None, "reduce": request.reduce is not None,
        "polish": request.polish != "none",
    }  # fmt: skip
    for option, given in refused.items():
        if given:
            raise OptionError(f"{name} does not go together with {option}.", f"Leave {option} out.")
    if request.class_weight is not None:
        return replace(loss, class_weight=_class_weight(dataset, request.class_weight))  # type: ignore[type-var]
    return loss


def _class_weight(dataset: Dataset, asked: Any) -> Any:
    """Return weights of classes by the numbers that stand for the classes. Errors: OptionError for an unknown class."""
    levels = list(next(iter(dataset.classes.values()), []))
    if not isinstance(asked, Mapping) or not levels:
        return asked
    unknown = [name for name in asked if name not in levels]
    if unknown:
        raise OptionError(f"class_weight has the class {unknown[0]!r}.", f"The classes are {shorten(levels)}.")
    return {levels.index(name): weight for name, weight in asked.items()}


def _require_no_rows(request: SelectionRequest, method: Method) -> None:
    """Raise OptionError for what needs rows, where there are only sums of them."""
    rule = request.choose_k or SizeRule()
    by = rule.by or ("folds" if rule.held_out is None else "held-out")
    if method.uses_rows:
        raise needs_rows(method.name)
    if request.k == "auto" and by not in INFORMATION:
        raise needs_rows(f'k="auto" by {by}')
    if request.criterion is not None:
        raise needs_rows("A criterion")
    if request.reduce is not None:
        raise needs_rows("reduce")
    if request.missing == "mean":
        raise OptionError("missing is mean, but sums have no missing values.", "Leave missing out.")


def _check_reduction(request: SelectionRequest, requirements: Requirements) -> None:
    """Raise OptionError if the request cannot run on a reduced problem."""
    if requirements.cross_validation is not None or requirements.gram_sums > 1:
        raise OptionError(
            "reduce: a reduced problem has no rows that could be left out, as cross-validation needs.",
            "Leave reduce out, or use a method and a k without folds.",
        )
    if request.criterion is not None:
        raise OptionError("reduce changes no criterion, which is a function of the columns.", "Leave reduce out.")
    assert request.reduce is not None
    if request.reduce.most < request.limit:
        raise OptionError(f"reduce has rank {request.reduce.most}, and k is {request.limit}.", "Use a larger rank.")


def _options(method: Method, request: SelectionRequest) -> Options:
    """Return the method's options. Errors: OptionError, also where they do not go with the criterion."""
    for name in request.options:
        if name not in method.options.model_fields and name in SelectionRequest.model_fields:
            raise OptionError(f"{name!r} is not an option of {method.name}.", "Write it next to options, not there.")
    try:
        options = method.options(**request.options)
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] != "extra_forbidden":
            raise OptionError(f"Options of {method.name}: {first_error(error, method.options)}") from error
        name = str(problem["loc"][0])
        known = [*method.options.model_fields, *SelectionRequest.model_fields]
        hint = suggest_option(name, known)
        if hint.startswith("Known"):
            own = ", ".join(method.options.model_fields)
            hint = f"Its options: {own}." if own else "It takes none: leave options out, in a job file the whole key."
        if name.rstrip("s") in ("cost", "price", "budget"):
            hint = 'A criterion can limit the costs: see "Costs of columns" on the page "Write a criterion".'
        raise OptionError(f"{method.name} has no option {name!r}.", hint) from error
    by_criterion = request.criterion is not None
    if by_criterion and not method.takes_criterion:
        able = ", ".join(methods_with("takes_criterion"))
        raise OptionError(f"{method.name} does not take a criterion.", f"Use one of {able}.")
    if request.polish != "none" and (by_criterion or method.uses_rows):
        raise OptionError(
            f"polish: {request.polish} lowers the error of the fit, which is not what {method.name} minimizes here.",
            "Leave polish out.",
        )
    _require_fit(method, options.conflict(by_criterion))
    return options.resolved(by_criterion)


def _require_finite_targets(dataset: Dataset) -> None:
    """Raise DataError where targets in memory next to a store are not finite."""
    if dataset.has_given_targets:
        with naming_columns(dataset):
            for block in dataset.blocks:
                require_finite(np.asarray(block.y, np.float64), "X", "Y", block.start)


def _require_enough(items: Items, request: SelectionRequest) -> None:
    """Raise OptionError for a number k of more columns or groups than there are."""
    if request.k != "auto" and request.limit > items.size:
        counts = "k" if isinstance(items, SingleColumns) else "k counts groups: it"
        one_by_one = ', or use categories="columns"' if request.groups == SOURCE else ""
        raise OptionError(
            f"k is {request.k}, and X has {counted_items(items.size, items.noun)}.",
            f"{counts} is a whole number from 1 to {items.size}{one_by_one}.",
        )


def _require_fit(method: Method, conflict: str) -> None:
    """Raise OptionError for options that do not fit, which `conflict` says; an empty string for none."""
    if conflict:
        raise OptionError(f"Options of {method.name}: {conflict}.", "Leave it out.")


def _groups(dataset: Dataset, request: SelectionRequest, method: Method, options: Options) -> ColumnGroups | None:
    """Return the groups of columns, if there are any."""
    if request.groups is None:
        return None
    if not method.takes_groups:
        names = methods_with("takes_groups")
        able = ", ".join(name for name in names if not (dataset.n_targets and METHODS[name].unsupervised_only))
        raise OptionError(f"{method.name} cannot choose groups of columns: {method.no_groups}.", f"Use one of {able}.")
    _require_fit(method, options.conflict_with_groups())
    return column_groups(dataset, request.groups, request.categories == "groups")


def with_category_groups(dataset: Dataset, request: SelectionRequest) -> SelectionRequest:
    """Return the request with the indicator columns of each category as a group, where that is the default.

    That is so for frames and stores with a category that is not excluded, if the method can choose groups and the data
    are not too wide for their search.
    Errors: OptionError where categories are refused.
    """
    if request.groups is not None or dataset.categories is None or request.categories == "columns":
        return request
    if request.categories == "refuse":
        labels = zip(dataset.features, dataset.categories, strict=True)
        named = dict.fromkeys(repr(source) for label, source in labels if label != source)
        raise OptionError(
            f"{counted(len(named), 'column')} became indicator columns of categories: {shorten(named)}.",
            'Exclude them, or use categories="groups".',
        )
    if not grouped_categories(dataset, request.exclude):
        return request
    method = find_method(request.method)
    able = method.takes_groups and not _options(method, request).conflict_with_groups() and request.criterion is None
    return request.model_copy(update={"groups": SOURCE}) if able and dataset.n < MOST_GROUPED else request


def _columns(dataset: Dataset, request: SelectionRequest, items: Items) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ascending indices of the included and excluded columns. With groups, a column stands for its group."""
    targets = {str(name) for name in dataset.targets} - {str(name) for name in dataset.features}
    for argument in ("include", "exclude"):
        named = [name for name in getattr(request, argument) if isinstance(name, str) and name in targets]
        if named:
            raise OptionError(
                f"{argument}: {named[0]!r} is a target.", f"Leave it out of {argument}: no target is chosen."
            )
    include = named_columns(dataset, items, request.include, "include")
    wanted = [column for column in request.exclude if column not in dataset.left_out]
    exclude = named_columns(dataset, items, wanted, "exclude")
    both = np.intersect1d(include, exclude)
    if both.size:
        raise OptionError(
            f"{noun(both.size, 'Column')} {format_labels(dataset.features, both)} {'is' if both.size == 1 else 'are'} "
            "both included and excluded.",
            "Name each in one of the two.",
        )
    limit = request.max_k if request.k == "auto" else request.limit
    included = items.count(include)
    if limit is not None and included > limit:
        name, are = "max_k" if request.k == "auto" else "k", "is" if included == 1 else "are"
        raise OptionError(
            f"{counted_items(included, items.noun)} {are} included, and {name} is {limit}.",
            f"Raise {name} or include fewer.",
        )
    if exclude.size == dataset.n:
        raise OptionError("All columns are excluded: none is left to choose from.", "Exclude fewer.")
    return include, exclude


def _check_scoring(dataset: Dataset, request: SelectionRequest, scored: CrossValidation) -> None:
    """Check how a method scores subsets on left-out rows."""
    check_intercept(scored.intercept, request.preprocess)
    if isinstance(scored.rewrite_every, int) and (dataset.weighted or isinstance(scored.held_out, float)):
        why = "weights" if dataset.weighted else "a share of held-out rows"
        raise OptionError(
            f"rewrite_every is {scored.rewrite_every}, but the cache of {request.method} does not support {why}.",
            "Set rewrite_every: never, or leave out rewrite_every or the weights.",
        )


def _held_out(dataset: Dataset, request: SelectionRequest, scored: CrossValidation) -> tuple[Dataset, Dataset | None]:
    """Return the rows to select on, and the rows that every step is tested on."""
    if scored.held_out is None:
        return dataset, None
    if not isinstance(scored.held_out, float):
        return dataset, held_out_dataset(dataset, scored.held_out)
    return split_held_out(dataset, partition_of(dataset, scored, 0, request.seed, scored.held_out))
