"""The check of ``k="auto"`` before any data are read: the rule, the upper limit, and the rows that it needs."""

from __future__ import annotations

from dataclasses import dataclass

from dsel._lib.text import counted
from dsel.config.request import SelectionRequest
from dsel.config.size_rule import INFORMATION, LEFT_OUT, SizeRule
from dsel.data.dataset import Dataset
from dsel.data.divide_rows import partition_rows
from dsel.data.row_partition import RowPartition
from dsel.errors import OptionError
from dsel.objective.losses.loss import Loss
from dsel.passes.cross_validation.held_out import held_out_dataset
from dsel.search.method import CrossValidation, Method, Options

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
    dataset: Dataset, request: SelectionRequest, method: Method, options: Options, included: int, allowed: int,
    loss: Loss | None = None,
) -> SizePlan:  # fmt: skip
    """Return the rule of an automatic k and what it needs, and the request with the upper limit.

    included, allowed: how many columns, or groups of columns, are always chosen, and may be chosen with these. Errors:
    OptionError where the rule does not go with the method or the data.
    """
    if request.k != "auto":
        return SizePlan(request)
    rule = resolved_rule(request.choose_k or SizeRule(), method, loss)
    _check_method(rule, method, options)
    if rule.by in INFORMATION and not dataset.n_targets:
        raise OptionError(f"choose_k {rule.by} needs targets Y.", "Give Y, or k as a number.")
    partition: RowPartition | None = None
    held_out: Dataset | None = None
    notes: tuple[str, ...] = ()
    if rule.by == "cp" and dataset.counting <= dataset.n + 1:  # the rank is known after the pass
        rows, columns = counted(dataset.counting, "row"), counted(dataset.n, "column")
        notes = (f"Cp needs more rows than independent columns, and there are {rows} and {columns}",)
    folds = rule.by == "folds" or (rule.by in LEFT_OUT and rule.held_out is None)
    if not method.uses_rows and (folds or isinstance(rule.held_out, float)):
        share = None if folds else rule.held_out
        partition = partition_of(dataset, rule, rule.folds, request.seed, share)
    elif not method.uses_rows and rule.by == "held-out":
        if not dataset.n_targets:
            raise OptionError(
                "choose_k: held-out rows in another store need targets Y.", "Hold out a share of the rows."
            )
        held_out = held_out_dataset(dataset, rule.held_out)
    if partition is not None:
        notes = (_note_of_folds(partition, rule, loss),)
    trained = dataset.m if partition is None else partition.fewest_trained
    trained = trained * dataset.counting // dataset.m
    most = min(MOST_COLUMNS, allowed, max(1, trained // _ROWS_PER_COLUMN))
    limit = max(most, included, 1) if request.max_k is None else min(request.max_k, allowed)
    request = request.model_copy(update={"max_k": max(limit, included)})
    return SizePlan(request, rule, partition, held_out, notes)


def _note_of_folds(partition: RowPartition, rule: SizeRule, loss: Loss | None) -> str:
    """Return what the folds cost. Errors: OptionError for a standard error that one test does not have."""
    if loss is None:
        return f"k is chosen by {partition.description}: their errors take no further pass"
    models = sum(1 for _ in partition.tests())
    if rule.one_standard_error and models == 1 and (rule.by == "auc" or not loss.by_rows):
        what = "AUC" if rule.by == "auc" else f"{loss.name} deviance"
        raise OptionError(
            f"one_standard_error: the {what} of one set of tested rows is no mean over rows. It has no standard error.",
            "Leave it out, or choose by several folds.",
        )
    return f"k is chosen by {partition.description}: the search runs {counted(models, 'more time')}, on the other rows"


def resolved_rule(rule: SizeRule, method: Method, loss: Loss | None) -> SizeRule:
    """Return the rule with its criterion. Errors: OptionError for a criterion that does not go with the loss."""
    if loss is not None and loss.name != "squared":
        return _size_rule_of_loss(rule, loss)
    by = rule.by or ("held-out" if rule.held_out is not None else "path" if method.uses_rows else "folds")
    if by in ("auc", "log-loss"):
        raise OptionError(f"choose_k {by} needs a loss for classes.", 'Use loss="logistic" or "multinomial".')
    return rule.model_copy(update={"by": by})


def _size_rule_of_loss(rule: SizeRule, loss: Loss) -> SizeRule:
    """Return the rule for a loss: an information criterion, by default BIC, or left-out rows."""
    divided = (
        "held-out" if rule.held_out is not None else "folds" if rule.divides_rows or rule.one_standard_error else "bic"
    )
    by = rule.by or divided
    if by not in ("aic", "bic", "ebic", *LEFT_OUT):
        raise OptionError(
            f'choose_k {by} is for the squared error, and the loss is "{loss.name}".',
            "Choose by folds, held-out, bic, aic or ebic.",
        )
    if by in ("auc", "log-loss") and not loss.classifies:
        raise OptionError(
            f'choose_k {by} is for classes, and the loss is "{loss.name}".',
            "Choose by folds, which compares deviances.",
        )
    if rule.held_out is not None and not isinstance(rule.held_out, float):
        raise OptionError(
            f'choose_k: with the loss "{loss.name}", held_out is a share of the rows.', "Give a share, such as 0.2."
        )
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


def partition_of(
    dataset: Dataset, rule: SizeRule | CrossValidation, folds: int, seed: int, held_out: float | None = None
) -> RowPartition:
    """Return the folds that a rule asks for, or with a share `held_out` the rows to train on and the others."""
    return partition_rows(
        dataset, folds=folds, split=rule.split, row_groups=rule.row_groups, held_out=held_out, seed=seed,
        repeats=rule.repeats if held_out is None else 1, gap=rule.gap if held_out is None else 0,
    )  # fmt: skip
