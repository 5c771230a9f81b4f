"""Format tables of text, and the JSON line at the end of a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with its first column aligned left and the others right."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]

    def written(line: Sequence[str]) -> str:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([written(header), "  ".join("-" * w for w in widths), *map(written, rows)])


def json_line(report: dict[str, Any]) -> str:
    """Return the report as one line of JSON, floats to nine significant digits."""
    return json.dumps(_rounded(report), sort_keys=False)


def _rounded(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _rounded(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [_rounded(value) for value in item]
    return float(f"{item:.9g}") if isinstance(item, float) else item
