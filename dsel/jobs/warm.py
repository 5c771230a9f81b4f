"""Compile what the searches need into the cache of this machine, before anybody waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from dsel._lib.kernel_loading import load_kernels
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.objective.dense import DenseObjective
from dsel.objective.subset_state import DELETION_KERNELS
from dsel.search.exact.all_sizes_kernel import traverse
from dsel.search.exact.branch_and_bound.kernel import begin, explore
from dsel.search.exact.perspective.coordinate_descent import RELAXATION_KERNELS
from dsel.search.exact.perspective.enumeration import ENUMERATION_KERNELS
from dsel.search.exact.perspective.sparse_eigenvalues import SPARSE_KERNELS
from dsel.search.exact.proof import Proof
from dsel.search.pareto.kernel import merge_external
from dsel.search.pareto.kernel import run as run_pareto
from dsel.search.pareto.look_ahead import look_ahead
from dsel.search.pareto.options import ParetoOptions
from dsel.search.registry import METHODS, find_method
from dsel.selection.pipeline import run_selection

log = logging.getLogger("dsel")

_ROWS, _COLUMNS, _CHOSEN = 40, 6, 2
#: Options that make a search as short as can be, for the methods that have them.
_SHORT = {"iterations": 100, "seconds": 1.0}


def warm(methods: Sequence[str] = (), on_method: Callable[[str], None] | None = None) -> list[str]:
    """Compile what methods need, and return their names.

    Parameters
    ----------
    methods : sequence of str, optional
        Names of methods. By default, all that need no extra, and the proof of a certificate.
    on_method : callable, optional
        Called with the name of each method before it is compiled.

    Returns
    -------
    list of str
        The methods that are compiled.

    Raises
    ------
    OptionError
        There is no method of a name.

    Notes
    -----
    Each method selects from tiny random data, with one target, with several, and without. The compiled code is for
    processors like this machine's.
    """
    names = [find_method(name).name for name in methods] or [name for name in METHODS if not METHODS[name].extra]
    if not methods:
        pareto = (run_pareto, look_ahead, merge_external)
        tree = (*RELAXATION_KERNELS, *ENUMERATION_KERNELS, *SPARSE_KERNELS)
        proofs = (begin, explore, traverse, *DELETION_KERNELS, *tree)
        load_kernels(*pareto, *proofs)
        X, Y = _data(3)
        Proof.begin(DenseObjective(X.T @ X, X.T @ Y, float(np.vdot(Y, Y))), _CHOSEN).run(nodes=10)
    elif any(issubclass(METHODS[name].options, ParetoOptions) for name in names):
        load_kernels(run_pareto)  # a search on tiny data does without some of what it calls
    for name in names:
        if on_method is not None:
            on_method(name)
        method, level = METHODS[name], log.level
        options = {key: value for key, value in _SHORT.items() if key in method.options.model_fields}
        request = SelectionRequest.of(k=_CHOSEN, method=name, options=options)
        log.setLevel(logging.WARNING)  # nobody asked for these selections
        try:
            for targets in (1, 3, 0):
                if not (method.uses_rows if targets == 0 else method.unsupervised_only):
                    X, Y = _data(targets)
                    run_selection(as_dataset(X, Y if targets else None), request)
        finally:
            log.setLevel(level)
    return names


def _data(targets: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(_ROWS, _COLUMNS))
    return X, X[:, :targets] + rng.normal(size=(_ROWS, targets))
