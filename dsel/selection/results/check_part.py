"""The final check of a selection from sums, by shares: each site computes the residuals of its rows.

A share holds no row: the sum of squared residuals of each target, and the mean and squared norm of each target.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from dsel._lib.damage import DamagedFileError, digest_of
from dsel._lib.text import shorten
from dsel._lib.types import Floats, Ints
from dsel.config.request import SCALED
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import DataError, MissingInputError, OptionError, OutputError
from dsel.passes.moments import Moments, block_moments, merge
from dsel.passes.reduce_blocks import RowPass
from dsel.selection.record import SelectionRecord
from dsel.selection.results.apply import LinearModel, StoredColumns
from dsel.storage.json_files import parse_checked_json, write_json
from dsel.storage.paths import AnyPath, as_path

_KIND = "share of a check"
#: R2 from the rows and from sums may differ by this.
AGREEMENT = 1e-6


@dataclass(frozen=True)
class PartShare:
    """The share of some rows in the check of a selection.

    Parameters
    ----------
    selection : str
        A digest of the columns and coefficients that were checked.
    name : str
        The name of the data.
    rows : int
        The number of rows.
    weight : float
        The sum of their weights.
    rss : tuple of float
        The sum of squared residuals of each target, in its own units.
    mean, total : tuple of float
        The mean of each target, and its squared norm about the mean.
    """

    selection: str
    name: str
    rows: int
    weight: float
    rss: tuple[float, ...]
    mean: tuple[float, ...]
    total: tuple[float, ...]

    def __str__(self) -> str:
        """Return the residual sum of squares in words."""
        return (
            f"{self.name}: {self.rows:,} rows, residual sum of squares {', '.join(f'{one:.10g}' for one in self.rss)}"
        )

    def save(self, path: str | AnyPath, *, overwrite: bool = False) -> AnyPath:
        """Write the share to a JSON file, and return its path. Errors: OutputError where it exists."""
        path = as_path(path)
        if path.exists() and not overwrite:
            raise OutputError(f"{path} exists.", "Choose another place, or overwrite it.")
        write_json(path, {"kind": _KIND, **asdict(self)})
        return path


@dataclass(frozen=True)
class AddedShares:
    """What all shares say about a selection.

    Parameters
    ----------
    rows : int
        The number of rows of all shares.
    rss : tuple of float
        The sum of squared residuals of each target, in its own units.
    r2 : float
        The share of ||Y||^2 that the columns explain, from the rows.
    expected : float
        The same from the sums, as the selection has it.
    agrees : bool
        Whether the two differ by 1e-6 at most.
    """

    rows: int
    rss: tuple[float, ...]
    r2: float
    expected: float
    agrees: bool

    def __str__(self) -> str:
        """Return the comparison in words."""
        verdict = "they agree" if self.agrees else f"they differ by more than {AGREEMENT:g}"
        return f"{self.rows:,} rows give R2 = {self.r2:.12g}, and the selection has {self.expected:.12g}: {verdict}"


def part_share(selection: SelectionRecord, dataset: Dataset, engine: Engine = THREADS) -> PartShare:
    """Return the share of the rows of a dataset, from one pass over the chosen columns.

    Errors: OptionError for a selection without targets; DataError where columns or targets of it are missing.
    """
    if selection.unsupervised:
        raise OptionError("The selection has no targets (Y = X).", "Shares are of the residuals of targets.")
    if "noise" in selection.counts:
        raise OptionError(
            "The selection is from noisy sums, and exact residuals of the rows would reveal what the noise protects.",
            "Use the bound on the residuals in its notes.",
        )
    if selection.by_loss:
        raise OptionError(
            f"Shares are of squared residuals, and the selection minimizes the {selection.request.loss} deviance.",
            "Use selection.score(X, y) on each part.",
        )
    names = [str(name) for name in dataset.targets]
    missing = [target for target in selection.targets if target not in names]
    if missing:
        raise DataError(
            f"{dataset.name} lacks targets of the selection: {shorten(missing)}.", "Check the data of this part."
        )
    columns = StoredColumns.of(selection, dataset)
    model = replace(LinearModel.of(selection), flat=False)
    work = 2 * dataset.m * len(selection) * len(selection.targets)
    chosen = np.array([names.index(target) for target in selection.targets])
    row_pass = RowPass("check", dataset, _block_residuals, merge, 8 * len(names) ** 2, work, columns.read)
    found = row_pass.run(engine, columns=columns, model=model, targets=chosen, where=dataset.name)
    rss = np.diag(found.K) + found.weight * found.mean_x**2
    numbers = (tuple(one.tolist()) for one in (rss, found.mean_y, found.yy))
    return PartShare(_identity(selection), as_path(dataset.name).name, dataset.m, found.weight, *numbers)


def _block_residuals(
    x: Any, y: Any, block: Block, columns: StoredColumns, model: LinearModel, targets: Ints, where: str
) -> Moments:  # fmt: skip
    """Return the moments of the residuals and of the targets of a block."""
    of_block = np.asarray(y, np.float64)[:, targets]
    residuals: Floats = of_block - model(columns.take(x))
    place = f"{where}, rows {block.start} to {block.stop - 1}"
    return block_moments(residuals, of_block, None, place, block.start, block.w)


def read_share(path: str | AnyPath) -> PartShare:
    """Return a saved share. Errors: MissingInputError, DataError."""
    path = as_path(path)
    if not path.is_file():
        raise MissingInputError(f"There is no file {path}.", "Name the file that dsel check-part wrote.")
    try:
        values, checked = parse_checked_json(path.read_text())
        if not checked or values.pop("kind") != _KIND:
            raise DamagedFileError("it is no share of a check")
        numbers: dict[str, Any] = {name: tuple(map(float, values.pop(name))) for name in ("rss", "mean", "total")}
        return PartShare(**values, **numbers)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error}.", "Copy it again from its site.") from error


def add_shares(selection: SelectionRecord, shares: Sequence[PartShare]) -> AddedShares:
    """Return what the shares of all parts say about a selection.

    Errors: OptionError without shares; DataError for a share of another selection, one that is given twice, or a
    missing one.
    """
    if not shares:
        raise OptionError("There are no shares.", "Name the files that dsel check-part wrote.")
    identity = _identity(selection)
    for share in shares:
        if share.selection != identity:
            raise DataError(f"The share of {share.name} is of another selection.", "Check this one there.")
    for a, b in combinations(shares, 2):
        if replace(a, name=b.name) == b:
            raise DataError(f"The shares of {a.name} and {b.name} are of the same rows.", "Give each share once.")
    rows, m = sum(share.rows for share in shares), selection.shape[0]
    if rows != m:
        counted = [share.rows for share in shares]
        absent = [part["name"] for part in selection.counts.get("parts", ()) if part["rows"] not in counted]
        named = f" (no share has as many rows as {shorten(absent)})" if absent else ""
        raise DataError(
            f"The shares have {rows} rows together, and the selection {m}{named}.",
            "Give one share for each part of the selection, of the same rows.",
        )
    rss = np.sum([share.rss for share in shares], axis=0)
    weight = np.array([share.weight for share in shares])
    means, within = np.array([share.mean for share in shares]), np.sum([share.total for share in shares], axis=0)
    mean = weight @ means / weight.sum()
    total = within + weight @ (means - mean) ** 2
    if selection.preprocess in ("unit", "none"):
        total = total + weight.sum() * mean**2
    scale = total if selection.preprocess in SCALED else np.ones(total.size)
    varies = total > 0.0
    r2 = 1.0 - float((rss[varies] / scale[varies]).sum() / (total[varies] / scale[varies]).sum())
    return AddedShares(rows, tuple(rss.tolist()), r2, float(selection.r2), abs(r2 - selection.r2) <= AGREEMENT)


def _identity(selection: SelectionRecord) -> str:
    """Return a digest of the columns and coefficients of a selection."""
    numbers = [selection.coefficients.tolist(), selection.intercept.tolist()]
    return digest_of(json.dumps([selection.labels, list(selection.targets), *numbers]).encode())
