"""The report of the papers: its verdicts, its parts that are saved and made again, and what it looks like."""

from __future__ import annotations

import inspect
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.benchmarks.simulated_workers import counted_speed
from pipelines.benchmarks.synthetic import regression_data
from pipelines.papers import unconfirmed
from pipelines.papers.__main__ import app
from pipelines.papers.contents import PAPERS
from pipelines.papers.greedy_rls import low_rank_ls_svm
from pipelines.papers.poss.table_2_part import _compared
from pipelines.papers.preprocess import regression
from pipelines.papers.report.document import Document
from pipelines.papers.report.model import (
    Claim,
    Comparison,
    ComparisonTable,
    Content,
    Grid,
    Number,
    Plot,
    Series,
)
from pipelines.papers.report.saved import make_parts
from pipelines.papers.report.settings import Paper, Part, Settings
from pipelines.papers.report.write import render_html, write
from tests.selection.report.test_browser import TOO_WIDE, WIDTHS, browser

__all__ = ["browser"]

CONTENT = Content(
    lead="Two methods.",
    tables=(
        ComparisonTable(
            title="Table 9", value="R²", decimals=3, mark="Nodes",
            rows=(
                Comparison(data="a", method="exact", paper=Number(mean=0.5, unit=1e-3), ours=Number(mean=0.5004)),
                Comparison(data="a", method="off", paper=Number(mean=0.5, unit=1e-3), ours=Number(mean=0.51),
                           reason="Another <b>scale</b>."),
                Comparison(data="a", method="absent", paper=Number(mean=0.5, unit=1e-3), reason="no data"),
            ),
        ),
    ),
    grids=(Grid(title="Shapes", head=("data", "rows", "remark"), rows=(("a|b", "3", "x" * 60),)),),
    plots=(
        Plot(title="Curve", x="k", y="R²", words="It rises.", series=(
            Series(name="ours", x=(1.0, 2.0), y=(0.1, 0.2), spread=(0.01, 0.02), kind="points"),
            Series(name="level", x=(), y=(0.15,), kind="level"),
        )),
    ),
    claims=(Claim(said="It is better.", holds=False, found="It is not."),), missing=("Table 10: no data.",),
)  # fmt: skip


def papers(*parts: Part) -> tuple[Paper, ...]:
    return (Paper("P", "A paper", "Somebody, 2000.", parts),)


@pytest.mark.parametrize(
    ("paper", "ours", "state", "errors"),
    [
        (Number(mean=2.524, unit=1e-3), Number(mean=2.5235), "same", None),
        (Number(mean=2.524, unit=1e-3), Number(mean=2.5251), "differs", None),
        (Number(mean=0.5, std=0.1, runs=100), Number(mean=0.525, std=0.1, runs=100), "close", 1.768),
        (Number(mean=0.5, std=0.1, runs=100), Number(mean=0.53, std=0.1, runs=100), "differs", 2.121),
        (None, Number(mean=1.0), "ours only", None),
        (Number(mean=1.0), None, "paper only", None),
    ],
)
def test_numbers_agree_within_a_unit_of_the_last_digit_or_two_standard_errors(
    paper: Number | None, ours: Number | None, state: str, errors: float | None
) -> None:
    row = Comparison(data="a", method="b", paper=paper, ours=ours)
    assert row.state == state
    assert row.standard_errors == (None if errors is None else pytest.approx(errors, abs=1e-3))


def test_rounding_counts_in_the_standard_error() -> None:
    assert Number(mean=1.0, std=3.0, runs=9, unit=12.0**0.5).error == pytest.approx(2.0**0.5)


def test_poss_wins_where_the_paired_test_says_so() -> None:
    rng = np.random.default_rng(0)
    poss = rng.random(100)
    assert _compared(poss, poss - rng.random(100) * 1e-3) == "win"
    assert _compared(poss, poss + rng.random(100) * 1e-3) == "loss"
    assert _compared(poss, poss) == "tie"
    assert _compared(poss, poss + rng.permutation(np.linspace(-1e-3, 1e-3, 100))) == "tie"


def test_an_interrupted_report_continues_and_one_part_is_made_again(tmp_path: Path) -> None:
    made: list[str] = []

    def part(name: str, fails: bool = False) -> Part:
        def make(settings: Settings) -> Content:
            made.append(name)
            if fails:
                raise ValueError("no such <file>")
            return CONTENT

        return Part(name, f"Table {name}", make)

    settings, said = Settings(tmp_path, quick=True, processes=1), list[str]()
    first = make_parts([part("one"), part("two", fails=True), part("three")], settings, [], said.append)
    assert made == ["one", "two", "three"]  # a part that fails does not stop the others
    assert first["two"].content is None
    assert "no such <file>" in first["two"].error
    made.clear()
    parts = [part("one"), part("two"), part("three")]
    assert make_parts(parts, settings, [], said.append)["two"].content == CONTENT
    assert made == ["two"]
    made.clear()
    late = make_parts([*parts, part("four")], settings, [], said.append, seconds=0.0)
    assert (set(late), made) == ({"one", "two", "three"}, [])  # no part begins after the time; saved ones are read
    make_parts(parts, settings, ["three"], said.append)
    assert made == ["three"]
    made.clear()
    make_parts(parts, Settings(tmp_path, quick=False, processes=1), ["one"], said.append)
    assert made == ["one"]  # what was saved by a quick run is not used, nor made without being asked for


