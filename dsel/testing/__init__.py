"""Checks that a method, a loss, a file format or a tree of proofs keeps the contract of dsel.

Each function raises AssertionError with what is wrong. They need no test framework:

>>> from dsel.search.greedy.path import FORWARD
>>> from dsel.testing import check_method
>>> check_method(FORWARD)
"""

from __future__ import annotations

from dsel.testing.formats import check_format
from dsel.testing.losses import check_loss
from dsel.testing.methods import check_method
from dsel.testing.problems import SmallProblem, small_problems
from dsel.testing.trees import check_tree

__all__ = ["SmallProblem", "check_format", "check_loss", "check_method", "check_tree", "small_problems"]
