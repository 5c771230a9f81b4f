"""The history of figures as multiples of a calibration kernel: one line of JSON for each recorded run, in git."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("history.jsonl")
#: A figure that grew by more than this share is named.
SLOWER = 0.1


def compared(
    found: Mapping[str, Mapping[str, Any]], quick: bool, record: bool, file: Path = FILE
) -> list[dict[str, Any]]:
    """Return the figures that became slower since the last entry, and add an entry if asked to."""
    ratios = dict(found.get("limits", {}).get("ratios", {}))
    lines = file.read_text().splitlines() if file.exists() else []
    entries = [entry for entry in map(json.loads, lines) if entry["quick"] == quick]
    last: dict[str, Any] = entries[-1] if entries else {"ratios": {}, "date": ""}
    slower = [
        {"figure": name, "factor": ratio / last["ratios"][name], "since": last["date"]}
        for name, ratio in ratios.items()
        if ratio > last["ratios"].get(name, float("inf")) * (1.0 + SLOWER)
    ]
    if record and ratios:
        entry = {
            "date": datetime.now(UTC).date().isoformat(),
            "quick": quick,
            "ratios": {n: float(f"{r:.4g}") for n, r in ratios.items()},
        }
        with file.open("a") as out:
            out.write(json.dumps(entry) + "\n")
    return slower
