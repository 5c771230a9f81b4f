"""The report and the notebook view: complete, self-contained HTML in which labels are text."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel._lib.text import at_most
from dsel.errors import MissingExtraError, MissingInputError, OutputError
from dsel.selection.record_values import TraceRow
from dsel.selection.report import tables
from dsel.selection.report.page import render_report
from tests.cli_runner import call
from tests.selection.plots import selections
from tests.selection.report.pages import report_of

VOID = {"wbr", "meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """The elements, ids, references and text of a page. It fails if a tag is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.loaded: list[str] = []
        self.text = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value or "")
            elif name in ("aria-labelledby", "aria-describedby"):
                self.references += (value or "").split()
            elif name in ("href", "xlink:href") and (value or "").startswith("#"):
                self.references.append((value or "")[1:])
            elif name in ("src", "href", "xlink:href", "data", "action"):
                self.loaded.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("kind", selections.ALL)
def test_it_is_one_page_that_loads_nothing(kind: str) -> None:
    html = report_of(kind)
    page = Page(html)
    assert not {"script", "iframe", "object", "form"} & set(page.tags)
    assert all(link.startswith("data:") for link in page.loaded)
    assert not re.search(r"@import|url\((?!#)", html)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.references) <= set(page.ids)
    assert page.tags.count("h1") == 1
    assert 'lang="en"' in html


def test_it_holds_what_the_result_says() -> None:
    selection = selections.certified()
    page = Page(report_of("certified"))
    for label in selection.labels:
        assert label in page.text
    for fact in (
        f"{selection.r2:.4f}", "Proved optimal", f"{selection.iterations:,} iterations", "standardize", "poss",
        selection.provenance["host"], selection.versions["numpy"], "Planned", "Measured",
    ):  # fmt: skip
        assert fact in page.text
    assert "Search seconds" not in page.text
    for title in ("Best subset of each size", "What each column adds", "Convergence", "Correlation", "Coefficients"):
        assert title in page.text
    assert "There is no picture" not in page.text


def test_groups_are_counted_and_named() -> None:
    page = Page(report_of("grouped"))
    assert f"3 groups with {len(selections.grouped())} of 24 columns explain" in page.text
    assert "rain" in page.text
    assert "Groups in order of gain: each adds the most to those above it" in page.text
    assert "Each point is the best subset found with that number of groups." in page.text
    assert "number of columns" not in page.text


def test_a_report_and_a_printed_result_say_that_included_columns_come_first() -> None:
    selection = dsel.select(selections.X, selections.Y, k=4, include=[0])
    page = Page(render_report(selection)).text
    assert (
        "Included columns come first, then the others in order of gain: each adds the most to those above it." in page
    )
    assert "Included ones first, then in order of gain. Blue is positive" in page
    assert "Chosen, included ones first, then in order of gain: x0, " in str(selection)


def test_convergence_is_told_from_the_start_of_the_search() -> None:
    found = selections.plain()
    start = TraceRow(0, 1, 3.0 * found.error), TraceRow(0, 6, 2.0 * found.error)
    later = TraceRow(9, 6, 1.5 * found.error), TraceRow(30, 6, found.error)
    none = f"The search started with {1.0 - 2.0 * (1.0 - found.r2):.4g}. None of 4,000 iterations improved it."
    assert none in Page(render_report(replace(found, trace=start))).text
    led = f"2 improvements in 4,000 iterations led to {found.r2:.4g}, the last at iteration 30."
    assert led in Page(render_report(replace(found, trace=(*start, *later)))).text


def test_convergence_names_a_size_that_is_not_that_of_the_answer() -> None:
    X = np.random.default_rng(0).normal(size=(200, 8))
    y = np.random.default_rng(1).poisson(np.exp(0.4 * X[:, 1]))
    found = dsel.select(X, y, k="auto", max_k=4, choose_k="bic", loss="poisson", iterations=500)
    assert (found.k, found.trace[0].size, found.trace[-1].size) == (1, 0, 4)
    assert re.search(
        r"The search started with 0 \(0 columns\)\. 1 improvement in [\d,]+ iterations led to 0\.\d+ \(4 columns\), at",
        Page(render_report(found)).text,
    )
    empty, *rest = found.trace
    rounded = replace(empty, error=empty.error * (1.0 + 1e-15))
    assert "The search started with 0 (0 columns)." in Page(render_report(replace(found, trace=(rounded, *rest)))).text


