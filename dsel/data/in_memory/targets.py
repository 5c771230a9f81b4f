"""Targets that look like the numbers of classes."""

from __future__ import annotations

import numpy as np

from dsel.data.blocks import load_block
from dsel.data.dataset import Dataset

#: From three up to this many different whole numbers may be classes. Two classes are the same problem as two numbers.
MOST_CLASSES = 10


def class_count(dataset: Dataset) -> int | None:
    """Return how many classes a single target in memory may hold; None if it does not look like classes."""
    if not dataset.in_memory or dataset.n_targets != 1 or dataset.m <= 2 * MOST_CLASSES:
        return None
    found = np.empty(0)
    for block in dataset.blocks:
        values = np.asarray(load_block(block.y, dataset.target_columns), np.float64)
        found = np.union1d(found, values)
        if found.size > MOST_CLASSES or not (found == np.round(found)).all():
            return None
    return int(found.size) if found.size > 2 else None