def test_the_page_and_the_text_show_every_number_and_why_one_differs(tmp_path: Path) -> None:
    parts = (Part("t9", "Table 9: R²", lambda settings: CONTENT), Part("t8", "Table 8: R²", lambda settings: CONTENT))
    made = make_parts(parts[:1], Settings(tmp_path, True, 1), [], lambda line: None)
    document = Document.of(papers(*parts), made, True)
    html, markdown = write(document, tmp_path)
    page, text = html.read_text(), markdown.read_text()
    for found in (page, text):
        for words in ("0.500", "0.510", "+0.010 (+2 %)", "not computed", "a, absent: no data", "Table 10: no data.",
                      "Table 8: R²: not made in this run.", "Not confirmed", "It is not."):  # fmt: skip
            assert words in found
    assert "| a | exact | 0.500 | 0.500 | +0.000 (+0.08 %) |  |  | same |" in text
    assert "Another &lt;b&gt;scale&lt;/b&gt;." in page
    assert "| a\\|b | 3 |" in text
    assert ET.parse(tmp_path / "figures" / "t9-1.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_browser_shows_the_page_whole(browser: Any, tmp_path: Path, width: int) -> None:
    part = Part("t9", "Table 9: R²", lambda settings: CONTENT)
    made = make_parts([part], Settings(tmp_path, True, 1), [], lambda line: None)
    file = tmp_path / "report.html"
    file.write_text(render_html(Document.of(papers(part), made, False)))
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(file.as_uri())
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []
    assert page.locator("figure svg:visible").count() == 1
    page.close()


@pytest.mark.slow
def test_a_quick_report_of_some_parts(tmp_path: Path) -> None:
    wanted = ["poss-table-1", "poss-table-2", "poss-curves", "poss-figure-2", "pocss-table-1", "pocss-figure-1",
              "pocss-figure-2", "heuristic-tables", "greedy-rls-timing", "greedy-rls-curves"]  # fmt: skip
    only = [word for name in wanted for word in ("--only", name)]
    found = CliRunner().invoke(app, ["all", "--quick", "--processes", "1", "--out", str(tmp_path), *only])
    assert found.exit_code == 0, found.output
    last = json.loads(found.stdout.splitlines()[-1])
    assert (last["parts"], last["failed"]) == (len(wanted), [])
    assert last["same"] >= 5
    text = (tmp_path / "report.md").read_text()
    assert "Figure 3: error and time against γ: not made in this run." in text


def test_an_unknown_part_is_named_with_those_there_are(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["all", "--only", "table-2", "--out", str(tmp_path)])
    assert found.exit_code == 2
    assert "poss-table-2" in found.output


def test_the_speedup_by_counts_is_that_of_the_critical_path() -> None:
    objective = regression(*regression_data(200, 30))
    assert counted_speed(objective, 3, 1, 300, 1) == 1.0
    assert counted_speed(objective, 3, 10, 300, 0) == pytest.approx(10.0, rel=0.1)  # nobody waits
    assert 2.0 < counted_speed(objective, 3, 10, 300, 10) < counted_speed(objective, 3, 10, 300, 100) <= 10.0


def test_every_part_has_its_own_name() -> None:
    names = [part.name for paper in PAPERS for part in paper.parts]
    assert len(set(names)) == len(names)


def test_the_low_rank_updated_ls_svm_chooses_by_leave_one_out_error() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(25, 6)), rng.normal(size=25)

    def error(S: list[int]) -> float:
        left = 0.0
        for j in range(y.size):
            rows = np.arange(y.size) != j
            A = X[rows][:, S]
            w = np.linalg.solve(A.T @ A + 0.5 * np.eye(len(S)), A.T @ y[rows])
            left += float((y[j] - X[j, S] @ w) ** 2)
        return left

    expected: list[int] = []
    while len(expected) < 3:
        expected.append(min((i for i in range(6) if i not in expected), key=lambda i: error([*expected, i])))
    assert low_rank_ls_svm.select(X, y, 3, 0.5) == expected


def test_the_documentation_names_the_statements_that_are_not_confirmed() -> None:
    page = (Path(__file__).parents[2] / "deploy" / "docs" / "explanation" / "papers.md").read_text()
    assert f"\n\n{unconfirmed.table()}\n\n" in page
    parts = {part.name: part for paper in PAPERS for part in paper.parts}
    for one in unconfirmed.UNCONFIRMED:
        assert one.said in inspect.getsource(inspect.getmodule(parts[one.part].make) or unconfirmed)


def test_a_report_names_statements_for_which_the_table_is_wrong(tmp_path: Path) -> None:
    known = unconfirmed.UNCONFIRMED[0]
    new = Claim(said="It is better.", holds=False)
    for holds in (True, False):
        content = Content(lead="", claims=(Claim(said=known.said, holds=holds), new))
        part = Part(known.part, "Figure 2", lambda settings, content=content: content)  # type: ignore[misc]
        made = make_parts([part], Settings(tmp_path, False, 1), [part.name], lambda line: None)
        found = unconfirmed.differences(Document.of(papers(part), made, False))
        assert f"{known.part}: not confirmed, and not in the table: {new.said}" in found
        assert len(found) == 1 + holds


def test_a_part_continues_with_the_tasks_that_are_left(tmp_path: Path) -> None:
    calls: list[int] = []

    def square(x: int) -> int:
        calls.append(x)
        return x * x

    def make(asked: Settings) -> Content:
        return Content(lead=str(asked.map(square, range(4))))

    part, settings = Part("p", "P", make), Settings(tmp_path, processes=1)
    now = iter([0.0] * 5 + [10.0] * 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: next(now))
        assert (
            make_parts([Part("p", "P", make)], Settings(tmp_path, processes=1), [], lambda line: None, seconds=5.0)
            == {}
        )
    assert 0 < len(calls) < 4
    done = make_parts([part], settings, [], lambda line: None)["p"]
    assert done.content == Content(lead="[0, 1, 4, 9]")
    assert calls == [0, 1, 2, 3]
    assert not (tmp_path / "unfinished").exists()
