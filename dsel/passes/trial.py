"""The read of one block of X before the passes over it, to measure how fast X is read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from dsel.data.blocks import part_bytes
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.passes.columns.column_blocks import load_cell
from dsel.passes.data_pass import Pass, PassCost, PassRecord, record_pass


@dataclass(frozen=True)
class TrialRead(Pass):
    """The read of one part of X in this process. It counts as bytes, not as a pass.

    Parameters
    ----------
    part : Any
        What a task loads; None if there are no rows.
    bytes_read : int
        Its bytes, uncompressed, whole chunks.
    """

    part: Any
    bytes_read: int
    name: str = "trial"

    @classmethod
    def of(cls, dataset: Dataset, part: Any) -> TrialRead:
        """Return the read of a part that begins with the first row."""
        if not hasattr(part, "compute"):
            return cls(part, part_bytes(part))
        return cls(part, dataset.x_bytes * dataset.blocks[0].stop // dataset.m)

    def cost(self) -> PassCost:
        """Return the bytes of the part. Nothing is read."""
        return PassCost(self.name, bytes_read=self.bytes_read)

    def run(self, engine: Engine = THREADS, *args: Any, **arguments: Any) -> tuple[float, Any]:
        """Read the part. Return the bytes read per second, and the values. A part in memory is copied."""
        began = time.perf_counter()
        x = self.part.compute() if hasattr(self.part, "compute") else load_cell(self.part)
        x = x.copy() if x is self.part and x is not None else x
        spent = max(time.perf_counter() - began, 1e-9)
        record_pass(PassRecord(self.name, 0, self.bytes_read, spent, whole=False))
        return max(self.bytes_read, 1) / spent, x
