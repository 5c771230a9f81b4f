"""Indexing of arrays in compiled functions by few instructions, which are quick to make, print, read and optimize.

For each element that is read or written, numba copies the description of the array to the stack, loads each of its
fields again, and adds the extent to an index that may be negative. Kernels of this package use no negative index
(`DSEL_CHECK_KERNELS=1` refuses them). So an element of an array in C order takes a product and a sum for each axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import cgutils, types
from numba.np import arrayobj

_make_array, _index = arrayobj.make_array, arrayobj.basic_indexing


class _Fields:
    """The fields of an array, taken from its value."""

    def __init__(self, context: Any, builder: Any, array: Any, value: Any) -> None:
        self._model, self._builder, self._value = context.data_model_manager[array], builder, value

    def __getattr__(self, name: str) -> Any:
        return self._builder.extract_value(self._value, self._model.get_field_position(name))

    def _getvalue(self) -> Any:
        return self._value


def make_array(array: Any) -> Callable[..., Any]:
    """Return a function that makes the description of an array from its value, or what numba has for a new one."""
    made = _make_array(array)

    def make(context: Any, builder: Any, value: Any = None, ref: Any = None) -> Any:
        if value is None or type(array) is not types.Array:
            return made(context, builder, value, ref)
        return _Fields(context, builder, array, value)

    return make


def index(
    context: Any, builder: Any, kind: Any, array: Any, index_types: Any, indices: Any, boundscheck: Any = None
) -> Any:
    """Return the pointer to an element, and the extents and strides, none, of the view; else what numba returns."""
    if kind.layout != "C" or len(indices) != kind.ndim or not all(isinstance(x, types.Integer) for x in index_types):
        return _index(context, builder, kind, array, index_types, indices, boundscheck)
    place = None
    extents = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
    for axis, (value, of, extent) in enumerate(zip(indices, index_types, extents, strict=True)):
        inner = context.cast(builder, value, of, types.intp)
        if boundscheck:
            cgutils.do_boundscheck(context, builder, inner, extent, axis)
        place = inner if place is None else builder.add(builder.mul(place, extent), inner)
    return builder.gep(array.data, [place]), [], []
