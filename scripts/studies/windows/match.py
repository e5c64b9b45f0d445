"""Settings under which detectors cause equally many false switches, so that their delays can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A setting and how it was found.

    setting: looseness, larger is more sensitive. count: false switches counted with it. reached: the target
    lies within what the settings can do; else ``setting`` is the end of the range that comes nearest.
    tried: every setting with its count, in the order of trying.
    """

    setting: float
    count: int
    reached: bool
    tried: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BracketSearch:
    """Search range: between ``strict`` and ``loose``, from ``start`` in steps that double from ``step``.

    bisections: of the bracket found. slack: a count this near to the target, on the wanted side, suffices.
    """

    strict: float
    loose: float
    start: float
    step: float = 0.5
    bisections: int = 5
    slack: float = 0.1


def match(count: Callable[[float], int], target: int, search: BracketSearch, *, above: bool) -> Matched:
    """The setting whose count of false switches comes nearest to ``target`` on one side of it.

    count: never fewer at a looser setting, up to chance, which the search bears: it keeps a strict end below
    the target and a loose end at or above it. above: return a setting whose count is at least the target,
    else one whose count is at most that; the benefit of the doubt goes to the side that is matched ``above``.
    """
    tried: dict[float, int] = {}

    def of(setting: float) -> int:
        if setting not in tried:
            tried[setting] = count(setting)
        return tried[setting]

    low, high = _bracket(of, target, search)
    if of(high) < target or of(low) > target:
        end = high if of(high) < target else low
        return Matched(setting=end, count=of(end), reached=False, tried=tuple(tried.items()))
    near = (target, target * (1.0 + search.slack)) if above else (target * (1.0 - search.slack), target)
    found = high if above else low
    for _ in range(search.bisections):
        if near[0] <= of(found) <= near[1]:
            break
        middle = 0.5 * (low + high)
        low, high = (low, middle) if of(middle) >= target else (middle, high)
        found = middle if near[0] <= of(middle) <= near[1] else high if above else low
    return Matched(setting=found, count=of(found), reached=True, tried=tuple(tried.items()))


def _bracket(of: Callable[[float], int], target: int, search: BracketSearch) -> tuple[float, float]:
    """(strict, loose): counts below the target, and not below it; or an end of the range for both."""
    here, step = search.start, search.step
    enough = of(here) >= target
    while True:
        end = search.strict if enough else search.loose
        there = max(here - step, end) if enough else min(here + step, end)
        if (of(there) >= target) != enough:
            return (there, here) if enough else (here, there)
        if there == end:
            return there, there
        here, step = there, 2.0 * step
