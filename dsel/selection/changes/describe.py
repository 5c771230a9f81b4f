"""What changed since the previous run, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsel._lib.text import shorten

#: A column that moved by this number of standard deviations is named.
LARGE_SHIFT = 1.0


def describe_changes(changes: dict[str, Any]) -> Iterator[str]:
    """Yield lines about what changed, for people."""
    new = "" if changes["new_rows"] is None else f", {changes['new_rows']:,} new rows"
    if changes["changed"]:
        parts = [f"{what}: {shorten(changes[what], 10)}" for what in ("entered", "left") if changes[what]]
        yield f"Changed since run {changes['run']}{new}: {'; '.join(parts)}"
    else:
        yield f"Unchanged since run {changes['run']}{new}"
    if changes["previous_error"] is not None and changes["changed"]:
        errors = f"{changes['previous_error']:.6g} on these data, now {changes['error']:.6g}"
        yield f"The previous columns have error {errors}"
    if changes["bound"] is not None and changes["distance"] is not None:
        yield f"The previous columns are at most {changes['distance']:.6g} above the least possible error"
    rows = changes["on_new_rows"]
    if rows is not None and rows["r2"] is not None:
        yield f"On the new rows alone, the previous coefficients explain {rows['r2']:.4%}"
    found = changes["comparison"]
    if found is not None:
        verdict = "more" if found["beyond_splitting"] else "no more"
        yield (
            f"The new columns explain {found['gain']:.4%} more of Y (95 %: {found['low']:.4%} to {found['high']:.4%}), "
            f"{verdict} than splitting the rows explains"
        )
    moved = [one for one in (changes["drift"] or {}).get("columns", ()) if abs(one["shift"]) >= LARGE_SHIFT]
    if moved:
        shown = shorten((f"{one['label']} ({one['shift']:+.2f} sd)" for one in moved), 6)
        yield f"Means that moved by {LARGE_SHIFT:g} standard deviation or more: {shown}"
