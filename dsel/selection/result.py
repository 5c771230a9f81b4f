"""The result of a selection, and what users do with it: draw, print, report, save, open, transform, predict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsel._lib.text import noun, shorten
from dsel.selection.alternatives import Alternatives
from dsel.selection.information_criteria import CriterionRow, preferred_sizes
from dsel.selection.record import SelectionRecord
from dsel.selection.render import render
from dsel.selection.results.apply import Kind, predict, transform
from dsel.selection.results.score import score
from dsel.selection.saved import certify_call, is_from_sums, read_selection, save_selection
from dsel.storage.paths import AnyPath, as_path, resolve_run

if TYPE_CHECKING:
    from dsel.selection.plots.accessor import SelectionPlots

#: Labels in the short form of a selection.
_SHOWN = 8


class Selection(SelectionRecord):
    """Chosen columns of an m x n matrix X for N targets (N = n where Y = X).

    Parameters
    ----------
    indices : tuple of int
        The columns, 0-based, in order of gain; included columns come first. They count the columns of X without
        targets and without excluded text, and a column for each value of a category: use `labels` for a frame.
    labels : list of str or int
        Their labels, in the same order. They are numbers if whole numbers name all columns of a frame, as pandas does.
    request : SelectionRequest
        What was asked, with the defaults of the method's options, columns as indices, and the lam that was used.
        Functions are named by their import path. `k`, `method`, `preprocess`, `lam`, `seed`, `options`, `include` and
        `exclude` are also attributes of the selection.
    error : float
        f(S) = ||Y - X_S A||^2 + lam ||A||^2 on the preprocessed data, recomputed from the data by QR. With a loss other
        than the squared error: the deviance and lam ||A||^2.
    r2 : float
        Share of ||Y||^2 that is explained; with another loss D2, the share of the deviance.
    coefficients : ndarray of shape (s, N)
        Coefficients for the data in their own units: Y ~ intercept + X[:, indices] @ coefficients. With another loss
        this is the linear predictor, whose mean `predict` returns.
    intercept : ndarray of shape (N,)
        Intercept for the data in their own units.
    front : tuple of FrontRow
        The best subset of every size up to 2k - 1, with an automatic k up to `max_k`, that beats all smaller ones, by
        the Gram matrices. For methods with a `path` only the answer. A run with a smaller k may find a better subset of
        that size, above all with a loss; ``dsel.certify(..., sizes="all")`` proves each size.
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
        Labels of constant columns, which are never chosen. Without centering, only those of zeros.
    counts : dict
        Counts of the search; the names depend on the method. After an interruption, `tasks`, `futures`, `lost_tasks`,
        `lost_evaluations` and `utilisation` are those of the last process alone. `evaluated` counts the whole search.
    notes : tuple of str
        Remarks for the reader.
    source : str
        Name of the data.
    fingerprint : str, optional
        Digest of the store.
    bytes_read, passes : int
        Over the data, with the final check and with proofs, without those of processes that were interrupted. `plan`
        has those of the selection alone.
    seconds : dict
        Time of each stage, in a job that was interrupted and continued that of all its processes.
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
    alternatives : Alternatives, optional
        All near-best subsets, with a verdict for each column, from `dsel.alternatives`.
    swaps : tuple of Substitute, optional
        The best substitutes of the chosen columns; see `substitutes`. None where they are not cheap.
    loss_parameters : dict
        The parameters of the loss that the data set, such as the classes; `loss` has them.
    class_figures : ClassFigures, optional
        With a loss for classes: the ROC curve, the calibration and the confusion on the rows of the selection. These
        rows flatter it: `score` and `plot.roc` take other rows.
    classes : dict of str to list of str
        The classes of each target that holds classes. `targets` has NAME=CLASS for each class, and for the second
        one only where there are two.
    categories : tuple of str
        The columns of a frame with text or categories of which all indicator columns are chosen. `predict` warns of
        values that these did not have.
    weight_sum : float, optional
        The sum of the weights of the rows, times those of their classes, which information criteria count as the number
        of rows. None without weights, and for results of older versions.
    numbered : bool
        Whether whole numbers name all columns of the frame.
    approximated : tuple of str
        The labels of all columns of X where Y = X: the columns of what `predict` returns. Empty if there are targets,
        and for results of older versions, whose predictions have the labels x0, x1 and so on.
    """

    @property
    def plot(self) -> SelectionPlots:
        """Pictures of the selection: `plot.front()`, `plot.path()`, `plot.trace()` and others."""
        from dsel.selection.plots.accessor import SelectionPlots

        return SelectionPlots(self)

    def with_alternatives(self, alternatives: Alternatives) -> Selection:
        """Return the selection with its near-best subsets, which its pictures, report and file then have.

        It also has the certificates that the tree of the list proves.

        Parameters
        ----------
        alternatives : Alternatives
            What `dsel.alternatives` returned.

        Returns
        -------
        Selection
            A copy.
        """
        from dsel.selection.certificates import with_list

        return with_list(self, alternatives)

    def information_criteria(self, gamma: float = 1.0) -> list[CriterionRow]:
        """Return the size that AIC, AICc, BIC, EBIC and the adjusted R2 prefer, and whether that is proved.

        The values have -2 log likelihood with all constants, as those of R. For the squared error, `size_curve` leaves
        out the constants that all sizes share. Results of older versions lack them for "poisson", "gamma" and "cox". A
        row of weight 2 counts as that row twice, as a frequency weight of statsmodels does.

        The subsets are those of `front` with at most k columns, of which a run with a smaller k may find better ones.
        Where a criterion prefers k itself, it may prefer more columns in a run with a larger k.

        Parameters
        ----------
        gamma : float
            The weight of the number of subsets in EBIC, from 0 to 1.

        Returns
        -------
        list of CriterionRow
            One row for each criterion. `proved` needs a certificate of every size up to k: ``dsel.certify(...,
            sizes="all")``. It is true if the certificate of the preferred size is optimal, and the criterion at the
            bound of every other size up to k is no better, up to a share of 1e-9.

        Raises
        ------
        OptionError
            With a ridge penalty, groups or a custom criterion, without targets, or for a result of an older version
            with weights.
        """
        return preferred_sizes(self, gamma)

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
            If the file cannot be written, or does not end in .html.
        MissingExtraError
            If matplotlib is not installed.
        """
        from dsel.selection.report.page import write_report

        return write_report(self, as_path("report.html" if out is None else out))

    def _repr_html_(self) -> str:
        from dsel.selection.report.page import notebook_html

        return notebook_html(self)

    def __repr__(self) -> str:
        share = f"{self.share_name} {self.r2:.6g}"
        share = f"{self.request.loss}, {share}" if self.by_loss else share
        about = f"{len(self)} of {self.shape[1]:,} {noun(self.shape[1], 'column')}, {share}, {self.method}"
        return f"<Selection: {about}: {shorten(self.names, _SHOWN)}>"

    def __str__(self) -> str:
        return render(self).rstrip()

    def transform(self, X: Any) -> Any:
        """Return the chosen columns of X, in the order of `indices`.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object, str or Path
            The data; a path names a store. Where X has labels, the columns are found by label, in any order and among
            others. Without labels X has the n columns that the selection was made from. Text, categories and dates of
            a frame, and cubes of xarray, become the same columns as in `dsel.select`. A category has 0 in all indicator
            columns where its value is unknown.

        Returns
        -------
        array, sparse matrix, DataFrame, Dask or xarray object
            The same kind as X, shape (m, s). It is lazy if X is: a Dask object, or a store (an xarray DataArray).
            A LazyFrame of polars is collected, and gives a DataFrame. Arrow gives a pandas DataFrame.

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
        return transform(self, X)

    def predict(self, X: Any, *, offset: Any = None, kind: Kind = "mean") -> Any:
        """Return the targets that the chosen columns of X predict, in the units of Y.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object, str or Path
            The data, as for `transform`.
        offset : (m,) array, float or str, optional
            What is added to the linear predictor of each row; also the name of a variable of a store, or of a column of
            a frame. A selection that was made with an offset needs it, and finds it by its name in a store. 0 stands
            for an exposure of 1. A whole number that is the label of a column, where whole numbers name all, is the
            column.
        kind : {"mean", "link"}
            "mean": the expected target, which is a probability for classes. "link": the linear predictor.

        Returns
        -------
        array, Series, DataFrame, Dask or xarray object
            ``intercept + X[:, indices] @ coefficients``, shape (m, N), or (m,) where Y had one dimension. Y of a store
            has two: one target gives (m, 1), whatever X is. A target that was named in a frame has one. With another
            loss than the squared error: its mean there, such as the probability of the second class, or the hazard
            ratio to a row of means, or of zeros with ``preprocess`` "unit" and "none". Its kind is that of X: a Series
            or DataFrame for a frame. It is lazy for Dask and xarray objects that are, and for stores. A LazyFrame of
            polars is collected, and Arrow gives pandas objects.

        Raises
        ------
        DataError
            If X lacks chosen columns, or they hold something else than numbers; if an offset is missing, or has not one
            number for each row.
        OptionError
            If there is no such kind.

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
        return predict(self, X, offset, kind)

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None, offset: Any = None) -> dict[str, float]:
        """Return how well the selection predicts given rows, such as rows that it has not seen.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object, str or Path
            The data, as for `transform`.
        y : (m,) or (m, N) array, Series, DataFrame, str or list of str
            The targets, as the selection was made from, or their names in a frame or a store X. Classes of text are
            taken by name. Of labelled columns, those of the targets are taken. By default those of a store or an xarray
            Dataset, as for `select`, and of a frame the columns of their names.
        sample_weight : (m,) array, str or False, optional
            Weights of the rows, or their name in a frame or a store X. By default those of a store, as for `select`:
            its variable ``weight`` where there is one. False for none.
        offset : (m,) array, float or str, optional
            As for `predict`.

        Returns
        -------
        dict of str to float
            `deviance`, the sum over the rows without a penalty; `d2`, the share that it is less than without columns.
            Without columns, the linear predictor of a row is its offset plus the constant that is best for these rows,
            such as the median of y for the quantile loss (0.5). "cox" has no constant. For classes also `auc` (the area
            under the ROC curve), `log_loss` (per row) and `accuracy`, and for the loss "cox" the `concordance`. The
            squared error has `deviance` and `r2`. For several targets, also those that three or more classes became,
            `deviance` is their sum, and `r2` weights them as the selection does: the mean of their R2 with
            ``preprocess="standardize"`` or ``"unit"``, otherwise 1 - SSE / SST of all together. A figure that the rows
            do not define is nan: `d2` and `r2` where the deviance of the best constant is 0, as for rows of one class
            or of equal targets, `auc` where some class has no row, and `concordance` where no two rows have an order. A
            mean of R2 is nan where one of the targets is constant in these rows: select without it, by `targets`, if it
            always is.

        Raises
        ------
        DataError
            If y has another length than X, or holds what the loss does not take. If X has missing values in chosen
            columns, and the selection has no means for them.
        OptionError
            If y is left out, and X holds no targets.

        Examples
        --------
        >>> import dsel
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(400, 20))
        >>> selection = dsel.select(X[:200], X[:200, 3] > X[:200, 7], k=1, loss="logistic")
        >>> sorted(selection.score(X[200:], X[200:, 3] > X[200:, 7]))
        ['accuracy', 'auc', 'd2', 'deviance', 'log_loss']
        """
        return score(self, X, y, sample_weight, offset)

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
        return save_selection(self, as_path(path), overwrite=overwrite)


