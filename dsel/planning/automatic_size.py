"""Check ``k="auto"`` before any data are read: the rule, the upper limit, and the rows that it needs."""

from __future__ import annotations

from dataclasses import dataclass

from dsel.config.request import SelectionRequest
from dsel.config.size_rule import SizeRule
from dsel.data.dataset import Dataset
from dsel.data.divide_rows import partition_rows
from dsel.data.row_partition import RowPartition
from dsel.errors import OptionError
from dsel.passes.cross_validation.held_out import held_out_dataset
from dsel.search.method import Method
from dsel.search.options import Options

#: The default upper limit of an automatic k.
MOST_COLUMNS = 30
#: By default the smallest training set has at least this many rows for each column.
_ROWS_PER_COLUMN = 3


@dataclass(frozen=True)
class SizePlan:
    """What an automatic k needs. All is None or empty for a given k, apart from the request."""

    request: SelectionRequest
    rule: SizeRule | None = None
    partition: RowPartition | None = None
    held_out: Dataset | None = None
    notes: tuple[str, ...] = ()

    def options(self, options: Options) -> Options:
        """Return the method's options, with the held-out rows of the rule for a method that has such an option."""
        if self.rule is None or self.rule.held_out is None or "held_out" not in type(options).model_fields:
            return options
        return options.model_copy(update={"held_out": self.rule.held_out})


def plan_size(
    dataset: Dataset, request: SelectionRequest, method: Method, options: Options, included: int, allowed: int
) -> SizePlan:
    """Return the rule of an automatic k and what it needs, and the request with the upper limit.

    included, allowed: how many columns, or groups of columns, are always chosen, and may be chosen with these. Errors:
    OptionError where the rule does not go with the method or the data.
    """
    if request.k != "auto":
        return SizePlan(request)
    rule = _resolved(request.choose_k or SizeRule(), method)
    _check_method(rule, method, options)
    if rule.by in ("bic", "ebic") and not dataset.n_targets:
        raise OptionError(f"choose_k {rule.by} needs targets Y.", "Choose by folds, or give Y.")
    partition: RowPartition | None = None
    held_out: Dataset | None = None
    notes: tuple[str, ...] = ()
    if not method.uses_rows and rule.by == "folds":
        partition = partition_rows(
            dataset, folds=rule.folds, split=rule.split, row_groups=rule.row_groups, repeats=rule.repeats,
            seed=request.seed,
        )  # fmt: skip
    elif not method.uses_rows and isinstance(rule.held_out, float):
        partition = partition_rows(
            dataset, split=rule.split, row_groups=rule.row_groups, held_out=rule.held_out, seed=request.seed
        )
    elif not method.uses_rows and rule.by == "held-out":
        if not dataset.n_targets:
            raise OptionError(
                "choose_k: held-out rows in another store need targets Y.", "Hold out a share of the rows."
            )
        held_out = held_out_dataset(dataset, rule.held_out)
    if partition is not None:
        notes = (f"k is chosen by {partition.description}: their errors take no further pass",)
    trained = dataset.m if partition is None else partition.fewest_trained
    most = min(MOST_COLUMNS, allowed, max(1, trained // _ROWS_PER_COLUMN))
    limit = max(most, included, 1) if request.max_k is None else min(request.max_k, allowed)
    request = request.model_copy(update={"max_k": max(limit, included)})
    return SizePlan(request, rule, partition, held_out, notes)


def _resolved(rule: SizeRule, method: Method) -> SizeRule:
    by = rule.by or ("held-out" if rule.held_out is not None else "path" if method.uses_rows else "folds")
    return rule.model_copy(update={"by": by})


def _check_method(rule: SizeRule, method: Method, options: Options) -> None:
    """Refuse a rule that does not go with the method."""
    if not method.uses_rows:
        if rule.by == "path":
            raise OptionError(
                f"choose_k path: {method.name} scores no subset on left-out rows.", "Choose by folds, bic or ebic."
            )
        return
    if rule.by == "folds":
        raise OptionError(
            f"choose_k folds: the steps of {method.name} have errors on left-out rows already.",
            "Choose by path. It is the default for this method.",
        )
    if getattr(options, "direction", "forward") == "backward":
        raise OptionError(
            f"k is auto, but {method.name} stops at k with direction backward.", "Use forward or floating."
        )
    if rule.by == "held-out" and getattr(options, "held_out", None) is not None:
        raise OptionError("held_out is given twice, in choose_k and in the options.", "Keep the one in choose_k.")
    if rule.split != "random" or rule.row_groups is not None:
        raise OptionError(
            f"choose_k: {method.name} divides the rows itself.", "Give split and row_groups as options of kfold."
        )
    if rule.one_standard_error:
        raise OptionError(
            f"choose_k: the errors of the steps of {method.name} have no standard error.",
            "Leave out one_standard_error, or use a method such as forward.",
        )
