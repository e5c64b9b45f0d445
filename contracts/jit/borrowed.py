"""Views that compiled code makes by the dozen, without the two atomic reference counts that each costs."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic


def _strip(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """``value`` with no array in it holding a share of its memory."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = array.meminfo.type(None)
        array.parent = array.parent.type(None)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for place, inner in enumerate(kind):
            item = _strip(context, builder, inner, builder.extract_value(value, place))
            value = builder.insert_value(value, item, place)
    return value


@intrinsic
def borrowed(_typing: Any, value: Any) -> Any:
    """A view of ``value``, an array, a tuple or a named tuple, whose caller keeps the memory alive.

    The view has the type of ``value``: fields of a named tuple are read by name (``record.field``), records
    within it are views as well, and numbers stay as they are. For compiled code alone; nothing made of it
    may be returned to the interpreter.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _strip(context, builder, signature.args[0], args[0])

    return value(value), codegen
