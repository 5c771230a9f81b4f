"""The methods by name: those of dsel, and those of installed packages (entry-point group ``dsel.methods``)."""

from __future__ import annotations

from dsel._lib.plugins import Registry
from dsel._lib.text import suggest
from dsel.errors import OptionError
from dsel.search.comparators import exhaustive
from dsel.search.comparators.arp import ARP
from dsel.search.comparators.methods import APPROX_SVD, LEVERAGE, PIVOTED_QR, RANDOM, RFE, TWO_STAGE
from dsel.search.comparators.rpcholesky import RPCHOLESKY
from dsel.search.cross_validation.methods import GREEDY_RLS, KFOLD
from dsel.search.exact.astar import method as astar
from dsel.search.exact.branch_and_bound import method as branch_and_bound
from dsel.search.greedy.exchange import EXCHANGE, SPLICING
from dsel.search.greedy.path import BACKWARD, FOBA, FORWARD, OMP
from dsel.search.method import Method
from dsel.search.pareto.run import POSS, PPOSS, PPOSS_ASY
from dsel.search.penalized import LASSO, MCP, SCAD
from dsel.search.portfolio import method as portfolio

#: The entry-point group in which a package lists its methods.
GROUP = "dsel.methods"

METHODS: Registry[Method] = Registry(
    "method", Method, GROUP,
    (
        POSS, PPOSS, PPOSS_ASY, FORWARD, OMP, FOBA, BACKWARD, RFE, SPLICING,
        EXCHANGE, branch_and_bound.METHOD, astar.METHOD, GREEDY_RLS, KFOLD, TWO_STAGE, APPROX_SVD,
        LEVERAGE, ARP, RPCHOLESKY, PIVOTED_QR, RANDOM, LASSO, MCP, SCAD, exhaustive.METHOD, portfolio.METHOD,
    ),
)  # fmt: skip

#: Names that other libraries use, and what takes their place.
_REMARKS = {
    "elasticnet": "Use 'lasso' with a ridge penalty lam, or 'poss'.",
    "abess": "Use 'splicing'.",
    "lars": "Use 'omp' or 'forward'.",
    "sfs": "Use 'forward' or 'backward'; 'kfold' for steps by the cross-validated error.",
    "stepwise": "Use 'forward', 'foba' or 'backward'; 'kfold' for steps by the cross-validated error.",
    "rfecv": "Use 'kfold' with direction='backward'.",
    "bnb": "Use 'branch-and-bound'.",
    "best-subset": "Use 'branch-and-bound', or 'poss' and then a certificate.",
    "genetic": "Use 'poss'.",
    "mrmr": "Use 'poss' or 'omp'.",
}


def find_method(name: str) -> Method:
    """Return the method of this name.

    Parameters
    ----------
    name : str
        The name of a method of dsel, or of an installed package.

    Returns
    -------
    Method
        The method.

    Raises
    ------
    OptionError
        There is no such method. The error suggests a name, or lists all methods, those of other packages included.
    MissingExtraError
        The package of the method cannot be imported.
    """
    if name not in METHODS:
        remark = _REMARKS.get(str(name).lower().replace("_", "-"))
        raise OptionError(f"There is no method {name!r}.", remark or suggest(name, METHODS))
    return METHODS[name]


def methods_with(flag: str) -> list[str]:
    """Return the names of dsel's own methods for which a flag of `Method` is set, such as ``takes_criterion``."""
    return [name for name, method in METHODS.own.items() if getattr(method, flag)]
