"""A function that only compiled code calls is optimised with its callers, not before.

numba links a function with all that it calls, optimises the whole and makes machine code of it: for the
function itself, and anew for every caller up to the one that the interpreter calls. A function without a
Python wrapper (``contracts.jit.dispatcher``) never runs by itself, so it is kept as it was translated and
simplified: a part, which its callers link in. A function with a wrapper is optimised with all its parts,
once. Only functions decorated with ``compiled`` are treated so; numba's own and others are compiled as usual.

A function that calls itself cannot be a part, and numba cannot keep it on disk either.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import parse_bitcode
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult, Flags
from numba.core.environment import lookup_environment

#: Kind of the data kept on disk for a part; numba's own kinds are "object" and "bitcode".
_PART = "part"
#: First letters of the names of variables that hold a function's environment, the objects its code refers to.
_ENVIRONMENT = "_ZN08NumbaEnv"


class _Nowhere:
    """The code generator of parts, which run only inside their callers."""

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: the code that links the part in sets its environment."""


class LinkedCode(JITCodeLibrary):
    """Code of a function and of the parts linked into it; machine code only if it ``runs`` by itself."""

    def __init__(self, codegen: Any, name: str, *, runs: bool) -> None:
        super().__init__(codegen, name)
        self.runs = runs

    @classmethod
    def read(cls, codegen: Any, name: str, bitcode: bytes) -> LinkedCode:
        """The part that ``serialize_using_object_code`` wrote."""
        part = cls(codegen, name, runs=False)
        part._final_module = part._shared_module = parse_bitcode(bitcode)
        part._finalize_final_module()
        return part

    @property
    def codegen(self) -> Any:
        """The code generator that runs it."""
        return self._codegen if self.runs else _Nowhere()

    def get_pointer_to_function(self, name: str) -> int:
        """Address of the function; zero for a part, which has no machine code of its own."""
        self._ensure_finalized()
        return super().get_pointer_to_function(name) if self.runs else 0

    def serialize_using_object_code(self) -> Any:
        """The data kept on disk."""
        if self.runs:
            return super().serialize_using_object_code()
        return self.name, _PART, self._get_module_for_linking().as_bitcode()

    def _optimize_final_module(self) -> None:
        """Optimise code that runs by itself; a part was simplified and is optimised with its callers."""
        if self.runs:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if self.runs:
            super()._finalize_final_module()
            self._set_environments()
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    def _set_environments(self) -> None:
        """Set the environments of all linked parts, which nothing else sets."""
        for name in [variable.name for variable in self._final_module.global_variables]:
            environment = lookup_environment(name) if name.startswith(_ENVIRONMENT) else None
            if environment is not None:
                self._codegen.set_env(name, environment)


#: Values of options that are not set.
_DEFAULTS = {name: option.default for name, option in Flags.options.items()}
#: numba's hash of flags: over the names of all options, and so the same for all flags.
_HASH = hash(Flags())


class SwiftFlags(Flags):
    """numba's flags, hashed and compared without asking for every option by its name.

    Every resolved call of numba's own functions looks them up in a table, which takes a tenth of all
    compiling.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return _HASH

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flags):
            return NotImplemented
        return bool(self._values == other._values or self.values() == _DEFAULTS | other._values)

    def values(self) -> dict[str, Any]:
        """All options."""
        return {**_DEFAULTS, **self._values}

    def get_mangle_string(self) -> str:
        """Text that numba puts into the names of compiled functions for these flags."""
        return str(Flags(self).get_mangle_string())


class LinkingCompiler(Compiler):
    """numba's compiler, in which functions without a Python wrapper do not run by themselves."""

    def define_pipelines(self) -> Any:
        """numba's own pipelines; called once, before anything is translated."""
        state = self.state
        if state.library is None:
            name, runs = state.func_id.func_qualname, not state.flags.no_cpython_wrapper
            state.library = LinkedCode(state.targetctx.codegen(), name, runs=runs)
            state.library.enable_object_caching()
        return super().define_pipelines()

    def _compile_core(self) -> Any:
        self.state.flags = SwiftFlags(self.state.flags)
        return super()._compile_core()


class _Target:
    """A target that reads parts as well as the kinds that numba keeps."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def codegen(self) -> Any:
        return self

    def unserialize_library(self, kept: Any) -> Any:
        name, kind, content = kept
        codegen = self._target.codegen()
        return LinkedCode.read(codegen, name, content) if kind == _PART else codegen.unserialize_library(kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def read_version(target: Any, kept: Any) -> CompileResult:
    """The compiled version kept on disk, a part or a complete function, for ``target``."""
    version = CompileResult._rebuild(_Target(target), *kept)
    return version._replace(target_context=target)
