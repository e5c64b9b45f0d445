"""A function's compiled versions, with a Python wrapper only where the interpreter calls the function.

The code that unpacks Python's arguments, dozens of arrays and their fields, is a fifth of what is compiled,
and most functions are called by compiled code alone. So a version that compiled code asks for has no such
wrapper; a first call from Python compiles (or loads) a version that has one.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature

_OPTION = "no_cpython_wrapper"
#: New objects between two garbage collections while something is compiled.
_OBJECTS = 100_000


def has_python_wrapper(version: Any) -> bool:
    """Whether the interpreter can call this version (``numba.core.compiler.CompileResult``)."""
    name = version.fndesc.llvm_cpython_wrapper_name
    return bool(version.library.get_pointer_to_function(name))


class CompiledFunction(CPUDispatcher):
    """numba's dispatcher; ``adopted`` makes one of a dispatcher of ``njit``."""

    @classmethod
    def adopted(cls, dispatcher: Any) -> CompiledFunction:
        """The same object, which from now on compiles as the module describes."""
        dispatcher.__class__ = cls
        # These functions are never passed on as C function pointers.
        dispatcher.targetoptions["no_cfunc_wrapper"] = True
        adopted: CompiledFunction = dispatcher
        return adopted

    @property
    def wants_door(self) -> bool:
        """Whether the version that is asked for now is for the interpreter."""
        return not self.targetoptions.get(_OPTION, False)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What compiled code calls: a version without a Python wrapper is enough."""
        with global_compiler_lock:
            before = self.targetoptions.get(_OPTION, False)
            self.targetoptions[_OPTION] = True
            try:
                return super().get_call_template(args, kws)
            finally:
                self.targetoptions[_OPTION] = before

    def compile(self, sig: Any) -> Any:
        """The version for ``sig``; one without a Python wrapper is compiled anew for the interpreter."""
        args = tuple(normalize_signature(sig)[0])
        with global_compiler_lock, rare_garbage_collection():
            version = self.overloads.get(args)
            if self.wants_door and version is not None and not has_python_wrapper(version):
                del self.overloads[args]
            return super().compile(sig)

    def add_overload(self, cres: Any) -> None:
        """Add a version; only one that the interpreter can call is registered with it."""
        if has_python_wrapper(cres):
            super().add_overload(cres)
        else:
            self.overloads[tuple(cres.signature.args)] = cres


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely: of the million objects that compiling makes, most live until its end."""
    before = gc.get_threshold()
    gc.set_threshold(before[0] and max(before[0], _OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
