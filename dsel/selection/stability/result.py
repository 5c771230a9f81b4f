"""The result of stability selection, with bounds on the expected number of columns that are chosen by mistake.

Let q columns of p be chosen on each half of the rows on average, and let a column be *stable* if it is chosen on at
least a share tau of the halves. The expected number of stable columns that are chosen with a probability below q / p,
as noise is, is at most

    q^2 / ((2 tau - 1) p)            (Meinshausen and Buehlmann, "Stability selection", JRSS B 72, 2010)
    C(tau, B) q^2 / p                for B complementary pairs, if the share of pairs with a column in both halves has a
                                     unimodal distribution (Shah and Samworth, "Variable selection with error control",
                                     JRSS B 75, 2013, Theorem 2)

The first needs no assumption for complementary pairs (their Theorem 1) but independent rows, or groups of rows that
subsamples are made of. For halves, columns of noise must also be exchangeable, and chosen no more often than others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from dsel._lib.text import noun, printable, shorten
from dsel._lib.types import Floats
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.selection.plots import style
from dsel.storage.json_files import read_json, write_json
from dsel.storage.paths import AnyPath, as_path, make_folder

if TYPE_CHECKING:
    import pandas as pd

Assumption = Literal["none", "unimodal"]


def error_bound(threshold: float, q: float, p: int, pairs: int | None = None, assumption: Assumption = "none") -> float:
    """Return the bound on the expected number of columns that are stable by mistake; p where it says nothing.

    Errors: OptionError unless 1/2 < threshold <= 1, and for an assumption without pairs.
    """
    if not 0.5 < threshold <= 1.0:
        raise OptionError(
            f"threshold is {threshold:g}.", "It must be above 0.5 and at most 1: a share of the subsamples."
        )
    if assumption not in get_args(Assumption):
        raise OptionError(f"assumption is {assumption!r}.", "One of none, unimodal.")
    if assumption == "unimodal" and pairs is None:
        raise OptionError("The bound for unimodal distributions is for complementary pairs.", "Use samples of pairs.")
    factor = 1.0 / (2.0 * threshold - 1.0)
    if assumption == "unimodal" and pairs is not None:
        factor = min(factor, unimodal_factor(threshold, q / p, pairs))
    return min(factor * q * q / p, float(p))


def unimodal_factor(threshold: float, theta: float, pairs: int) -> float:
    """Return C(tau, B), with tau rounded down to a multiple of 1 / (2B); inf where the theorem does not apply."""
    tau = math.floor(2 * pairs * threshold + 1e-9) / (2 * pairs)
    least = min(0.5 + theta**2, 0.5 + 1.0 / (2 * pairs) + 0.75 * theta**2)
    if theta > 1.0 / math.sqrt(3.0) or tau < 0.5 + 1.0 / pairs or tau <= least:
        return math.inf
    if tau <= 0.75:
        return 1.0 / (2.0 * (2.0 * tau - 1.0 - 1.0 / (2 * pairs)))
    return 4.0 * (1.0 - tau + 1.0 / (2 * pairs)) / (1.0 + 1.0 / pairs)


FORMAT = 1
FILE = "stability.json"
#: Columns in the short form, and rows of the table in a notebook.
_SHOWN, _NOTEBOOK_ROWS = 8, 20
#: The share of the subsamples from which on a column is stable, unless another one is asked for.
_STABLE = 0.75


def require_one_limit(threshold: float | None, max_errors: float | None) -> None:
    """Raise OptionError if both limits are given, or if the threshold is no share."""
    if threshold is not None and max_errors is not None:
        raise OptionError("threshold and max_errors are both given.", "Give one of them.")
    if threshold is not None and not 0.0 < threshold <= 1.0:
        raise OptionError(f"threshold is {threshold:g}.", "It is a share above 0 and of at most 1, such as 0.75.")


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """How often each column, or group of columns, is chosen on subsamples of the rows.

    Parameters
    ----------
    names : tuple of str or int
        Labels of the columns as they are in the data, or names of the groups.
    frequencies : ndarray of shape (k, p)
        The share of the subsamples on which each is among the best subset of at most 1, ..., k.
    chosen : ndarray of shape (k,)
        How many are chosen on average for each size, without those that are always included.
    candidates : int
        How many can be chosen.
    included : tuple of int
        Places of those that are always chosen.
    resample : {"pairs", "halves", "bootstrap"}
        How the subsamples are drawn.
    samples, parts : int
        How many subsamples, and of how many parts of the rows they are made.
    description : str
        The subsamples in words.
    request : dict
        What was asked.
    shape : tuple of int
        (m, n).
    source : str
        Name of the data.
    passes, bytes_read : int
        Over the data.
    seconds : float
        Wall time.
    versions : dict
        Versions of dsel, Python and the libraries.
    notes : tuple of str
        What to know about the shares, such as columns whose coefficients have no end.
    """

    names: tuple[str | int, ...]
    frequencies: Floats
    chosen: Floats
    candidates: int
    included: tuple[int, ...]
    resample: str
    samples: int
    parts: int
    description: str
    request: dict[str, Any]
    shape: tuple[int, int]
    source: str = ""
    passes: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def k(self) -> int:
        """The largest size."""
        return int(self.frequencies.shape[0])

    def frequency(self, size: int | None = None) -> Floats:
        """Return the share of the subsamples on which each column is chosen.

        Parameters
        ----------
        size : int, optional
            The size; by default the largest.

        Returns
        -------
        ndarray of shape (p,)
            The shares.

        Raises
        ------
        OptionError
            If there is no such size.
        """
        size = self.k if size is None else size
        if not 1 <= size <= self.k:
            raise OptionError(f"size is {size}.", f"It must be from 1 to {self.k}.")
        return np.asarray(self.frequencies[size - 1])

    def ranked(self, size: int | None = None) -> list[int]:
        """Return the places of the columns that are ever chosen, the most frequent first. size: as for `frequency`."""
        frequency = self.frequency(size)
        return [int(j) for j in np.argsort(-frequency, kind="stable") if frequency[j] > 0.0]

    def stable(
        self, threshold: float | None = None, *, max_errors: float | None = None, size: int | None = None,
        assumption: Assumption = "none",
    ) -> list[str | int]:  # fmt: skip
        """Return the columns that are chosen on at least a share of the subsamples, the most frequent first.

        Parameters
        ----------
        threshold : float, optional
            The share; by default 0.75.
        max_errors : float, optional
            Takes the least threshold for which the expected number of mistakes is at most this.
        size : int, optional
            The size; by default the largest.
        assumption : {"none", "unimodal"}
            What `max_errors` assumes, see `error_bound`.

        Returns
        -------
        list of str or int
            Labels of columns, or names of groups.

        Raises
        ------
        OptionError
            If both are given, the threshold is no share, or none is enough.
        """
        require_one_limit(threshold, max_errors)
        if max_errors is not None:
            threshold = self.threshold(max_errors, size=size, assumption=assumption)
        frequency = self.frequency(size)
        order = np.argsort(-frequency, kind="stable")
        return [self.names[j] for j in order if frequency[j] >= (_STABLE if threshold is None else threshold) - 1e-12]

    def error_bound(self, threshold: float, *, size: int | None = None, assumption: Assumption = "none") -> float:
        """Return a bound on the expected number of columns that are stable by mistake.

        Parameters
        ----------
        threshold : float
            The share of the subsamples from which on a column is stable, above 0.5.
        size : int, optional
            The size; by default the largest.
        assumption : {"none", "unimodal"}
            The bound of Meinshausen and Buehlmann, which Shah and Samworth prove for complementary pairs of independent
            rows without another assumption; or the sharper bound of Shah and Samworth for unimodal distributions. For
            halves, columns of noise must also be exchangeable, and chosen no more often than others.

        Returns
        -------
        float
            The bound.

        Raises
        ------
        OptionError
            For bootstrap samples, and for a threshold of at most 0.5.
        """
        q, p, pairs = self._bound_figures(size)
        return error_bound(threshold, q, p, pairs, assumption)

    def threshold(self, max_errors: float, *, size: int | None = None, assumption: Assumption = "none") -> float:
        """Return the least threshold for which the expected number of mistakes is at most `max_errors`.

        Parameters
        ----------
        max_errors : float
            The expected number of columns that are stable by mistake.
        size : int, optional
            The size; by default the largest.
        assumption : {"none", "unimodal"}
            See `error_bound`.

        Returns
        -------
        float
            The threshold, to three digits.

        Raises
        ------
        OptionError
            If no threshold is enough.
        """
        q, p, pairs = self._bound_figures(size)
        if not max_errors > 0.0:
            raise OptionError(f"max_errors is {max_errors:g}.", "It must be above 0: an expected number of columns.")
        for step in range(501, 1001):
            if (least := error_bound(step / 1000.0, q, p, pairs, assumption)) <= max_errors:
                return step / 1000.0
        raise OptionError(
            f"No threshold keeps the expected number of mistakes at {max_errors:g}: with {q:g} of {p} columns chosen "
            f"it is at best {least:.3g}.",
            "Allow more mistakes, or choose fewer columns (a smaller k).",
        )

    def _bound_figures(self, size: int | None) -> tuple[float, int, int | None]:
        if self.resample == "bootstrap":
            raise OptionError("There is no error bound for bootstrap samples.", "Use resample='pairs'.")
        self.frequency(size)
        q = float(self.chosen[(size or self.k) - 1])
        return q, self.candidates, self.samples // 2 if self.resample == "pairs" else None

    def to_frame(self) -> pd.DataFrame:
        """Return the frequencies as a DataFrame, the most frequent first.

        Returns
        -------
        DataFrame
            A row for each column of X (or group), and a column for each size.
        """
        import pandas as pd

        order = np.argsort(-self.frequency(), kind="stable")
        index = pd.Index([self.names[j] for j in order], name="feature", dtype=object)
        sizes = pd.RangeIndex(1, self.k + 1, name="size")
        return pd.DataFrame(self.frequencies[:, order].T, index=index, columns=sizes)

    def plot(self, ax: Any = None, *, size: int | None = None, threshold: float | None = None, most: int = 20) -> Any:
        """Draw the most frequent columns as bars. Needs matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        size : int, optional
            The size; by default the largest.
        threshold : float, optional
            Where to draw a line.
        most : int
            How many columns to draw at most.

        Returns
        -------
        matplotlib Axes
            The axes.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        """
        frequency, order = self.frequency(size), self.ranked(size)[:most]
        ax = style.axes(ax, height=max(1.6, 0.9 + 0.24 * len(order)), grid="x")
        ax.barh(range(len(order)), frequency[order], color=style.BLUE, height=0.7)
        line = ""
        if threshold is not None:
            ax.axvline(threshold, color=style.ORANGE, linestyle="--")
            line = f"; line: {threshold:g}"
        style.name_rows(ax, [str(self.names[j]) for j in order])
        ax.set_xlim(0.0, 1.0)
        style.name_axes(ax, f"share of {self.samples} subsamples, size {size or self.k}{line}", "")
        return ax

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values |= {"frequencies": self.frequencies.tolist(), "chosen": self.chosen.tolist()}
        return {"format": FORMAT, **values}

    def save(self, path: str | AnyPath) -> AnyPath:
        """Write stability.json to a folder, in place of an earlier one.

        Parameters
        ----------
        path : str, Path or ObjectPath
            The folder. It is made if it does not exist.

        Returns
        -------
        Path or ObjectPath
            The folder.
        """
        folder = as_path(path)
        make_folder(folder)
        write_json(folder / FILE, self.as_dict())
        return folder

    @classmethod
    def open(cls, path: str | AnyPath) -> Stability:
        """Open what `save` wrote.

        Parameters
        ----------
        path : str, Path or ObjectPath
            The folder.

        Returns
        -------
        Stability
            The result.

        Raises
        ------
        MissingInputError, DataError
            If there is none, or it is damaged.
        """
        folder = as_path(path)
        if not (folder / FILE).is_file():
            raise MissingInputError(f"There is no {FILE} in {folder}.", "Name the folder of a saved stability.")
        values: Any = read_json(folder / FILE)
        try:
            if values.pop("format") != FORMAT:
                raise DataError(f"{folder / FILE} has an unknown format.", "Use a newer version of dsel.")
            values |= {name: tuple(values[name]) for name in ("names", "included", "shape")}
            values["notes"] = tuple(values.get("notes", ()))
            values |= {name: np.array(values[name], np.float64) for name in ("frequencies", "chosen")}
            return cls(**values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{folder / FILE} is damaged: {error!r}.", "Run it again.") from error

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        stable = shorten((printable(name) for name in self.stable(_STABLE)), _SHOWN) or "none"
        about = f"{self.candidates:,} candidates, k = {self.k}, {self.description}"
        return f"<Stability: {about}; chosen on {_STABLE:.0%} or more: {stable}>"

    def _repr_html_(self) -> str:
        head, *rest = self.render().splitlines()
        frequency, order = self.frequency(), self.ranked()[:_NOTEBOOK_ROWS]
        rows = "".join(
            f"<tr><th scope='row' style='text-align: left'>{escape(printable(self.names[j]))}</th>"
            f"<td>{frequency[j]:.1%}</td></tr>"
            for j in order
        )
        notes = "".join(f"<p>{escape(line.strip())}</p>" for line in rest[len(order) :])
        table = f"<table><thead><tr><th>Column</th><th>Chosen on</th></tr></thead><tbody>{rows}</tbody></table>"
        return f"<div><p>{escape(head)}</p>{table}{notes}</div>"

    def render(self, most: int = 20, threshold: float = _STABLE) -> str:
        """Return the most frequent columns as text.

        Parameters
        ----------
        most : int
            How many lines.
        threshold : float
            The share of the subsamples for which the last line has the number of columns, and how many of them may be
            mistakes. There is no bound on these for shares of at most 0.5.

        Returns
        -------
        str
            A headline and a table.
        """
        frequency, order = self.frequency(), self.ranked()
        lines = [f"Best subsets of at most {self.k} on {self.description}:"]
        lines += [f"  {frequency[j]:6.1%}  {printable(self.names[j])}" for j in order[:most]]
        if len(order) > most:
            lines.append(f"  and {len(order) - most} more")
        if self.resample != "bootstrap":
            lines.append(self._stable_in_words(threshold))
        lines += [f"Note: {note}." for note in self.notes]
        return "\n".join(lines)

    def _stable_in_words(self, threshold: float) -> str:
        """Return how many columns reach a threshold, and how many of them may be mistakes."""
        stable = len(self.stable(threshold))
        found = f"{stable or 'None'} {noun(stable, 'is', 'are')} chosen on {100.0 * threshold:.3g}% or more."
        if not stable or not threshold > 0.5:
            return found
        bound = self.error_bound(threshold)
        if bound >= stable - len(self.included):  # those were not found
            return f"{found} The bound on mistakes, {bound:.3g}, tells nothing about {noun(stable, 'it', 'them')}."
        if stable == 1:
            return f"{found} The expected number of mistakes is at most {bound:.3g}, {self._assumed}."
        return f"{found} At most {bound:.3g} of them are expected to be there by mistake, {self._assumed}."

    @property
    def _assumed(self) -> str:
        """What the bound on mistakes assumes, in words."""
        kinds = {"whole groups": "groups of rows", "blocks": "blocks of rows"}
        units = next((units for kind, units in kinds.items() if kind in self.description), "rows")
        exchangeable = "" if self.resample == "pairs" else " and columns of noise exchangeable"
        return f"if {units} are independent{exchangeable}"