def open_selection(path: str | AnyPath) -> Selection:
    """Open a saved Selection.

    Parameters
    ----------
    path : str, Path or ObjectPath
        The folder, or the selection.json in it. A folder of runs, or `latest` in it, stands for the last good run.

    Returns
    -------
    Selection
        The selection, equal to the one that was saved.

    Raises
    ------
    MissingInputError
        If there is no selection.
    DataError
        If it is damaged or incomplete. The error names the file. Each changed bit is noticed.
    """
    return read_selection(path, Selection)


def report(result: Selection | str | AnyPath, out: str | AnyPath | None = None) -> AnyPath:
    """Write the report of a selection: one HTML page with pictures that works offline.

    Parameters
    ----------
    result : Selection, str or Path
        A selection, or the folder of a saved one. A folder of runs stands for the last good one; the page then shows
        the columns of all runs.
    out : str or Path, optional
        The file. By default report.html in the result's folder, or in the current folder for a Selection. A file that
        exists is replaced.

    Returns
    -------
    Path or ObjectPath
        The file.

    Raises
    ------
    MissingInputError
        If there is no selection in the folder.
    OutputError
        If the file cannot be written.
    MissingExtraError
        If matplotlib is not installed: ``pip install 'dsel[plots]'``.

    Notes
    -----
    The page has no script and loads nothing, so that it can be mailed or archived. Labels are escaped. It has the
    selection frequencies of ``dsel stability --out FOLDER`` if that is the same folder.

    Examples
    --------
    >>> import dsel
    >>> dsel.report("result")  # doctest: +SKIP
    PosixPath('result/report.html')
    """
    if isinstance(result, Selection):
        return result.report(out)
    from dsel.selection.changes.runs import SUMMARY, read_history
    from dsel.selection.report.page import write_report
    from dsel.selection.stability.result import FILE, Stability

    folder = resolve_run(as_path(result))
    selection = open_selection(folder)
    stability = Stability.open(folder) if (folder / FILE).is_file() else None
    history = read_history(folder.parent) if (folder / SUMMARY).is_file() else []
    place = folder / "report.html" if out is None else as_path(out)
    by_command = (folder / "job.json").is_file() or is_from_sums(selection)
    certify = f"dsel certify {folder}" if by_command else certify_call(selection, folder)
    return write_report(selection, place, stability, history, certify)
