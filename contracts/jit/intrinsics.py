"""What compiled code alone can do: views without reference counts, and prefetching of cache lines."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _strip(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """``value`` in which no array counts a reference to its memory."""
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


def _ask(builder: Any, address: Any) -> None:
    """The processor's prefetch of ``address``: to be written, near, data."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
    builder.call(function, [address, word(1), word(3), word(1)])


@intrinsic
def prefetch(_typing: Any, record: Any, _offset: Any) -> Any:
    """Ask for the cache line at a byte offset of ``record``; changes nothing but the waiting time."""

    def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        start = builder.bitcast(args[0], ir.IntType(8).as_pointer())
        _ask(builder, builder.gep(start, [args[1]]))
        return target.get_dummy_value()

    return types.void(record, types.int64), codegen


@intrinsic
def prefetch_row(_typing: Any, array: Any) -> Any:
    """Ask for the cache line at the beginning of ``array``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        _ask(builder, builder.bitcast(data, ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return types.void(array), codegen
