"""Cache lines asked for before their use, by compiled code alone."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


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