@pytest.mark.parametrize("kind", selections.ALL)
def test_no_report_has_a_blank_in_place_of_a_sentence(kind: str) -> None:
    assert not re.search(r"[.)] \(blank\)", Page(report_of(kind)).text)


@pytest.mark.usefixtures("no_pictures")
def test_numbers_of_one_are_in_the_singular() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = 3 * X[:, 1] + X[:, 0] + 0.1 * rng.normal(size=60)
    found = dsel.certify(dsel.select(X, y, k=2), X, y, sizes="all")
    text = Page(render_report(found)).text
    assert "The best subset of 1 column is proved optimal, too." in text
    one = dsel.certify(dsel.select(X, y, k=1, groups=[[0, 1]]), X, y)
    text = Page(render_report(one)).text
    assert "1 group with 2 of 4 columns explains" in text
    assert "no allowed subset of 1 independent group explains more than R²" in text
    assert "1 group with 2 of 4 columns explains" in str(one)
    assert "1 nodes" not in str(one)
    assert tables.headline(dsel.select(X[:, :1], k=1)) == "1 of 1 column explains 100.00 % of X"


@pytest.mark.usefixtures("no_pictures")
def test_copies_of_others_are_not_among_what_was_asked() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)), columns=["area", "age", "rooms"]).assign(copy=lambda f: 2 * f["area"])
    text = Page(render_report(dsel.select(X, X["area"] + rng.normal(size=60), k=1, exclude=["rooms"]))).text
    assert re.search(r"Never chosen\s*rooms\s*Copies of others, not chosen\s*copy", text)


def test_labels_are_text_and_stay_readable() -> None:
    html = report_of("hostile")
    page = Page(html)
    assert "img" not in page.tags
    assert "<script>alert('x')</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "#1f2933" in page.text  # the colors of pictures are replaced, not labels
    assert "\x1b" not in html


def test_with_a_penalty_the_proof_is_about_the_error() -> None:
    """R^2 does not count the penalty; certificates do."""
    found = selections.half_certified()
    ridge = replace(found, request=found.request.model_copy(update={"lam": 0.5}))
    text = Page(render_report(ridge)).text
    least = f"{found.certificate[0]['bound']:.6g}"
    assert f"No allowed subset of 6 independent columns has an error f(S) below {least}" in text
    assert "Least possible error" in text
    assert "Best possible R²" not in text
    assert "Best possible R²" in Page(report_of("half certified")).text


def test_what_cannot_be_drawn_says_why() -> None:
    page = Page(render_report(replace(selections.plain(), statistics=None, provenance={}, forward=(), plan=None)))
    assert "The result has no correlations: dsel 0.1 saved it. Run the job again with this version." in page.text
    assert "No column was chosen." in Page(report_of("nothing")).text


def test_the_same_result_gives_the_same_page() -> None:
    assert render_report(selections.half_certified()) == report_of("half certified")


def test_it_is_written_next_to_the_result_or_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = selections.plain().save(tmp_path / "result")
    assert dsel.report(folder) == tmp_path / "result" / "report.html"
    opened = f"certify(dsel.open_selection(&#34;{folder}&#34;)"
    code, out, err = call("report", folder, "--out", tmp_path / "new" / "page.html")
    assert (code, out.strip()) == (0, str(tmp_path / "new" / "page.html")), err
    for page in (tmp_path / "result" / "report.html", tmp_path / "new" / "page.html"):
        assert page.read_text().replace(opened, "certify(selection") == report_of("plain")


def test_it_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingInputError, match=r"selection\.json"):
        dsel.report(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        dsel.report(selections.plain(), tmp_path / "file" / "page.html")
    with pytest.raises(OutputError, match=r"written to /proc/page\.html: .* '/proc/page\.html'\."):
        dsel.report(selections.plain(), "/proc/page.html")
    with pytest.raises(OutputError, match=r"HTML page, and .*page\.md ends in \.md.*ends in \.html"):
        dsel.report(selections.plain(), tmp_path / "page.md")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"dsel\[plots\]"):
        dsel.report(selections.plain(), tmp_path / "page.html")


@pytest.mark.parametrize("kind", selections.ALL)
def test_a_notebook_shows_a_small_fragment(kind: str) -> None:
    selection = selections.ALL[kind]()
    html = selection._repr_html_()
    page = Page(html)
    assert not page.loaded
    assert not {"script", "img", "svg"} & set(page.tags)
    assert len(html) < 20_000
    assert page.tags[0] == "div"
    assert f"{len(selection)} of {selection.shape[1]} columns" in page.text


def test_a_notebook_needs_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "R² so far" in selections.plain()._repr_html_()


