"""Annotations of public functions, whose names are imported when someone reads them."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any


def annotate_lazily(found: FunctionType | type) -> None:
    """Give a function, or the methods and properties of a class, annotations that are imported when they are read."""
    classes = found.__mro__ if isinstance(found, type) else ()
    members = [one for c in classes if c.__module__.startswith("dsel.") for one in vars(c).values()] or [found]
    for member in members:
        function = getattr(member, "fget", member)
        if isinstance(function, FunctionType) and type(function.__annotations__) is dict:
            function.__annotations__ = LazyAnnotations(function)


class LazyAnnotations(dict[str, Any]):
    """The annotations of a function as text. To list them imports the names that its module has for type checkers.

    So `typing.get_type_hints` works, and a mere mention of the function imports nothing.
    """

    def __init__(self, function: FunctionType) -> None:
        super().__init__(function.__annotations__)
        self._function = function

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> Any:
        """Return the names of the parameters."""
        self._import_names()
        return super().keys()

    def items(self) -> Any:
        """Return the names of the parameters with their annotations."""
        self._import_names()
        return super().items()

    def _import_names(self) -> None:
        """Run what stands under ``if TYPE_CHECKING`` in the module of the function."""
        import ast
        import inspect

        source = inspect.getsource(inspect.getmodule(self._function))  # type: ignore[arg-type]
        for node in ast.parse(source).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                code = compile(ast.Module(node.body, []), self._function.__module__, "exec")
                exec(code, self._function.__globals__)
