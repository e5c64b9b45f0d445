"""Settings that somebody may choose: a default, a unit, a range and a meaning each."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One number that a policy or a detector takes."""

    default: float
    unit: str
    """In which it is counted: "s", "ratio", "1" for a count or a factor."""
    meaning: str
    low: float = 0.0
    """Least value."""
    high: float = math.inf
    """Largest value; infinity: any finite one."""

    def __post_init__(self) -> None:
        if not self.allows(self.default):
            raise ValueError(f"default: expected {self.expected}, got {self.default:g}")

    def allows(self, value: float) -> bool:
        """Whether ``value`` is finite and within the range."""
        return math.isfinite(value) and self.low <= value <= self.high

    @property
    def expected(self) -> str:
        """The range in words."""
        if math.isfinite(self.high):
            return f"a number between {self.low:g} and {self.high:g}"
        return f"a finite number >= {self.low:g}"


def seconds(default: float, meaning: str) -> Parameter:
    """A time in seconds, 0 or more."""
    return Parameter(default=default, unit="s", meaning=meaning)


def ratio(default: float, meaning: str) -> Parameter:
    """A share between 0 and 1."""
    return Parameter(default=default, unit="ratio", meaning=meaning, high=1.0)


def number(default: float, meaning: str) -> Parameter:
    """A count, a factor or a weight, 0 or more."""
    return Parameter(default=default, unit="1", meaning=meaning)


def switch(default: bool, meaning: str) -> Parameter:
    """1 for on, 0 for off."""
    return Parameter(default=float(default), unit="0 or 1", meaning=meaning, high=1.0)
