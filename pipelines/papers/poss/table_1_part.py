"""Table 1 of the POSS paper: the shapes of the data sets, next to those of the files."""

from __future__ import annotations

from pipelines.papers.poss.halves import rows_and_target
from pipelines.papers.report.model import Content, Grid
from pipelines.papers.report.settings import Settings

PAPER = {
    "housing": (506, 13), "eunite2001": (367, 16), "svmguide3": (1284, 21), "ionosphere": (351, 34), "sonar": (208, 60),
    "triazines": (186, 60), "coil2000": (9000, 86), "mushrooms": (8124, 112), "clean1": (476, 166), "w5a": (9888, 300),
    "gisette": (7000, 5000), "farm-ads": (4143, 54_877),
}  # fmt: skip
_NOTES = {
    "coil2000": "The paper's 86 columns count the target. 5822 rows, the training file, give the paper's numbers.",
    "eunite2001": "All rows of the competition; January 1999 is reconstructed.",
}


def make(settings: Settings) -> Content:
    """Compare the shapes."""
    rows = []
    for name, (m, n) in PAPER.items():
        data = rows_and_target(name)
        ours = "not available" if data is None else "{} x {}".format(*data[0].shape)
        rows.append((name, f"{m} x {n}", ours, _NOTES.get(name, "")))
    there = sum(row[2] != "not available" for row in rows)
    return Content(
        lead=f"{there} of {len(rows)} data sets are available.",
        grids=(Grid(title="Rows x columns", head=("data", "paper", "ours", "remark"), rows=tuple(rows)),),
    )
