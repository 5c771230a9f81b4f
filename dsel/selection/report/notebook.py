"""What a notebook shows for a selection: small, without pictures, on light and dark backgrounds."""

from __future__ import annotations

from dsel.selection.report import tables, wording
from dsel.selection.result import Selection

#: Columns that are listed; the others are counted.
_MOST_ROWS = 15


def notebook_html(selection: Selection) -> str:
    """Return a selection as a fragment of HTML with its own style."""
    from dsel.selection.report.templating import fill

    row = wording.certificate_of_choice(selection)
    rows = tables.chosen_rows(selection)
    return fill(
        "notebook.html",
        title=wording.headline(selection),
        method=selection.method,
        preprocess=selection.preprocess,
        shape=selection.shape,
        r2=f"{selection.r2:.4f}".replace("-", "−"),
        proof="" if row is None else wording.proof(selection, row),
        explained=wording.explained(selection),
        rows=rows[:_MOST_ROWS],
        more=max(len(rows) - _MOST_ROWS, 0),
        heads=tables.coefficient_heads(selection),
        notes=selection.notes,
    )
