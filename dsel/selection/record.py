"""What a selection found, as plain data: the columns, how good they are, how they were found, and the cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Floats
from dsel.config.request import Column, Preprocess, SelectionRequest
from dsel.data.labels import default_labels
from dsel.errors import OptionError
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.registry import find_loss
from dsel.search.exact.certificate import MOST_ROUNDING
from dsel.selection.alternatives import Alternatives, Substitute, few_to_substitute
from dsel.selection.class_figures import ClassFigures
from dsel.selection.record_values import ChosenStatistics, FrontRow, PathRow, SizeCurve, TraceRow
from dsel.selection.submodularity import Submodularity

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

FORMAT = 3
#: selection.json holds the coefficients, too, if there are at most this many.
_JSON_COEFFICIENTS = 10_000
#: Representations without the Gram matrix of all columns.
_WITHOUT_GRAM = ("column-blocks", "row-gram", "sketch")
#: Arrays by name, each with its dimensions.
Arrays = dict[str, tuple[NDArray[Any], tuple[str, ...]]]


@dataclass(frozen=True, eq=False)
class SelectionRecord:
    """The fields of a `Selection`, which describes them, and what follows from them alone.

    What draws, prints, saves or applies a selection takes a record, and `Selection` puts these uses on top.
    """

    indices: tuple[int, ...]
    labels: list[str | int]
    request: SelectionRequest
    error: float
    r2: float
    coefficients: NDArray[np.float64]
    intercept: NDArray[np.float64]
    front: tuple[FrontRow, ...]
    trace: tuple[TraceRow, ...]
    ended: str
    iterations: int
    shape: tuple[int, int]
    targets: tuple[str, ...]
    constant: tuple[str, ...] = ()
    counts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: str = ""
    fingerprint: str | None = None
    bytes_read: int = 0
    passes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[str, tuple[int, int]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    criterion: float | None = None
    certificate: tuple[dict[str, Any], ...] = ()
    path: tuple[PathRow, ...] = ()
    weights: str | None = None
    plan: dict[str, Any] | None = None
    fill: NDArray[np.float64] | None = None
    flat_target: bool = False
    size_curve: SizeCurve | None = None
    statistics: ChosenStatistics | None = None
    forward: tuple[FrontRow, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    column_labels: dict[int, str] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    changes: dict[str, Any] | None = None
    submodularity: Submodularity | None = None
    rank_error: float | None = None
    alternatives: Alternatives | None = None
    swaps: tuple[Substitute, ...] | None = None
    loss_parameters: dict[str, Any] = field(default_factory=dict)
    class_figures: ClassFigures | None = None
    classes: dict[str, list[str]] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    weight_sum: float | None = None
    numbered: bool = False
    approximated: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SelectionRecord):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return (
            json.dumps(self.as_dict(), sort_keys=True) == json.dumps(other.as_dict(), sort_keys=True)
            and mine.keys() == theirs.keys()
            and all(
                np.array_equal(array, theirs[name][0], equal_nan=array.dtype.kind == "f")
                for name, (array, _) in mine.items()
            )
        )

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def names(self) -> list[str]:
        """The labels as text."""
        return [str(label) for label in self.labels]

    @property
    def k(self) -> int:
        """The size limit, or the size that was chosen automatically."""
        return self.request.limit if self.size_curve is None else self.size_curve.k

    @property
    def counted_rows(self) -> str:
        """What shares of rows are about: the rows, or their weight."""
        return "rows" if self.weights is None else "weight of the rows"

    @property
    def rows_in_words(self) -> str:
        """The number of rows, and of those with a weight where others have weight 0."""
        there = self.counts.get("rows_with_weight")
        return f"{self.shape[0]:,} rows" + ("" if there is None else f", {there:,} of them with a weight")

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.request.method

    @property
    def options(self) -> dict[str, Any]:
        """The method's own options."""
        return self.request.options

    @property
    def loss(self) -> Loss:
        """What was minimized, with its classes or its scale. Errors: OptionError if it is of a package that is gone."""
        return find_loss(self.request.loss).restored(self.loss_parameters)

    @property
    def by_loss(self) -> bool:
        """Whether a loss other than the squared error was minimized; `error` is then its deviance with the penalty."""
        return bool(self.request.loss != "squared")

    @property
    def share_name(self) -> str:
        """The name of `r2`: R2, or D2 of a deviance."""
        return "D2" if self.by_loss else "R2"

    @property
    def share_sign(self) -> str:
        """The same with a raised 2, for pictures and the report."""
        return self.share_name.replace("2", "²")

    @property
    def share_less_penalty(self) -> str:
        """The name of 1 - f / ||Y||^2, which counts a ridge penalty as not explained."""
        return f"{self.share_name}{self.less_penalty.lstrip(',')}"

    @property
    def less_penalty(self) -> str:
        """What a caption says of shares that count a ridge penalty as not explained; empty without a penalty."""
        return ", less the penalty" if self.request.lam else ""

    @property
    def order(self) -> str:
        """The order of the chosen columns or groups, in words."""
        found = "in order of choice" if self.path else "in order of gain"
        return f"included ones first, then {found}" if self.include else found

    @property
    def preprocess(self) -> Preprocess:
        """How the columns were centered and scaled."""
        return self.request.preprocess

    @property
    def lam(self) -> float:
        """The ridge penalty that was used."""
        return self.request.lam

    @property
    def seed(self) -> int:
        """The seed."""
        return self.request.seed

    @property
    def include(self) -> tuple[Column, ...]:
        """Columns that were always chosen, as indices."""
        return self.request.include

    @property
    def exclude(self) -> tuple[Column, ...]:
        """Columns that were never chosen because the request says so.

        They are indices, and names of those columns of a frame that hold no numbers. These were left out before the
        others were counted.
        """
        return self.request.exclude

    @property
    def predicted(self) -> tuple[str, ...]:
        """The names of what is predicted, a column of coefficients each: the targets, or all columns where Y = X.

        A loss of two targets has one name.
        """
        if self.by_loss and self.loss.target_columns > 1:
            return (self.loss.predicts,)
        return self.targets or self.approximated or tuple(default_labels("x", self.coefficients.shape[1]))

    def as_in_data(self, names: Sequence[str]) -> list[str | int]:
        """Return labels of columns as the data have them: whole numbers where these name all columns of the data."""
        earlier = all(isinstance(label, int) for label in self.labels) and bool(self.labels)  # a saved result of before
        whole = self.numbered or earlier
        return [int(name) if whole and name.removeprefix("-").isdecimal() else name for name in names]

    def class_of(self, target: str) -> tuple[str, str]:
        """Return the column of a target and the class for which it is 1; the class of a target of numbers is empty."""
        name, _, level = target.partition("=")  # of a result of an older version, which lacks `classes`
        if self.classes:
            pairs = [(name, level) for name, levels in self.classes.items() for level in levels]
            name, level = next((pair for pair in pairs if "=".join(pair) == target), (target, ""))
        return name, level

    @property
    def concordance(self) -> float | None:
        """Of pairs of rows whose order in time is known, the share in which the first has more predicted risk, or None.

        It is that of the rows of the selection, with the loss "cox"; `score` has that of other rows.
        """
        return self.counts.get("concordance")

    @property
    def ratio_name(self) -> str | None:
        """What the exponential of a coefficient is: an odds, rate, mean or hazard ratio, or None."""
        return self.loss.ratio if self.by_loss else None

    @property
    def ratios(self) -> Floats:
        """The exponentials of the coefficients (s, N): infinity where float64 has no such number."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.coefficients))

    @property
    def unsupervised(self) -> bool:
        """Whether columns were chosen for X itself (Y = X)."""
        return not self.targets

    @property
    def wall_seconds(self) -> float:
        """The time of the run: from its start to its end, or that of its stages if an interrupted run continued."""
        try:
            ends = [datetime.fromisoformat(self.provenance[name]) for name in ("started", "finished")]
        except (KeyError, ValueError):  # results of dsel 0.1
            ends = []
        stages = sum(self.seconds.values())
        # The moments are whole seconds: the stages are more exact for a short run.
        whole = (ends[1] - ends[0]).total_seconds() if ends else 0.0
        return whole if whole > stages + 1.0 else stages

    @property
    def error_ratio(self) -> float | None:
        """The squared error of X over that of the best approximation of the same rank, at least 1, where it is known.

        With lam = 0 it is ||X - X_S X_S^+ X||^2 over the sum of the squared singular values after the first |S|, as in
        the POCSS paper. Columns of S that depend on others do not count. With lam > 0 the error is that of the ridge
        fit, ||X - X_S (X_S'X_S + lam I)^-1 X_S'X||^2.
        """
        return (1.0 - self.r2) / self.rank_error if self.rank_error else None

    def label(self, index: int) -> str:
        """Return the label of a column of the result, or its index as text if the label was not saved."""
        if index in self.column_labels:
            return self.column_labels[index]
        return self.names[self.indices.index(index)] if index in self.indices else str(index)

    def substitutes(self) -> dict[str | int, tuple[Substitute, ...]]:
        """Return the best substitutes of each chosen column, which no column of `include` has.

        They are for single columns. A selection of groups has none, nor has one from a frame with categories, whose
        columns are groups by default. `dsel.alternatives` lists what could replace a group.

        Returns
        -------
        dict of label to tuple of Substitute
            By the label of the chosen column, the columns that could take its place: first at most five near-copies
            that it represents, then at most five others, best first. Each has R2 after the swap, and the correlation
            of the two columns. `proved` says that nothing better is possible
            without the chosen column. That takes `alternatives`.

        Raises
        ------
        OptionError
            If the result has none: for groups, custom criteria, very many columns, without the Gram matrix in memory,
            and in results of older versions.

        Examples
        --------
        >>> import dsel
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(200, 20))
        >>> X[:, 5] += 5 * X[:, 7]
        >>> found = dsel.select(X, X[:, 3] - 2 * X[:, 7], k=2).substitutes()
        >>> found["x7"][0].label
        'x5'
        """
        if self.swaps is None:
            why, remedy = self._no_substitutes()
            raise OptionError(f"The result has no substitutes: {why}.", remedy)
        prices = {}
        if self.alternatives is not None and self.alternatives.size == len(self):
            prices = {price.index: price.bound_without for price in self.alternatives.columns}
            rounding = min(self.alternatives.certificate.get("rounding_error", 0.0), MOST_ROUNDING)
            slack = (MARGIN + rounding) * self.alternatives.total  # bounds count how far copies are from multiples
        found: dict[str | int, tuple[Substitute, ...]] = {}
        place = {j: i for i, j in enumerate(self.indices)}
        for swap in sorted(self.swaps, key=lambda swap: place[swap.replaces]):
            proved = swap.replaces in prices and swap.error <= prices[swap.replaces] + slack
            label = self.labels[place[swap.replaces]]
            found[label] = (*found.get(label, ()), replace(swap, proved=proved))
        return found

    def _no_substitutes(self) -> tuple[str, str]:
        if self.groups:
            return (
                "they are for single columns, not for groups",
                'Use dsel.alternatives, or select without groups (categories="columns" for indicators of categories).',
            )
        if self.request.criterion is not None or self.by_loss:
            other = "another loss" if self.by_loss else "a custom criterion"
            return (
                f"they are for the squared error, not for {other}",
                "Use dsel.alternatives." if self.by_loss else "Leave the criterion out.",
            )
        searched = (self.plan or {}).get("representation", "")
        if searched in _WITHOUT_GRAM:
            return f"the search was as {searched}, without the Gram matrix", "Exclude columns, so that fewer are left."
        if not few_to_substitute(self.shape[1], len(self)):
            return "k is too large", "Choose fewer columns."
        return "an older version saved it", "Select again with this version."

    def arrays(self) -> Arrays:
        """Return the arrays of selection.zarr with their dimensions."""
        width = max((len(row.indices) for row in self.front), default=1) or 1
        members = np.full((len(self.front), width), -1, np.int64)
        for i, row in enumerate(self.front):
            members[i, : len(row.indices)] = row.indices
        trace = np.array([[t.iteration, t.size, t.error] for t in self.trace], np.float64).reshape(-1, 3)
        arrays: dict[str, tuple[NDArray[Any], tuple[str, ...]]] = {
            "selected": (np.array(self.names, dtype=object), ("selected",)),
            "indices": (np.asarray(self.indices, np.int64), ("selected",)),
            "coefficients": (self.coefficients, ("selected", "target")),
            "intercept": (self.intercept, ("target",)),
            "front_size": (np.array([row.size for row in self.front], np.int64), ("front",)),
            "front_error": (np.array([row.error for row in self.front], np.float64), ("front",)),
            "front_r2": (np.array([row.r2 for row in self.front], np.float64), ("front",)),
            "front_members": (members, ("front", "place")),
            "trace": (trace, ("improvement", "iteration_size_error")),
            **({} if self.statistics is None else self.statistics.arrays()),
        }
        if self.targets or self.approximated:
            arrays["target"] = (np.array(self.predicted, dtype=object), ("target",))
        if self.fill is not None:
            arrays["fill"] = (self.fill, ("selected",))
        return arrays

    def attributes(self) -> dict[str, Any]:
        """Return what was asked and the main figures as JSON types: the attributes of selection.zarr."""
        return {
            "method": self.method, "k": self.k, "lam": self.lam, "preprocess": self.preprocess,
            "missing": self.request.missing, "seed": self.seed, "error": self.error, "r2": self.r2,
            "shape": list(self.shape), "source": self.source, "ended": self.ended,
            "dsel_version": self.versions.get("dsel", ""),
        }  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """Return the chosen columns as a pandas DataFrame, one row each, in the order of `indices`.

        Returns
        -------
        DataFrame
            Labels are the index. The columns are `index`, `included`, `gain`, and `coefficient`, or
            `coefficient_TARGET` for each of several targets. The gain is the share of the sum of squares of Y that a
            column explains beyond those before it. Results of older versions have none. There are no coefficients
            where Y = X. With the logit link there is an `odds_ratio`, with "poisson" a `rate_ratio`, with "gamma" a
            `mean_ratio`, and with "cox" a `hazard_ratio`: the exponential of the coefficient.
        """
        import pandas as pd

        included = [index in self.include for index in self.indices]
        columns: dict[str, Any] = {"index": list(self.indices), "included": included}
        if self.statistics is not None:
            columns["gain"] = self.statistics.gains
        predicted = () if self.unsupervised else self.predicted
        if len(predicted) == 1:
            columns["coefficient"] = self.coefficients[:, 0]
        if self.ratio_name is not None:
            columns[self.ratio_name.replace(" ", "_")] = self.ratios[:, 0]
        for j, target in enumerate(predicted if len(predicted) > 1 else ()):
            columns[f"coefficient_{target}"] = self.coefficients[:, j]
        return pd.DataFrame(columns, index=pd.Index(self.labels, name="feature", dtype=object))

    def to_xarray(self) -> xr.Dataset:
        """Return the arrays of the selection as an xarray Dataset with labels.

        Returns
        -------
        Dataset
            Variables `indices`, `coefficients`, `intercept`, `front_size`, `front_error`, `front_r2`, `front_members`
            and `trace`, and the request and the figures as attributes. The saved selection.zarr holds the same.
        """
        import xarray as xr

        variables = {name: (dims, array) for name, (array, dims) in self.arrays().items()}
        coordinates = {name: variables.pop(name) for name in ("selected", "target") if name in variables}
        return xr.Dataset(variables, coordinates, self.attributes())

    def as_dict(self) -> dict[str, Any]:
        """Return everything except trace and statistics, ready for JSON. Many coefficients are left out."""
        values = asdict(self)
        few = self.coefficients.size <= _JSON_COEFFICIENTS
        for name in ("coefficients", "intercept", "fill"):
            array = values.pop(name)
            if few and array is not None:
                values[name] = array.tolist()
        del values["trace"], values["statistics"], values["approximated"]
        for name in ("changes", "submodularity", "rank_error", "alternatives", "swaps", "class_figures", "weight_sum"):
            if values[name] is None:
                del values[name]
        for name in ("loss_parameters", "classes", "numbered"):
            if not values[name]:
                del values[name]
        return {"format": FORMAT, **values, "request": self.request.model_dump()}
