"""What two selections have in common, and where they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.console import console_text, text_table
from dsel._lib.text import printable, shorten
from dsel.config.size_rule import SizeRule
from dsel.search.exact.certificate_words import scope
from dsel.selection.alternatives import changed_verdicts, other_subsets
from dsel.selection.result import Selection

#: Options that say how a method uses the machine.
_OF_THE_MACHINE = {f"options.{name}" for name in (
    "memory", "processes", "search_on", "evaluation_limit", "rewrite_every",
)}  # fmt: skip

#: Options that say how a search is divided.
_OF_SLICES = ("max_in_flight", "task_iterations")

#: What sets the unit and the rows of an error, in words. None stands for what is not known.
_OF_THE_ERROR: dict[str, Callable[[Selection], Any]] = {
    "number of rows": lambda s: s.shape[0],
    "targets": lambda s: (s.targets, s.unsupervised),
    "columns that are approximated": lambda s: s.approximated or None,
    "rows": lambda s: (s.request.rows,),
    "preprocess": lambda s: s.preprocess,
    "lam": lambda s: s.lam,
    "loss or its parameters": lambda s: (s.request.loss, _parameters(s)),
    "offset": lambda s: (s.request.offset,),
    "sample_weight": lambda s: (s.weights,),
    "class_weight": lambda s: (s.request.class_weight,),
    "sum of the weights": lambda s: None if s.weight_sum is None else f"{s.weight_sum:.9g}",
}

#: What changes the fingerprint of the same data.
_OF_THE_FINGERPRINT = ("rows", "offset", "sample_weight")


@dataclass(frozen=True)
class Comparison:
    """What two selections have in common, and where they differ.

    Parameters
    ----------
    names : tuple of str
        What to call the selections.
    figures : dict
        By name, a pair of values: columns, R2, error, criterion, bound on R2, iterations and seconds.
    options : dict
        By name, the pair of values of every option of the two requests that differs, without those of `machine`.
    in_common, only_first, only_second : tuple of str or int
        Labels of the chosen columns.
    verdicts : dict
        By label, the pair of verdicts of each column whose verdict differs, if both have alternatives.
    notes : tuple of str
        What limits the comparison, such as other data.
    machine : dict
        The same for options that say how a method uses the machine, such as its memory, if both methods have them.
    """

    names: tuple[str, str]
    figures: dict[str, tuple[Any, Any]]
    options: dict[str, tuple[Any, Any]]
    in_common: tuple[str | int, ...]
    only_first: tuple[str | int, ...]
    only_second: tuple[str | int, ...]
    verdicts: dict[str, tuple[str, str]]
    notes: tuple[str, ...] = ()
    machine: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.render()

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison, ready for JSON."""
        return asdict(self)

    def render(self, width: int | None = None) -> str:
        """Return the comparison as text for a terminal of this width."""
        table = text_table("", *map(printable, self.names), left=("",), fold=tuple(map(printable, self.names)))
        for name, pair in {**self.figures, **self.options}.items():
            table.add_row(name, *map({"groups": _groups_text, "choose_k": _rule_text}.get(name, _text), pair))
        groups = (
            ("In common", self.in_common), (f"Only in {self.names[0]}", self.only_first),
            (f"Only in {self.names[1]}", self.only_second),
        )  # fmt: skip
        lines = [
            f"{printable(title)} ({len(labels)}): {', '.join(map(printable, labels)) or 'none'}"
            for title, labels in groups
        ]
        if self.verdicts:
            changed = ", ".join(f"{printable(name)} ({old}, {new})" for name, (old, new) in self.verdicts.items())
            lines.append(f"Other verdicts ({len(self.verdicts)}): {changed}")
        if self.machine:
            texts = {name: format_bytes if name == "options.memory" else _text for name in self.machine}
            uses = (f"{name} {texts[name](a)}, {texts[name](b)}" for name, (a, b) in self.machine.items())
            lines.append(f"On the machine: {'; '.join(uses)}")
        return console_text([table, *lines, *(f"note: {note}" for note in self.notes)], width).removesuffix("\n")


def compare_selections(a: Selection, b: Selection, names: tuple[str, str] = ("a", "b")) -> Comparison:
    """Return what two selections have in common, and where they differ.

    Parameters
    ----------
    a, b : Selection
        The selections.
    names : tuple of str
        What to call them.

    Returns
    -------
    Comparison
        Columns are compared by label.

    Examples
    --------
    >>> import dsel, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 6))
    >>> Y = X[:, 1] + 0.5 * X[:, 4]
    >>> found = compare_selections(dsel.select(X, Y, k=1, method="omp"), dsel.select(X, Y, k=2, method="forward"))
    >>> found.in_common, found.only_second, found.options
    (('x1',), ('x4',), {'k': (1, 2), 'method': ('omp', 'forward')})
    """
    first, second, differences = set(a.names), set(b.names), _differences(a, b)
    in_both = _flat(a).keys() & _flat(b).keys() & _OF_THE_MACHINE
    return Comparison(
        names=names,
        figures={name: pair for name, pair in _figures(a, b).items() if pair != (None, None)},
        options={name: pair for name, pair in differences.items() if name not in _OF_THE_MACHINE},
        in_common=tuple(label for label in a.labels if str(label) in second),
        only_first=tuple(label for label in a.labels if str(label) not in second),
        only_second=tuple(label for label in b.labels if str(label) not in first),
        verdicts={**changed_verdicts(a.alternatives, b.alternatives)},
        notes=tuple(_notes(a, b, names)),
        machine={name: pair for name, pair in differences.items() if name in in_both},
    )


