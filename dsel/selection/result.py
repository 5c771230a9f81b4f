"""The result of a selection: the columns, how good they are, how they were found, and the cost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsel.config.request import Column, Preprocess, SelectionRequest
from dsel.selection.chosen import ChosenStatistics
from dsel.selection.size_curve import FrontRow, PathRow, SizeCurve, TraceRow
from dsel.selection.submodularity import Submodularity
from dsel.storage.paths import AnyPath, as_path

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from dsel.selection.plots.accessor import SelectionPlots

FORMAT = 3
#: selection.json holds the coefficients, too, if there are at most this many.
_JSON_COEFFICIENTS = 10_000


@dataclass(frozen=True, eq=False)
class Selection:
    """Chosen columns of an m x n matrix X for N targets (N = n where Y = X).

    Parameters
    ----------
    indices : tuple of int
        The columns, 0-based, in order of gain; included columns come first.
    labels : list of str
        Their labels, in the same order.
    request : SelectionRequest
        What was asked, with the defaults of the method's options, columns as indices, and the lam that was used.
        Functions are named by their import path. `k`, `method`, `preprocess`, `lam`, `seed`, `options`, `include` and
        `exclude` are also attributes of the selection.
    error : float
        f(S) = ||Y - X_S A||^2 + lam ||A||^2 on the preprocessed data, recomputed from the data by QR.
    r2 : float
        Share of ||Y||^2 that is explained.
    coefficients : ndarray of shape (s, N)
        Coefficients for the data in their own units: Y ~ intercept + X[:, indices] @ coefficients.
    intercept : ndarray of shape (N,)
        Intercept for the data in their own units.
    front : tuple of FrontRow
        The best subset of every size up to 2k - 1 that beats all smaller ones, by the Gram matrices. For methods with
        a `path` only the answer.
    trace : tuple of TraceRow
        Every improvement of the search.
    ended : str
        The rule that stopped the search.
    iterations : int
        Iterations of the search.
    shape : tuple of int
        (m, n).
    targets : tuple of str
        Labels of the targets; empty where Y = X.
    constant : tuple of str
        Labels of constant columns, which are never chosen.
    counts : dict
        Counts of the search; the names depend on the method.
    notes : tuple of str
        Remarks for the reader.
    source : str
        Name of the data.
    fingerprint : str, optional
        Digest of the store.
    bytes_read, passes : int
        Over the data, the final check included.
    seconds : dict
        Time of each stage.
    peak_memory : dict
        For each worker its largest resident memory and its limit, in bytes.
    versions : dict
        Versions of dsel, Python and the libraries.
    criterion : float, optional
        Value of the custom criterion for the chosen columns.
    certificate : tuple of dict
        What is proved, by size; see `dsel.search.exact.certificate.Certificate`.
    path : tuple of PathRow
        Every step of a method that minimizes a cross-validated error.
    weights : str, optional
        Name of the weights of the rows.
    plan : dict, optional
        Planned and measured passes, bytes_read, tasks, worker_memory and seconds.
    fill : ndarray of shape (s,), optional
        The values that replace NaN in the chosen columns: their means, if `missing` is "mean".
    flat_target : bool
        Whether Y had one dimension. Predictions then have one, too.
    size_curve : SizeCurve, optional
        How ``k="auto"`` chose the number of columns: the rule, and its value for each size.
    statistics : ChosenStatistics, optional
        Gains, standard deviations and correlations of the chosen columns. None for results of dsel 0.1.
    forward : tuple of FrontRow
        The path of forward selection up to k columns, for comparison. Empty where it is not cheap: without the whole
        Gram matrix, or if n k^2 is above 10^9 or k above 500.
    provenance : dict
        When the run started and finished (UTC), and the name and the system of the host.
    column_labels : dict of int to str
        Labels of the columns in `front` and `forward`, and of included and excluded ones; see `label`.
    groups : dict of str to tuple of int
        The chosen groups of columns, in order of gain, with their columns. Empty without groups. Then k, and the sizes
        of `front`, `trace` and `size_curve`, count groups.
    changes : dict, optional
        What changed since the previous run of a job with a folder of runs: columns that entered and left, the previous
        selection's error, whether the new one is better, and drift.
    submodularity : Submodularity, optional
        An estimate and a bound of the submodularity ratio, from `dsel.certify` or `dsel.submodularity_ratio`.
    rank_error : float, optional
        Share of ||X||^2 that the best approximation of X of this rank leaves, where Y = X. None without the whole Gram
        matrix, and for more than 2000 columns. `error_ratio` compares it with the selection.
    """

    indices: tuple[int, ...]
    labels: list[str]
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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selection):
            return NotImplemented
        from dsel.selection.arrays import arrays_of

        mine, theirs = arrays_of(self), arrays_of(other)
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
    def k(self) -> int:
        """The size limit, or the size that was chosen automatically."""
        return self.request.limit if self.size_curve is None else self.size_curve.k

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.request.method

    @property
    def options(self) -> dict[str, Any]:
        """The method's own options."""
        return self.request.options

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
        """Columns that were never chosen, as indices."""
        return self.request.exclude

    @property
    def unsupervised(self) -> bool:
        """Whether columns were chosen for X itself (Y = X)."""
        return not self.targets

    @property
    def error_ratio(self) -> float | None:
        """||X - X_S X_S^+ X||^2 over that of the best approximation of the same rank, at least 1 (POCSS), if known."""
        return (1.0 - self.r2) / self.rank_error if self.rank_error else None

    @property
    def plot(self) -> SelectionPlots:
        """Pictures of the selection: `plot.front()`, `plot.path()`, `plot.trace()` and others."""
        from dsel.selection.plots.accessor import SelectionPlots

        return SelectionPlots(self)

    def label(self, index: int) -> str:
        """Return the label of a column of the result, or its index as text if the label was not saved."""
        if index in self.column_labels:
            return self.column_labels[index]
        return self.labels[self.indices.index(index)] if index in self.indices else str(index)

    def report(self, out: str | AnyPath | None = None) -> AnyPath:
        """Write the selection as one HTML page with pictures, and return its path.

        Parameters
        ----------
        out : str, Path or ObjectPath, optional
            The file. By default report.html in the current folder. A file that exists is replaced.

        Returns
        -------
        Path or ObjectPath
            The file.

        Raises
        ------
        OutputError
            If the file cannot be written.
        MissingExtraError
            If matplotlib is not installed.
        """
        from dsel.selection.report.page import write_report

        return write_report(self, as_path("report.html" if out is None else out))

    def _repr_html_(self) -> str:
        from dsel.selection.report.page import notebook_html

        return notebook_html(self)

    def __str__(self) -> str:
        from dsel.selection.render import render

        return render(self).rstrip()

    def transform(self, X: Any) -> Any:
        """Return the chosen columns of X, in the order of `indices`.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object, str or Path
            The data; a path names a store. Where X has labels, the columns are found by label, in any order and among
            others. Without labels X has the n columns that the selection was made from.

        Returns
        -------
        array, sparse matrix, DataFrame, Dask or xarray object
            The same kind as X, shape (m, s). It is lazy if X is: a Dask object, or a store (an xarray DataArray).

        Raises
        ------
        DataError
            If X lacks chosen columns; the error names them.

        Examples
        --------
        >>> import dsel
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(200, 20))
        >>> selection = dsel.select(X, X[:, 3] - 2 * X[:, 7], k=2)
        >>> np.array_equal(selection.transform(X), X[:, [7, 3]])
        True
        """
        from dsel.selection.results.apply import transform

        return transform(self, X)

    def predict(self, X: Any) -> Any:
        """Return the targets that the chosen columns of X predict, in the units of Y.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object, str or Path
            The data, as for `transform`.

        Returns
        -------
        array, Series, DataFrame, Dask or xarray object
            ``intercept + X[:, indices] @ coefficients``, shape (m, N), or (m,) where Y had one dimension. Its kind is
            that of X; it is lazy if X is.

        Raises
        ------
        DataError
            If X lacks chosen columns, or they hold something else than numbers.

        Notes
        -----
        NaN in a chosen column is replaced by the mean of the column if the selection was made with ``missing="mean"``,
        and gives NaN otherwise. Where Y = X, the prediction approximates all n columns.

        Examples
        --------
        >>> import dsel
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(200, 20))
        >>> y = X[:, 3] - 2 * X[:, 7] + 5
        >>> np.allclose(dsel.select(X, y, k=2).predict(X), y)
        True
        """
        from dsel.selection.results.apply import predict

        return predict(self, X)

    def to_frame(self) -> pd.DataFrame:
        """Return the chosen columns as a pandas DataFrame, one row each, in the order of `indices`.

        Returns
        -------
        DataFrame
            Labels are the index. The columns are `index`, `included`, `gain`, and `coefficient`, or
            `coefficient_TARGET` for each of several targets. The gain is the share of the sum of squares of Y that a
            column explains beyond those before it. Results of older versions have none. There are no coefficients
            where Y = X.
        """
        from dsel.selection.arrays import to_frame

        return to_frame(self)

    def to_xarray(self) -> xr.Dataset:
        """Return the arrays of the selection as an xarray Dataset with labels.

        Returns
        -------
        Dataset
            Variables `indices`, `coefficients`, `intercept`, `front_size`, `front_error`, `front_r2`, `front_members`
            and `trace`, and the request and the figures as attributes. The saved selection.zarr holds the same.
        """
        from dsel.selection.arrays import to_xarray

        return to_xarray(self)

    def save(self, path: str | AnyPath, *, overwrite: bool = False) -> AnyPath:
        """Write the selection to a folder: selection.zarr with the large arrays, and selection.json with the rest.

        Parameters
        ----------
        path : str, Path or ObjectPath
            The folder.
        overwrite : bool
            Whether to replace a selection that is there.

        Returns
        -------
        Path or ObjectPath
            The folder.

        Raises
        ------
        OutputError
            If there is a selection already (without `overwrite`), or if the folder cannot be written.

        Notes
        -----
        Each file is written under a temporary name and renamed, the JSON last. In object storage the arrays have a
        unique name, ``selection-*.zarr``, which the JSON contains.
        """
        from dsel.selection.saved import save_selection

        return save_selection(self, as_path(path), overwrite=overwrite)

    def as_dict(self) -> dict[str, Any]:
        """Return everything except trace and statistics, ready for JSON. Many coefficients are left out."""
        values = asdict(self)
        few = self.coefficients.size <= _JSON_COEFFICIENTS
        for name in ("coefficients", "intercept", "fill"):
            array = values.pop(name)
            if few and array is not None:
                values[name] = array.tolist()
        del values["trace"], values["statistics"]
        for name in ("changes", "submodularity", "rank_error"):
            if values[name] is None:
                del values[name]
        return {"format": FORMAT, **values, "request": self.request.model_dump()}
