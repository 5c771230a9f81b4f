"""The submodularity ratio of a selection, from its data."""

from __future__ import annotations

from typing import Any

from dsel.data.dataset import as_dataset
from dsel.data.row_window import select_rows
from dsel.engine.clusters.connect import active_client, engine_of
from dsel.errors import OptionError
from dsel.jobs.certify import require_same_data, validated_again
from dsel.planning.plan import available_resources
from dsel.planning.representations.base import ProblemShape
from dsel.planning.representations.choice import choose
from dsel.search.method import Requirements
from dsel.selection.add_certificates import with_submodularity
from dsel.selection.candidates import candidates_of
from dsel.selection.result import Selection


def submodularity_ratio(selection: Selection, X: Any, Y: Any = None, *, sample_weight: Any = None) -> Selection:
    """Return a selection with an estimate and a proved bound of its submodularity ratio gamma.

    Parameters
    ----------
    selection : Selection
        What `select` returned.
    X, Y : array-like, store or dataset
        The data of the selection.
    sample_weight : (m,) array or str, optional
        The weights of the selection.

    Returns
    -------
    Selection
        The selection with `submodularity`. Forward selection and POSS explain at least the share 1 - e^-gamma of what
        the best k columns explain.

    Raises
    ------
    DataError
        The data are not those of the selection.
    CapacityError
        The Gram matrix does not fit in memory.
    OptionError
        The selection is one of groups.

    Notes
    -----
    It takes one pass. `certify` does the same for up to 2000 columns. With more, the bound is
    Gershgorin's, which is 0 unless all correlations are small.

    Source: Das and Kempe, "Submodular meets spectral", ICML 2011.

    Examples
    --------
    >>> import dsel
    >>> import numpy as np
    >>> X = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 20)))[0]
    >>> y = X[:, 3] - 2 * X[:, 7]
    >>> selection = dsel.select(X, y, k=2, preprocess="none")
    >>> round(dsel.submodularity_ratio(selection, X, y).submodularity.guarantee, 3)
    0.632
    """
    if selection.groups:
        raise OptionError("The submodularity ratio is for single columns, not for groups.", "Select without groups.")
    request = selection.request.model_copy(
        update={"method": "forward", "options": {}, "criterion": None, "sample_weight": sample_weight}
    )
    dataset = as_dataset(
        X, Y, targets=request.targets, unsupervised=request.unsupervised, sample_weight=sample_weight
    )  # fmt: skip
    dataset = select_rows(dataset, request.rows)
    validated = validated_again(dataset, request, selection)
    dataset = validated.training or dataset
    with engine_of(None if dataset.in_memory else active_client()) as engine:
        resources = available_resources(engine.workers, engine.worker_memory, engine.keeps_values)
        shape = ProblemShape.of(dataset, validated.request.limit, Requirements(whole_gram=True))
        prepared = choose(shape, resources).prepare(dataset, validated, engine, None)
    whole = prepared.objective(validated.request.lam)
    objective, _ = candidates_of(dataset, validated, prepared.statistics, whole)
    require_same_data(objective, selection)
    return with_submodularity(selection, objective)