@pytest.mark.usefixtures("no_pictures")
def test_the_page_has_the_frequencies_of_stability_selection_if_they_are_in_the_folder(tmp_path: Path) -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 6)), columns=["<b>", *"cdefg"])
    y = X["<b>"] + 0.5 * X["d"]
    dsel.select(X, y, k=2, method="forward").save(tmp_path / "result")
    plain = Page(dsel.report(tmp_path / "result").read_text())
    assert "How stable is it?" not in plain.text
    dsel.stability(X, y, k=2, samples=4).save(tmp_path / "result")
    page = Page(dsel.report(tmp_path / "result").read_text())
    assert "How stable is it?" in page.text
    assert "4 halves in complementary pairs" in page.text
    assert re.search(r"<b>\s*1\.00\s*yes", page.text)
    assert "b" not in page.tags
    assert set(page.references) <= set(page.ids)
    dsel.stability(X[:40], y[:40], k=2, samples=4).save(tmp_path / "result")  # of other data
    assert "How stable is it?" not in Page(dsel.report(tmp_path / "result").read_text()).text


@pytest.mark.usefixtures("no_pictures")
def test_the_stability_of_groups_is_about_groups() -> None:
    groups = {"wind": [2, 3], "rain": [5, 6, 7], "sun": [0, 1]}
    found = dsel.stability(selections.X, selections.Y, k=3, samples=4, groups=groups)
    text = Page(render_report(selections.grouped(), found)).text
    assert "on which forward chooses a group, for sets of up to 3." in text
    assert re.search(r"for chosen groups and the most frequent others\s*Group\s*Share", text)
    of_columns = dsel.stability(selections.X, selections.Y, k=3, samples=4)
    assert "How stable is it?" not in Page(render_report(selections.grouped(), of_columns)).text


def test_a_sentence_says_what_is_known_about_each_column_of_near_best_subsets() -> None:
    selection = selections.with_alternatives()
    found = selection.alternatives
    assert found is not None
    text = Page(report_of("with alternatives")).text
    count = len(found.subsets)
    assert f"{count} subsets of {selection.k} columns within 5.00% of the best, no others (proved)" in text
    for label in found.labels("necessary"):
        least = found.r2(found.prices[label].bound_without)
        assert f"{label} is in all {count} near-best subsets; without it R² is at most {at_most(least)}." in text
    for label in found.labels("replaceable"):
        price = found.prices[label]
        has = f"{label} is in {found.counts[price.index]} of {count} listed subsets"
        assert f"{has}; the best without it has R² {found.r2(price.error_without):.4f}." in text
    assert "In no near-best subset: " in text
    assert "What else is nearly as good?" not in report_of("plain")


def test_a_table_lists_substitutes_of_each_column() -> None:
    text = Page(report_of("plain")).text
    assert "What could replace each column" in text
    for several in selections.plain().substitutes().values():
        assert f"{several[0].r2:.6f}" in text
    assert "What could replace each column" not in report_of("grouped")


def test_the_time_is_that_of_the_run_with_what_no_stage_counts() -> None:
    X = np.random.default_rng(0).normal(size=(60, 5))
    made = dsel.select(X, X[:, 1], k=2)
    made.provenance.update(started="2026-01-01T10:00:00+00:00", finished="2026-01-01T10:00:41+00:00")
    assert ("Time", "41 s") in [figure[:2] for figure in tables.key_figures(made)]
    made.provenance.update(finished="2026-01-01T10:00:00+00:00")
    stages = tables.duration(sum(made.seconds.values()))
    assert ("Time", stages) in [figure[:2] for figure in tables.key_figures(made)]


@pytest.mark.usefixtures("no_pictures")
def test_passes_of_proofs_are_told_apart_from_those_of_the_selection() -> None:
    selection = selections.plain()
    page = Page(render_report(replace(selection, passes=selection.passes + 2)))
    assert f"{selection.passes + 2} passes (2 for proofs)" in page.text
    assert "for proofs" not in Page(render_report(selection)).text


