"""`selection.plot` draws what the result says, on the axes it is given."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

import dsel
from dsel.errors import MissingExtraError, MissingInputError, OptionError
from dsel.selection.plots.style import short_labels
from tests.selection.plots import selections

mpl.use("Agg")

from matplotlib import pyplot as plt

PICTURES = (
    "front", "path", "sizes", "subsets", "trace", "coefficients", "correlation", "alternatives", "prices", "reliance",
)  # fmt: skip
#: Not in every selection.
EXTRA = ("sizes", "alternatives", "prices", "reliance")


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def line(ax: plt.Axes, label: str) -> np.ndarray:
    """The points of the line whose label begins so."""
    return next(one for one in ax.lines if str(one.get_label()).startswith(label)).get_xydata()


@pytest.mark.parametrize("picture", [picture for picture in PICTURES if picture not in EXTRA])
def test_it_draws_on_the_given_axes_and_returns_them(picture: str) -> None:
    _, (left, right) = plt.subplots(ncols=2)
    assert getattr(selections.plain().plot, picture)(ax=right) is right
    assert not left.has_data()
    right.figure.canvas.draw()


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("kind", [kind for kind in selections.ALL if kind != "nothing"])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_every_kind_of_selection_is_drawn_or_says_what_is_missing(kind: str, picture: str) -> None:
    selection = selections.ALL[kind]()
    try:
        ax = getattr(selection.plot, picture)()
    except MissingInputError as missing:
        assert missing.remedy  # noqa: PT017  (most are drawn)
    else:
        assert ax.has_data()  # tests/selection/report/test_page.py renders them


def test_pictures_of_no_column_say_so() -> None:
    selection = selections.automatic_nothing()
    assert selection.indices == ()
    assert selection.plot.front().has_data()
    with pytest.raises(MissingInputError, match="no two subsets of at most 0 columns"):
        selection.plot.subsets()
    assert "Chosen: none\n" in str(selection)


def test_the_front_shows_the_best_subsets_forward_selection_and_the_choice() -> None:
    selection = replace(selections.plain(), forward=tuple(
        replace(row, error=1.5 * row.error, r2=0.9 * row.r2) for row in selections.plain().forward
    ))  # fmt: skip
    ax = selection.plot.front()
    inside = [row for row in selection.front if 0 < row.size <= selection.k]
    np.testing.assert_array_equal(line(ax, "best found"), [(row.size, row.r2) for row in inside])
    np.testing.assert_array_equal(line(ax, "forward"), [(row.size, row.r2) for row in selection.forward if row.size])
    assert line(ax, "chosen")[0] == pytest.approx((len(selection), selection.r2))


def test_forward_selection_is_left_out_where_it_is_the_front_itself() -> None:
    ax = selections.several_targets().plot.front()
    assert not [one for one in ax.lines if str(one.get_label()).startswith("forward")]


def test_a_band_shows_what_is_still_possible() -> None:
    selection = selections.half_certified()
    ax = selection.plot.front()
    (band,) = ax.collections
    row = selection.certificate[0]
    box = band.get_datalim(ax.transData)
    np.testing.assert_allclose((box.y0, box.y1), (row["r2"], row["r2_bound"]))
    assert box.x0 < row["size"] < box.x1


def test_a_diamond_shows_what_is_proved() -> None:
    selection = selections.certified()
    assert all(row["proven"] for row in selection.certificate)
    ax = selection.plot.front()
    assert not ax.collections
    expected = [(row["size"], row["r2"]) for row in selection.certificate if row["size"]]
    np.testing.assert_array_equal(line(ax, "proved"), expected)


def test_a_criterion_is_drawn_where_one_was_minimized() -> None:
    selection = selections.by_criterion()
    assert selection.plot.front().get_ylabel() == "criterion"
    assert selection.plot.front(quantity="r2").get_ylabel() != "criterion"
    with pytest.raises(OptionError, match="without a custom criterion"):
        selections.plain().plot.front(quantity="criterion")
    with pytest.raises(OptionError, match="One of r2, error, criterion"):
        selections.plain().plot.front(quantity="r")  # type: ignore[arg-type]


def test_the_trace_ends_at_the_result() -> None:
    selection = selections.plain()
    drawn = selection.plot.trace().lines[0].get_xydata()
    assert drawn[-1] == pytest.approx((selection.iterations, selection.r2))
    assert (np.diff(drawn[:, 1]) >= 0).all()


def test_bars_of_gains_end_at_r2() -> None:
    selection = selections.plain()
    bars = selection.plot.path().patches
    assert len(bars) == len(selection)
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(selection.r2)


def test_shares_that_a_penalty_lowers_are_named_so() -> None:
    X = np.random.default_rng(0).normal(size=(60, 4))
    ax = dsel.select(X, X[:, 0] + X[:, 1], k=2, lam=60.0).plot.path()
    assert ax.get_xlabel() == "share explained so far, less the penalty"


def test_the_path_shows_errors_on_left_out_and_on_held_out_rows() -> None:
    selection = selections.with_path()
    ax = selection.plot.path()
    np.testing.assert_array_equal(line(ax, "left-out")[:, 1], [row.error for row in selection.path])
    np.testing.assert_array_equal(line(ax, "held-out")[:, 1], [row.test_error for row in selection.path])


def test_the_curve_of_sizes_shows_which_was_chosen() -> None:
    selection = selections.automatic()
    curve = selection.size_curve
    assert curve is not None
    ax = selection.plot.sizes()
    drawn = [(point.size, point.value) for point in curve.points]
    np.testing.assert_array_equal(line(ax, "error"), drawn)
    assert tuple(line(ax, "chosen")[0]) in drawn
    assert line(ax, "chosen")[0][0] == selection.k


def test_the_curve_of_sizes_names_what_the_rule_compares() -> None:
    assert selections.automatic().plot.sizes().get_ylabel() == "error per left-out row"
    options = {"k": "auto", "max_k": 2, "choose_k": "folds", "loss": "logistic", "lam": 1.0, "method": "forward"}
    weights = np.linspace(0.1, 2.0, len(selections.Y))
    found = dsel.select(selections.X, selections.Y > 0, sample_weight=weights, **options)
    assert found.plot.sizes().get_ylabel() == "weighted deviance per left-out row"
    adjusted = dsel.select(selections.X, selections.Y, k="auto", choose_k="adjusted-r2", method="forward")
    assert adjusted.plot.sizes().get_ylabel() == "minus the adjusted R²"


def test_coefficients_are_for_one_standard_deviation_or_in_units_of_the_data() -> None:
    selection = selections.plain()
    chosen = selections.X[:, list(selection.indices)]
    expected = selection.coefficients[:, 0] * chosen.std(axis=0) / selections.Y.std()
    dots = selection.plot.coefficients().collections[-1].get_offsets()
    np.testing.assert_allclose(dots[:, 0], expected)
    dots = selection.plot.coefficients(standardized=False).collections[-1].get_offsets()
    np.testing.assert_array_equal(dots[:, 0], selection.coefficients[:, 0])


def test_correlations_are_drawn_in_the_order_of_the_columns() -> None:
    selection = selections.plain()
    drawn = selection.plot.correlation().collections[0].get_array()
    np.testing.assert_allclose(drawn, np.corrcoef(selections.X[:, list(selection.indices)].T), atol=1e-9)


def test_dots_show_which_columns_each_subset_holds() -> None:
    selection = selections.plain()
    ax = selection.plot.subsets()
    dots = np.concatenate([one.get_offsets() for one in ax.collections])
    names = [text.get_text() for text in ax.get_yticklabels()]
    drawn = {(int(size), names[int(place)]) for size, place in dots}
    rows = [row for row in selection.front if 0 < row.size <= selection.k]
    assert drawn == {(row.size, f"x{j}") for row in rows for j in row.indices}


@pytest.mark.filterwarnings("ignore:Glyph")
def test_calibration_says_whether_shares_are_of_rows_or_of_their_weight() -> None:
    y, weights = selections.Y > 0, np.linspace(0.1, 2.0, len(selections.Y))
    options = {"k": 2, "loss": "logistic", "lam": 1.0, "method": "forward"}
    found = dsel.select(selections.X, y, sample_weight=weights, **options)
    assert found.plot.calibration().get_ylabel() == "share of the weight of the rows"
    assert found.plot.calibration(selections.X, y).get_ylabel() == "share of the rows"
    weighed = found.plot.calibration(selections.X, y, sample_weight=weights)
    assert weighed.get_ylabel() == "share of the weight of the rows"


def test_labels_are_drawn_as_they_are() -> None:
    """A dollar sign begins no formula."""
    ax = selections.hostile().plot.path()
    ax.figure.canvas.draw()
    texts = {text.get_text().replace(r"\$", "$") for text in ax.get_yticklabels()}
    assert "price $a$ in $" in texts
    assert "two lines" in texts
    assert not any("\x1b" in text for text in texts)


@pytest.mark.parametrize("width", [8, 18])
def test_short_labels_stay_different(width: int) -> None:
    labels = [*(f"station_north_temperature_{i:03d}_daily_mean" for i in range(50)), "short", *["same" * 20] * 2]
    short = short_labels(labels, width)
    assert len(set(short)) == len(labels)
    assert max(map(len, short)) <= 3 * width + 4
    assert short[50] == "short"


def test_words_that_all_labels_share_are_left_out_of_long_ones() -> None:
    labels = [f"station_{place}_temperature_{i:03d}_mean" for i, place in enumerate(("north", "south", "east", "west"))]
    assert short_labels([*labels, "wind"]) == ["…north…000…", "…south…001…", "…east…002…", "…west…003…", "wind"]


def test_results_of_version_0_1_say_what_they_lack() -> None:
    old = replace(selections.plain(), statistics=None)
    for picture in ("correlation", "coefficients", "path"):
        with pytest.raises(MissingInputError, match="Run the job again"):
            getattr(old.plot, picture)()
    assert old.plot.coefficients(standardized=False).has_data()


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dsel\[plots\]'"):
        dsel.Selection.plot.fget(selections.plain()).front()  # type: ignore[attr-defined]


def test_near_best_subsets_are_drawn_with_their_columns_and_prices() -> None:
    selection = selections.with_alternatives()
    found = selection.alternatives
    assert found is not None
    assert len(found.subsets) > 1
    ax = selection.plot.alternatives()
    cells = ax.collections[0].get_array()
    assert cells.count(axis=0).tolist() == [selection.k] * len(found.subsets)
    first = ax.get_yticklabels()[0].get_text()
    assert first in found.labels("necessary")
    prices = selection.plot.prices()
    shown = [price.get_text() for price in prices.get_yticklabels()]
    known = line(prices, "best known with it")[:, 0]
    assert known == pytest.approx([found.r2(found.prices[label].error_with) for label in shown])
    reliance = selection.plot.reliance()
    ends = [path.vertices[:, 0] for path in reliance.collections[0].get_paths()]
    labels = [label.get_text() for label in reliance.get_yticklabels()]
    for label, (low, high) in zip(labels, ends, strict=True):
        assert (low, high) == pytest.approx(found.prices[label].reliance)


def test_pictures_of_alternatives_say_what_they_need() -> None:
    with pytest.raises(MissingInputError, match="list by bic has no losses of columns"):
        selections.listed_by_bic().plot.reliance()
    with pytest.raises(MissingInputError, match="has no alternatives"):
        selections.plain().plot.prices()
