"""The methods by name: those of dsel, and those of installed packages (entry-point group ``dsel.methods``)."""

from __future__ import annotations

from dsel._lib.plugins import Registry
from dsel._lib.text import suggest
from dsel.errors import OptionError
from dsel.search.method import Method

#: The entry-point group in which a package lists its methods.
GROUP = "dsel.methods"

#: Each method, by the place of its declaration: a selection imports its own method only.
METHODS: Registry[Method] = Registry(
    "method",
    Method,
    GROUP,
    {
        "poss": "dsel.search.pareto.run:POSS",
        "pposs": "dsel.search.pareto.run:PPOSS",
        "pposs-asy": "dsel.search.pareto.run:PPOSS_ASY",
        "forward": "dsel.search.greedy.path:FORWARD",
        "omp": "dsel.search.greedy.path:OMP",
        "foba": "dsel.search.greedy.path:FOBA",
        "backward": "dsel.search.greedy.path:BACKWARD",
        "rfe": "dsel.search.comparators.methods:RFE",
        "splicing": "dsel.search.greedy.exchange:SPLICING",
        "exchange": "dsel.search.greedy.exchange:EXCHANGE",
        "branch-and-bound": "dsel.search.exact.branch_and_bound.method:METHOD",
        "astar": "dsel.search.exact.astar.method:METHOD",
        "greedy-rls": "dsel.search.cross_validation.methods:GREEDY_RLS",
        "kfold": "dsel.search.cross_validation.methods:KFOLD",
        "two-stage": "dsel.search.comparators.methods:TWO_STAGE",
        "approx-svd": "dsel.search.comparators.methods:APPROX_SVD",
        "leverage": "dsel.search.comparators.methods:LEVERAGE",
        "arp": "dsel.search.comparators.arp:ARP",
        "rpcholesky": "dsel.search.comparators.rpcholesky:RPCHOLESKY",
        "pivoted-qr": "dsel.search.comparators.methods:PIVOTED_QR",
        "random": "dsel.search.comparators.methods:RANDOM",
        "lasso": "dsel.search.penalized:LASSO",
        "mcp": "dsel.search.penalized:MCP",
        "scad": "dsel.search.penalized:SCAD",
        "exhaustive": "dsel.search.comparators.exhaustive:METHOD",
        "portfolio": "dsel.search.portfolio.method:METHOD",
    },
)

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
