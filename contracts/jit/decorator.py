"""``compiled``: the one way to compile functions of this project; and a report of what is compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251 (what numba keeps, not we)
from typing import Any, ParamSpec, TypeVar, overload

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.event import Listener, install_listener

from contracts.jit.cache import code_folder, exclusive_access, lasting_folder
from contracts.jit.dispatcher import CompiledFunction, has_python_wrapper
from contracts.jit.linking import LinkingCompiler, read_version
from contracts.jit.sources import source_stamp

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Every compiled function of the imported modules.
FUNCTIONS: list[Any] = []


class _Locator(_CacheLocator):
    """Tells numba where the code of a function is kept and which stamp identifies it."""

    def __init__(self, function: Any, file: str) -> None:
        self._file = Path(file).resolve()
        self._py_file = file  # numba names it where it cannot keep what it compiled
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        """Every function has a locator."""
        return cls(py_func, py_file)

    def ensure_cache_path(self) -> None:
        """Make the cache folder, also if it was removed since this process began."""
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """One folder per source file and state of its sources."""
        return str(code_folder(self._file))

    def get_source_stamp(self) -> str:
        """Changes with every source whose constants or code the function may contain."""
        return source_stamp(self._file)

    def get_disambiguator(self) -> str:
        """Distinguishes functions of one name in one file."""
        return str(self._line)


class _Place(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 (as numba declares it)

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """A version loaded from disk."""
        return read_version(target_context, payload)


class _Index(IndexDataCacheFile):
    def _load_index(self) -> Any:
        # An index names the types of callers, which may no longer exist although this function's sources are
        # unchanged.
        try:
            return super()._load_index()
        except (AttributeError, ImportError, EOFError, UnpicklingError):
            return {}


class _Cache(FunctionCache):
    _impl_class = _Place

    def __init__(self, function: CompiledFunction) -> None:
        super().__init__(function.py_func)
        self._function = function
        self._cache_file = _Index(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kept version, unless the interpreter asks for one and this has no Python wrapper."""
        kept = super().load_overload(sig, target_context)
        return (
            None if kept is not None and self._function.wants_door and not has_python_wrapper(kept) else kept
        )

    def _save_overload(self, sig: Any, data: Any) -> None:
        self._impl.locator.ensure_cache_path()
        with exclusive_access(Path(self._cache_path)):
            super()._save_overload(sig, data)


@overload
def compiled(function: Callable[_P, _T]) -> Callable[_P, _T]: ...
@overload
def compiled(**options: Any) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]: ...
def compiled(function: Any = None, **options: Any) -> Any:
    """``function`` as machine code, compiled at its first call and kept on disk.

    Division follows numpy (no ZeroDivisionError) unless ``error_model="python"`` is asked for; other
    ``options`` go to ``numba.njit``. The code is known by a hash over every source that it may freeze, so
    it is never stale (``contracts.jit.sources``). Functions that numba makes at run time cannot be kept.
    """
    if function is None:
        return lambda inner: compiled(inner, **options)
    dispatcher = CompiledFunction.adopted(
        njit(pipeline_class=LinkingCompiler, **{"error_model": "numpy", **options})(function)
    )
    dispatcher._cache = _Cache(dispatcher)
    # A function that is always inlined is compiled with its callers.
    if "<locals>" not in dispatcher.__qualname__ and options.get("inline") != "always":
        FUNCTIONS.append(dispatcher)
    return dispatcher


@contextmanager
def report_compilations(tell: Callable[[str], None]) -> Iterator[None]:
    """Call ``tell`` with the name of each function of this project that is compiled meanwhile."""
    with install_listener("numba:compile", _Listener(tell)):
        yield


class _Listener(Listener):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def on_start(self, event: Any) -> None:
        """Nothing to report yet."""

    def on_end(self, event: Any) -> None:
        """Report a compiled function of this project; numba's own, compiled on the way, are not reported."""
        function = event.data["dispatcher"]
        if function in FUNCTIONS:
            self._tell(f"{function.__module__}.{function.__qualname__}")


def is_all_compiled() -> bool:
    """Whether ``note_all_compiled`` was called for all imported functions, as their sources are now."""
    mark = _mark()
    return mark is not None and mark.is_file() and mark.read_text(encoding="utf-8") == _state()


def note_all_compiled() -> None:
    """Write the file beside the code that ``is_all_compiled`` looks for."""
    mark = _mark()
    if mark is not None:
        mark.write_text(_state(), encoding="utf-8")


def _mark() -> Path | None:
    folder = lasting_folder()
    return None if folder is None else folder / "all-compiled"


def _state() -> str:
    folders = sorted({function._cache.cache_path for function in FUNCTIONS})
    return hashlib.sha256("\n".join(folders).encode()).hexdigest()