def _figures(a: Selection, b: Selection) -> dict[str, tuple[Any, Any]]:
    return {
        "columns": (len(a), len(b)),
        " or ".join(dict.fromkeys((a.share_name, b.share_name))): (a.r2, b.r2),
        "error": (a.error, b.error),
        "error of the best is at least": (_bound(a), _bound(b)),
        "criterion": (a.criterion, b.criterion),
        "iterations": (a.iterations, b.iterations),
        "seconds": (sum(a.seconds.values()), sum(b.seconds.values())),
    }


def _bound(selection: Selection) -> float | None:
    """Return the proved bound on the error for the chosen size, if there is a useful one."""
    row = _proof(selection)
    return None if row is None else float(row["value"] if row["proven"] else row["bound"])


def _proof(selection: Selection) -> dict[str, Any] | None:
    size = len(selection.groups) or len(selection)
    rows = (row for row in selection.certificate if row["size"] == size)
    return next((row for row in rows if row["status"] != "no-useful-bound"), None)


def _differences(a: Selection, b: Selection) -> dict[str, tuple[Any, Any]]:
    """Return every value of the two requests that differs; options of a method as options.NAME."""
    asked = [_flat(selection) for selection in (a, b)]
    names = dict.fromkeys([*asked[0], *asked[1]])
    pairs = {name: (asked[0].get(name), asked[1].get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _flat(selection: Selection) -> dict[str, Any]:
    values = selection.request.model_dump()
    options = values.pop("options")
    for name in ("include", "exclude"):
        values[name] = tuple(selection.label(j) if isinstance(j, int) else j for j in values[name])
    return {**values, **{f"options.{name}": value for name, value in options.items()}}


def _notes(a: Selection, b: Selection, names: tuple[str, str]) -> list[str]:
    notes = []
    for name, one in zip(names, (a, b), strict=True):
        proof = _proof(one)
        if proof is not None and (among := scope(proof)):
            notes.append(f"the error of the best in {name} is {among}")
    pairs = {name: (of(a), of(b)) for name, of in _OF_THE_ERROR.items()}
    differ = [name for name, pair in pairs.items() if None not in pair and pair[0] != pair[1]]
    read = any(pairs[name][0] != pairs[name][1] for name in _OF_THE_FINGERPRINT)
    if a.shape != b.shape or a.targets != b.targets:
        notes.append(f"the data differ: {_data(a)}; {_data(b)}")
    elif a.fingerprint is not None and b.fingerprint is not None and a.fingerprint != b.fingerprint and not read:
        notes.append(
            "the data have the same shape, but may have other values: compare the errors only if the targets are "
            "the same"
        )
    if differ:
        notes.append(f"the errors cannot be compared: the selections differ in {', '.join(differ)}")
    slices = [{name: one.options.get(name) for name in _OF_SLICES} for one in (a, b)]
    if any(None not in pair and pair[0] != pair[1] for pair in zip(*(one.values() for one in slices), strict=True)):
        notes.append(
            f"{' and '.join(_OF_SLICES)} divide a search into slices, and its result may depend on them; unless they "
            "are set, they follow from the numbers of columns"
        )
    if subsets := other_subsets(a.alternatives, b.alternatives):
        notes.append(f"the verdicts are about other subsets: {subsets}")
    return notes


def _parameters(selection: Selection) -> dict[str, str]:
    """Return the parameters of the loss as text, without the weights of classes."""
    rest = selection.loss_parameters.items()
    return {name: _text(value) for name, value in rest if name not in ("class_weight", "factors")}


def _data(selection: Selection) -> str:
    m, n = selection.shape
    return f"{m:,} x {n:,}, targets {', '.join(map(printable, selection.targets)) or 'none'}"


def _groups_text(groups: Any) -> str:
    """Return some groups with their numbers of columns."""
    return shorten([f"{printable(name)} ({len(columns)})" for name, columns in groups.items()], 3) if groups else "-"


def _rule_text(rule: dict[str, Any] | None) -> str:
    """Return what of a rule that chooses k differs from the defaults."""
    if rule is None:
        return "-"
    usual = SizeRule().model_dump()
    return ", ".join(f"{name} {_text(value)}" for name, value in rule.items() if value != usual[name]) or "default"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else printable(value)
