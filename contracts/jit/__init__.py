"""Compilation with numba: one decorator, a cache keyed by the sources, and borrowed array views.

The only room that imports numba's internals.
"""

from contracts.jit.decorator import (
    FUNCTIONS,
    compiled,
    is_all_compiled,
    note_all_compiled,
    report_compilations,
)
from contracts.jit.intrinsics import borrowed, prefetch, prefetch_row

__all__ = [
    "FUNCTIONS",
    "borrowed",
    "compiled",
    "is_all_compiled",
    "note_all_compiled",
    "prefetch",
    "prefetch_row",
    "report_compilations",
]
