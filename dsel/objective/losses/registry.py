"""The losses by name: those of dsel, and those of installed packages (entry-point group ``dsel.losses``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsel._lib.plugins import Registry
from dsel._lib.text import suggest
from dsel.errors import OptionError
from dsel.objective.losses.cox import Cox
from dsel.objective.losses.gamma import Gamma
from dsel.objective.losses.huber import Huber
from dsel.objective.losses.logistic import Logistic
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.multinomial import Multinomial
from dsel.objective.losses.poisson import Poisson
from dsel.objective.losses.quantile import Quantile
from dsel.objective.losses.squared import Squared

#: The entry-point group in which a package lists its losses.
GROUP = "dsel.losses"

#: Each loss with its default parameters.
LOSSES: Registry[Loss] = Registry(
    "loss",
    Loss,  # type: ignore[type-abstract]
    GROUP,
    (Squared(), Logistic(), Multinomial(), Poisson(), Gamma(), Huber(), Quantile(), Cox()),
)

#: Names that other libraries use, and what takes their place.
_REMARKS = {
    "binomial": "logistic", "logit": "logistic", "log_loss": "logistic", "logloss": "logistic", "gaussian": "squared",
    "squared_error": "squared", "mse": "squared", "quadratic": "squared", "softmax": "multinomial",
    "pinball": "quantile", "median": "quantile", "absolute_error": "quantile", "mae": "quantile",
    "categorical": "multinomial", "cross_entropy": "multinomial", "coxph": "cox", "survival:cox": "cox",
    "survival": "cox", "proportional_hazards": "cox",
}  # fmt: skip


def find_loss(loss: Any) -> Loss:
    """Return a loss by its name, or the loss itself.

    Parameters
    ----------
    loss : str, mapping or Loss
        A name, such as "logistic"; a name with parameters, such as ``{"huber": {"delta": 2.0}}``; or the loss itself.

    Returns
    -------
    Loss
        The loss.

    Raises
    ------
    OptionError
        If there is no such loss, or it has no such parameter. The error suggests a name.
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, Mapping):
        if len(loss) != 1 or not all(isinstance(options, Mapping | None) for options in loss.values()):
            raise OptionError(
                f"loss is {dict(loss)}, and not one name with its parameters.",
                'Write it such as {"quantile": {"level": 0.9}}.',
            )
        (name, options), *_ = loss.items()
        return find_loss(name).with_options(options or {})
    if not isinstance(loss, str) or loss not in LOSSES:
        name = _REMARKS.get(str(loss).lower())
        raise OptionError(f"There is no loss {loss!r}.", f"Use {name!r}." if name else suggest(str(loss), LOSSES))
    return LOSSES[loss]
