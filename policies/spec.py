"""The text form of a policy with its settings: ``name:key=value,key=value``; most values are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from policies.rules.informed import Notices

EXAMPLE = "hysteresis:dwell_s=120"

Value = float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of a factory: every parameter of the policy, numbers by ``[]`` and texts by ``text``.

    notices: faults given to the informed reference; None: none.
    """

    numbers: Mapping[str, float]
    texts: Mapping[str, str] = field(default_factory=dict)
    notices: Notices | None = None

    def __getitem__(self, name: str) -> float:
        return self.numbers[name]

    def get(self, name: str, default: float) -> float:
        """The number ``name``, or ``default`` if the policy has no such parameter."""
        return self.numbers.get(name, default)

    def text(self, name: str) -> str:
        """The text ``name``."""
        return self.texts[name]


def parse_spec(spec: str) -> tuple[str, dict[str, Value]]:
    """Parse ``"name:key=value,..."`` to name and values; values that are not numbers stay text.

    Raises ValueError if a part is not ``key=value``, or a number is not finite.
    """
    name, _, tail = spec.partition(":")
    values: dict[str, Value] = {}
    for part in filter(None, tail.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise ValueError(f"policy {spec!r}: expected key=number, got {part!r}; write e.g. {EXAMPLE}")
        values[key] = _value(value)
        if isinstance(values[key], float) and not isfinite(float(values[key])):
            raise ValueError(f"policy {spec!r}: expected a finite number, got {part!r}; write e.g. {EXAMPLE}")
    return name.strip(), values


def _value(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text


def write_spec(name: str, values: Mapping[str, Value]) -> str:
    """The text that ``parse_spec`` reads, parameters by name; numbers to six digits."""
    if not values:
        return name
    parts = (f"{key}={_written(values[key])}" for key in sorted(values))
    return name + ":" + ",".join(parts)


def _written(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"
