"""Reports of the selections that tests draw, each made once."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

import dsel
from dsel.selection.report.page import render_report
from tests.selection.plots import selections


@cache
def report_of(kind: str) -> str:
    """Return the page of a kind of selection."""
    return render_report(many_columns() if kind == "many columns" else selections.ALL[kind]())


def many_columns() -> dsel.Selection:
    """Return 200 of 240 columns with long labels."""
    rng = np.random.default_rng(0)
    labels = [f"station_north_temperature_{i:03d}_mean" for i in range(240)]
    X = pd.DataFrame(rng.normal(size=(400, 240)), columns=labels)
    return dsel.select(X, X.sum(axis=1) + rng.normal(size=400), k=200, method="forward")
