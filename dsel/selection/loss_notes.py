"""The notes on the best fit by a loss."""

from __future__ import annotations

import numpy as np

from dsel.data.labels import format_labels
from dsel.objective.losses.quantile import BELOW
from dsel.passes.loss_data import keeps
from dsel.passes.loss_models import rows_at
from dsel.selection.context import SelectionRun
from dsel.selection.loss_search import LossSearch

#: What an exact method does with a loss, in the note on it.
OF_MODELS = "proves the best subset of quadratic models"
#: How notes say that a fit has no end.
INFINITE, NO_FINITE, _STOPPED = "the fit is infinite", "no finite", "the fit stopped before its minimum"

#: The deviance of a row of weight 1 that is rounding: no better one is possible.
_NOTHING = 1e-12


def loss_notes(search: LossSearch, run: SelectionRun) -> list[str]:
    """Return notes on the targets and on the fit."""
    notes = [*search.problem.loss.notes()]
    fit = search.known[search.best]
    if search.exact:
        every = "" if run.validated.size_rule is None else ' (with sizes="all" for each size)'
        notes.append(
            f"{run.validated.method.name} {OF_MODELS} of the {search.problem.loss.name} loss, not of the loss "
            f"itself: dsel.certify proves that{every}"
        )
    left = fit.deviance / search.problem.weight_sum
    endless = bool(search.problem.loss.endless) and search.problem.lam == 0.0
    if fit.infinite or (endless and not fit.converged and left <= _NOTHING):
        names, one = format_labels(run.dataset.features, fit.columns), fit.columns.size == 1
        verb, _, what = _separation(search).partition(" ")
        said = f"column {names} {verb}s {what}" if one else f"columns {names} {verb} {what}"
        notes.append(
            f"{said}: without a penalty {INFINITE}, and the "
            "coefficients are those where it was stopped; set lam above 0 for finite ones"
        )
    elif fit.endless.size:
        names, many = format_labels(run.dataset.features, fit.endless), fit.endless.size > 1
        notes.append(
            f"{NO_FINITE} {'coefficients' if many else 'coefficient'} of {names} {'fit' if many else 'fits'} best: "
            "usually rows that such a column tells from others all have the same class, no count or no event; what "
            "is shown is where the fit stopped; set lam above 0 for a minimum"
        )
    elif not fit.converged:
        notes.append(
            f"{_STOPPED}, because of rounding or of the number of steps: a better deviance is possible; "
            f"{'a larger lam' if search.problem.lam > 0.0 else 'lam above 0'} helps"
        )
    problem = search.problem
    if problem.loss.notes_fits and problem.intercept and keeps(problem.dataset, fit.columns.size, problem.loss):
        rows, eta = rows_at(problem, fit)
        notes += problem.loss.notes_of_fit(rows.y, eta, rows.w, fit.columns.size + 1)
    return notes


def _separation(search: LossSearch) -> str:
    """Return what the columns of a best fit without an end do, in words."""
    figures = search.class_figures()
    if figures is None:
        return search.problem.loss.endless
    wrong = np.array(figures.confusion) * (1.0 - np.eye(len(figures.names)))
    apart = [
        name for name, weight in zip(figures.names, wrong.sum(axis=0) + wrong.sum(axis=1), strict=True) if not weight
    ]
    if len(apart) == len(figures.names):
        return search.problem.loss.endless
    return f"separate {' and '.join(apart)} from the other classes" if apart else "separate some of the rows by class"


def of_fit(note: str) -> bool:
    """Return whether a note is about the fit of the answer: that it has no end, say, or stopped before it."""
    return INFINITE in note or BELOW in note or note.startswith((NO_FINITE, _STOPPED))
