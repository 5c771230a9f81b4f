"""What other packages add to dsel: a mapping of the objects of dsel and of those in an entry-point group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from dsel.errors import MissingExtraError, OptionError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Objects of one kind by their attribute `name`. Those of other packages are imported when they are asked for.

    Parameters
    ----------
    what : str
        The kind as messages call it, such as "method".
    kind : type
        The class of the objects.
    group : str
        The entry-point group in which a package lists its objects, each under its name.
    own : iterable or mapping
        The objects of dsel. Or the place of each by its name, ``"module:attribute"``, which is imported when it is
        asked for.
    """

    def __init__(self, what: str, kind: type[T], group: str, own: Iterable[T] | Mapping[str, str]) -> None:
        self._what, self._kind, self._group = what, kind, group
        self.own: Mapping[str, T] = _Places(own) if isinstance(own, Mapping) else {_name(value): value for value in own}
        self._given: Mapping[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name in self._given:
            return self._given[name]
        installed = _installed(self._group).get(name, [])
        packages = ["dsel"] * (name in self.own) + [_package(entry) for entry in installed]
        if not packages:
            raise KeyError(name)
        if len(packages) > 1:
            raise OptionError(
                f"The packages {' and '.join(packages)} have a {self._what} of the same name, {name!r}.",
                f"Uninstall {packages[-1]}, or rename its {self._what}.",
            )
        return self.own[name] if name in self.own else self._load(installed[0])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._given, *self.own, *_installed(self._group)]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._given or name in self.own or name in _installed(self._group)

    @contextmanager
    def including(self, value: T) -> Iterator[None]:
        """Know another object inside the block. It hides an object of the same name."""
        before = self._given
        self._given = {**before, _name(value): value}
        try:
            yield
        finally:
            self._given = before

    def _load(self, entry: EntryPoint) -> T:
        where = f"The {self._what} {entry.name!r} of the package {_package(entry)} ({entry.value})"
        try:
            value = entry.load()
        except Exception as error:
            raise MissingExtraError(
                f"{where} cannot be imported: {type(error).__name__}: {error}.", "Repair or uninstall that package."
            ) from error
        if not isinstance(value, self._kind):
            expected = f"{self._kind.__module__}.{self._kind.__qualname__}"
            raise OptionError(f"{where} is not a {expected}.", "Its entry point must name one.")
        if _name(value) != entry.name:
            raise OptionError(
                f"{where} calls itself {_name(value)!r}.", f"The entry point must have the name of the {self._what}."
            )
        return value


class _Places(Mapping[str, T], Generic[T]):
    """Objects by their names, each imported from its place when it is asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        return cast(T, getattr(import_module(module), attribute))

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _name(value: Any) -> str:
    return str(value.name)


@cache
def _installed(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points of other packages by name, without importing them."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, []).append(entry)
    return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