@pytest.mark.usefixtures("no_pictures")
def test_shares_of_near_best_subsets_are_named_less_the_penalty() -> None:
    """A better share without the penalty, of .52, is possible without x3."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 8))
    y = X[:, 1] + X[:, 2] - X[:, 3] + 0.8 * X[:, 5] + rng.normal(size=60)
    selection = dsel.select(X, y, k=3, lam=30.0)
    text = Page(render_report(selection.with_alternatives(dsel.alternatives(selection, X, y, within=0.1)))).text
    assert "x3 is in all 3 near-best subsets; without it R² less the penalty is at most 0.4136." in text


@pytest.mark.usefixtures("no_workers", "no_pictures")
def test_the_report_says_how_to_certify(tmp_path: Path) -> None:
    """A call in Python with the store or the data, the saved selection where it is one, and a command for a job."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 4)), columns=list("abcy"))
    store, folder, job = tmp_path / "data.zarr", tmp_path / "answer", tmp_path / "job.yaml"
    dsel.ingest(frame, store, target="y")
    selection = dsel.select(store, k=2)
    selection.save(folder)
    job.write_text(f"store: {store}\nk: 2\n")
    assert call("run", str(job), "--out", str(tmp_path / "result"))[0] == 0
    for result, said in (
        (dsel.select(frame, "y", k=2), "dsel.certify(selection, X, y)"),
        (selection, f'dsel.certify(selection, "{store}")'),
        (folder, f'dsel.certify(dsel.open_selection("{folder}"), "{store}")'),
        (tmp_path / "result", f"dsel certify {tmp_path / 'result'}"),
    ):
        page = Page(dsel.report(result, tmp_path / "page.html").read_text())
        assert f"No certificate yet. {said} proves" in page.text
    assert "proved" in str(dsel.certify(dsel.open_selection(folder), str(store)))


@pytest.mark.usefixtures("no_pictures")
def test_bounds_are_rounded_so_that_they_stay_true() -> None:
    """A lower bound is rounded down and an upper bound up, also in what is printed."""
    found = selections.half_certified()
    row = {**found.certificate[0], "value": 69.66553, "bound": 69.66537, "r2_bound": 0.12340001}
    bounded = replace(found, certificate=(row,))
    assert "none is above 0.123401; error 69.6655, none is below 69.6653 (" in str(bounded)
    text = Page(render_report(bounded)).text
    assert "Best possible R²≤ 0.1235" in text
    ridge = replace(bounded, request=found.request.model_copy(update={"lam": 0.5}))
    text = Page(render_report(ridge)).text
    assert "Least possible error≥ 69.665" in text
    assert "an error f(S) below 69.6653; the best known has 69.6655." in text


@pytest.mark.usefixtures("no_pictures")
def test_classes_are_counted_by_name_and_make_one_target() -> None:
    X = np.random.default_rng(0).normal(size=(90, 4))
    y = pd.Series(np.array(["low", "mid", "top"])[np.digitize(X[:, 1], [-0.5, 0.5])], name="level")
    text = Page(render_report(dsel.select(X, y, k=1, loss="multinomial", lam=1.0, method="forward"))).text
    assert "% of the multinomial deviance of level" in text
    assert "multinomial deviance (classes: low, mid, top)" in text


@pytest.mark.usefixtures("no_pictures")
def test_a_proof_of_an_automatic_size_is_about_that_size() -> None:
    none = selections.automatic_nothing()
    noise = np.random.default_rng(4).normal(size=len(selections.X))
    text = Page(render_report(dsel.certify(none, selections.X, noise))).text
    assert "Proved optimal: only one subset of 0 columns may be chosen." in text
    assert "proved: no allowed subset of this size is better" in text


@pytest.mark.usefixtures("no_pictures")
def test_coefficients_of_x_itself_are_for_its_columns() -> None:
    found, text = selections.of_itself(), Page(report_of("of itself")).text
    assert re.search(r"Those of \d+ columns are in selection\.coefficients", text)
    largest = re.search(r"The largest coefficient is \S+, of (x\d+) for (x\d+)\.", text)
    assert largest is not None
    assert largest[1] in found.labels
    assert largest[2] not in found.labels


@pytest.mark.usefixtures("no_pictures")
def test_a_model_with_a_column_of_ones_has_its_own_share() -> None:
    y = selections.Y + 5.0
    options = {"method": "greedy-rls", "lam": 1.0, "intercept": "column", "preprocess": "none"}
    found = dsel.select(selections.X, y, k=2, **options)
    assert f", and {100 * found.counts['r2_with_ones']:.2f} % with the column of ones" in tables.headline(found)


@pytest.mark.usefixtures("no_pictures")
def test_a_list_by_a_criterion_has_no_prices_of_columns() -> None:
    """Subsets of several sizes are ranked by the criterion, so the first is not the one of largest R2."""
    text = Page(report_of("listed by BIC")).text
    assert "Best subsets by bic" in text
    assert "With and without each column" not in text
    assert "near-best" not in text
