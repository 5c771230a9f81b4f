"""The methods by name: those of dsel, and those of installed packages (entry-point group ``dsel.methods``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from dsel.errors import MissingExtraError, OptionError
from dsel.search.exact import astar_method, branch_and_bound_method
from dsel.search.greedy import (
    approx_svd,
    backward,
    exchange,
    foba,
    forward,
    greedy_rls,
    kfold,
    omp,
    rfe,
    two_stage,
)
from dsel.search.method import Method
from dsel.search.parallel import pposs, pposs_asy
from dsel.search.pareto import poss

#: The entry-point group in which a package lists its methods.
GROUP = "dsel.methods"

_MODULES = (
    poss, pposs, pposs_asy, forward, omp, foba, backward, rfe, exchange, branch_and_bound_method, astar_method,
    greedy_rls, kfold, two_stage, approx_svd,
)  # fmt: skip


class _Registry(Mapping[str, Method]):
    """Methods by name. Those of other packages are imported when they are asked for."""

    def __init__(self, own: tuple[Method, ...]) -> None:
        self._own = {method.name: method for method in own}

    def __getitem__(self, name: str) -> Method:
        installed = _installed().get(name, [])
        packages = ["dsel"] * (name in self._own) + [_package(entry) for entry in installed]
        if not packages:
            raise KeyError(name)
        if len(packages) > 1:
            raise OptionError(
                f"The packages {' and '.join(packages)} have a method of the same name, {name!r}.",
                f"Uninstall {packages[-1]}, or rename its method.",
            )
        return self._own[name] if name in self._own else _load(installed[0])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._own, *_installed()]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in _installed()


@cache
def _installed() -> dict[str, list[EntryPoint]]:
    """Return the entry points of other packages by name, without importing them."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


@cache
def _load(entry: EntryPoint) -> Method:
    where = f"The method {entry.name!r} of the package {_package(entry)} ({entry.value})"
    try:
        method = entry.load()
    except Exception as error:
        raise MissingExtraError(
            f"{where} cannot be imported: {type(error).__name__}: {error}.", "Repair or uninstall that package."
        ) from error
    if not isinstance(method, Method):
        raise OptionError(f"{where} is not a dsel.search.method.Method.", "Its entry point must name one.")
    if method.name != entry.name:
        raise OptionError(f"{where} calls itself {method.name!r}.", "The entry point must have the method's name.")
    return method


METHODS: Mapping[str, Method] = _Registry(tuple(module.METHOD for module in _MODULES))


def methods_with(flag: str) -> list[str]:
    """Return the names of dsel's own methods for which a flag of `Method` is set, such as ``takes_criterion``."""
    return [module.METHOD.name for module in _MODULES if getattr(module.METHOD, flag)]
