"""The tables of exact results run, and their last line is JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.benchmarks import certificate
from pipelines.papers.heuristic_search import tables as heuristic_tables
from pipelines.papers.poss import optima as poss_optima


def test_the_optimum_of_sonar_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    poss_optima.run(["sonar"], 300.0)
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    if not report["rows"]:
        pytest.skip("there is no sonar.npz")
    assert report["rows"][0]["proven"]
    assert report["rows"][0]["r2"] == pytest.approx(0.438258, abs=5e-7)


def test_a_row_of_table_2_matches_the_paper() -> None:
    row = heuristic_tables.one_row("spectf 22/23", 5, 300.0, 300.0)
    if row is None:
        pytest.skip("there is no spectf.npz")
    assert row["optimum"]["proven"]
    for label, bound in (("f=l", 0.0), ("f=l+u", 0.635), ("f=l+2u", 0.639), ("f=u", 0.639)):
        assert row["search"][label]["bound"] == pytest.approx(bound, abs=5e-4)
    assert row["search"]["f=l"]["error"] == pytest.approx(423909, abs=1.0)
    assert row["compared"]["SOMP"] == pytest.approx(431650, abs=1.0)
    assert row["compared"]["ISOLS"] == row["search"]["f=u"]["error"]


def test_a_row_of_table_1_has_all_other_methods() -> None:
    row = heuristic_tables.one_row("spectf", 5, 0.1, 300.0)
    if row is None:
        pytest.skip("there is no spectf.npz")
    assert row["compared"]["Leaps"] == pytest.approx(row["optimum"]["value"])
    paper = dict(zip(row["compared"], heuristic_tables.PAPER_COMPARED["spectf", 5], strict=True))
    for method in ("Forward", "Backward", "OMP", "FoBa", "ISOLS"):
        assert row["compared"][method] == pytest.approx(paper[method], abs=0.01)
    assert row["compared"]["POSS"] <= paper["POSS"] + 0.01


def test_figure_3_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = ((0.0, 5.0, 9.0, False), ("inf", 6.0, 0.1, True))
    points = [{"gamma": g, "error": e, "seconds": t, "ended": ended} for g, e, t, ended in found]
    heuristic_tables.draw(points, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_combined_bound_needs_fewer_nodes_than_the_others() -> None:
    data = certificate.several_targets("spectf", 22)
    if data is None:
        pytest.skip("there is no spectf.npz")
    row = certificate.compare("spectf", 5, data, 100_000)
    assert row["eigenvalue"]["singly"]["nodes"] == 9109  # the nodes that best-first search with f = l expands
    assert row["ratio_as_run"] > 10.0
    assert row["ratio_singly"] > 5.0
    assert row["combined"]["pairs"]["nodes"] < row["leaps"]["pairs"]["nodes"]
