"""What a campaign has counted, and the defects that it has found."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

#: The values of the last line of the report.
COUNTS = (
    "kills", "different", "silently_wrong", "orphans", "hangs", "leftovers", "unlisted_exit_codes", "work_lost",
)  # fmt: skip


@dataclass
class Findings:
    """What a lane has counted, and a line for each defect.

    Parameters
    ----------
    counts : Counter
        The values of the last line of the report.
    kinds : Counter
        Kills by what was done.
    stages : dict of Counter
        Kills of each case, by the stage that they hit.
    finished : Counter
        How often each case was done to its end.
    slowest : dict of float
        The most seconds that a command took to end, by what was done.
    lines : list of str
        The defects.
    """

    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    stages: dict[str, Counter[str]] = field(default_factory=dict)
    finished: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def defect(self, count: str, line: str) -> None:
        """Count a defect, and describe it."""
        self.counts[count] += 1
        self.lines.append(f"{count}: {line}")
        print(f"DEFECT {self.lines[-1]}", file=sys.stderr, flush=True)

    def kill(self, case: str, kind: str, stage: str) -> None:
        """Count a kill."""
        self.counts["kills"] += 1
        self.kinds[kind] += 1
        self.stages.setdefault(case, Counter())[stage] += 1

    def ended(self, kind: str, seconds: float) -> None:
        """Record how long a command took to end."""
        self.slowest[kind] = max(self.slowest.get(kind, 0.0), seconds)
