"""A Selection as text."""

from __future__ import annotations

import numpy as np
import pandas as pd

import dsel
from dsel.selection.render import render


def test_labels_are_printed_as_they_are() -> None:
    labels = ["temp [C]", "a:apple:b", "[bold]x[/bold]", "[/]"]
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 4)), columns=labels)
    text = render(dsel.select(X, X.to_numpy() @ [4, 3, 2, 1], k=4, method="forward"), width=200)
    assert "Chosen, in order of gain: temp [C], a:apple:b, [bold]x[/bold], [/]" in text
    assert "\x1b" not in text
