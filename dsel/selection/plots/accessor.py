"""`selection.plot`: the pictures of a selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsel.selection.plots import alternatives, classes, coefficients, correlation, front, path, sizes, subsets, trace
from dsel.selection.plots.front import Quantity
from dsel.selection.record import SelectionRecord


@dataclass(frozen=True)
class SelectionPlots:
    """Pictures of a selection, by matplotlib (``pip install 'dsel[plots]'``).

    Each method takes axes, or makes a figure, and returns the axes. Add titles and change limits as on any axes, and
    save with ``ax.figure.savefig("front.svg")``.

    Parameters
    ----------
    selection : Selection
        The selection.

    Examples
    --------
    >>> import numpy as np, dsel
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> selection = dsel.select(X, X[:, 3] - 2 * X[:, 7], k=2)
    >>> ax = selection.plot.front()  # doctest: +SKIP
    """

    selection: SelectionRecord

    def __call__(self, ax: Any = None) -> Any:
        """Draw the front: the same as `front`."""
        return self.front(ax)

    def front(self, ax: Any = None, *, quantity: Quantity | None = None) -> Any:
        """Draw the quality of the best subset of each size.

        Larger subsets than k, which the search found on its way, are paler. A dashed line shows forward selection, if
        it differs. With a certificate, a band reaches from the best known to the best possible value, and a diamond
        marks what is proved optimal.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.
        quantity : {"r2", "error", "criterion"}, optional
            What to draw. By default R^2, or the custom criterion if one was minimized.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return front.draw(self.selection, ax, quantity)

    def path(self, ax: Any = None) -> Any:
        """Draw what each chosen column adds.

        For methods that minimize a cross-validated error, this is the error on left-out rows after each step, and on
        held-out rows if there are any. For others it is the share that each column explains after those before it.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return path.draw(self.selection, ax)

    def sizes(self, ax: Any = None) -> Any:
        """Draw the curve along which ``k="auto"`` chose the number of columns.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return sizes.draw(self.selection, ax)

    def subsets(self, ax: Any = None) -> Any:
        """Draw which columns the best subset of each size holds.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return subsets.draw(self.selection, ax)

    def trace(self, ax: Any = None) -> Any:
        """Draw the convergence: the best value against the iterations of the search.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return trace.draw(self.selection, ax)

    def coefficients(self, ax: Any = None, *, standardized: bool = True) -> Any:
        """Draw the coefficients of the first 30 columns, in order of gain: bars for one target, a matrix for several.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.
        standardized : bool
            Multiply each coefficient by the standard deviation of its column and divide it by that of the target, so
            that they can be compared.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return coefficients.draw(self.selection, ax, standardized)

    def correlation(self, ax: Any = None) -> Any:
        """Draw the correlations of the chosen columns with each other.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return correlation.draw(self.selection, ax)

    def alternatives(self, ax: Any = None) -> Any:
        """Draw which columns each near-best subset has, as a heat map of R2, the best subset first.

        It takes a selection with alternatives; see `dsel.alternatives`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return alternatives.draw_subsets(self.selection, ax)

    def prices(self, ax: Any = None) -> Any:
        """Draw R2 of the best subsets with and without each column. Bands reach to what is still possible.

        It takes a selection with alternatives; see `dsel.alternatives`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return alternatives.draw_prices(self.selection, ax)

    def reliance(self, ax: Any = None) -> Any:
        """Draw how much R2 near-best subsets lose without each of their columns, as intervals.

        It takes a selection with alternatives; see `dsel.alternatives`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return alternatives.draw_reliance(self.selection, ax)

    def roc(
        self, X: Any = None, y: Any = None, ax: Any = None, *, sample_weight: Any = None, offset: Any = None
    ) -> Any:
        """Draw the share of true positives against that of false ones (the ROC curve), with the area under it.

        It takes a selection by a loss for classes, such as ``loss="logistic"``. Of three or more classes, each one has
        a curve against all others.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object, str or Path, optional
            The rows, best such that the selection has not seen. By default those that it was made from.
        y : (m,) array, optional
            Their classes, as the selection was made from.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.
        sample_weight : (m,) array, str or False, optional
            As for `Selection.score`.
        offset : (m,) array, float or str, optional
            As for `Selection.predict`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return classes.draw_roc(self.selection, X, y, ax, sample_weight, offset)

    def calibration(
        self, X: Any = None, y: Any = None, ax: Any = None, *, sample_weight: Any = None, offset: Any = None
    ) -> Any:
        """Draw the share of the second class against its predicted probability, in tenths of the rows.

        It takes a selection by a loss for classes, such as ``loss="logistic"``. Of three or more classes, each one has
        a line.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object, str or Path, optional
            The rows, best such that the selection has not seen. By default those that it was made from.
        y : (m,) array, optional
            Their classes, as the selection was made from.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default those of a new figure.
        sample_weight : (m,) array, str or False, optional
            As for `Selection.score`.
        offset : (m,) array, float or str, optional
            As for `Selection.predict`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return classes.draw_calibration(self.selection, X, y, ax, sample_weight, offset)
