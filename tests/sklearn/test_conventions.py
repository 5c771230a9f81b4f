"""The selectors follow scikit-learn's conventions, checked by its own tests."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dsel.sklearn import (
    BestSubsetSelector,
    ColumnSubsetSelector,
    GreedyRLSSelector,
    OMPSelector,
    SubsetClassifier,
    SubsetRegressor,
    SubsetSelector,
)


@parametrize_with_checks(
    [
        SubsetSelector(),
        OMPSelector(3),
        GreedyRLSSelector(3),
        BestSubsetSelector(3),
        ColumnSubsetSelector(3),
        SubsetClassifier(),
        SubsetRegressor(3),
        SubsetRegressor(3, loss="poisson", lam=1.0, method="forward"),
    ]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    check(estimator)


def test_without_scikit_learn_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['sklearn'] = None; import dsel.sklearn"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == (
        "ImportError: dsel.sklearn needs scikit-learn 1.6 or newer, which is not installed: pip install 'dsel[sklearn]'"
    )
