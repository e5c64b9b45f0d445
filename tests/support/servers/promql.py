"""The part of PromQL that our alert rules use, evaluated on made-up series at one time.

Semantics by the Prometheus documentation: a sample counts for five minutes, comparisons filter, ``or``
matches by all labels but the name. Anything unsupported raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
#: Name and labels -> instants in s and values, in order.
Series = Mapping[tuple[str, Labels], Sequence[tuple[float, float]]]

LOOKBACK_S = 300.0
_TOKEN = re.compile(r'\s*("[^"]*"|\d+(?:\.\d+)?|[a-zA-Z_]\w*|=~|!=|==|<=|>=|[-+*/<>=(){}\[\],])')
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_COMPARES: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
}
_GROUPS: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}


def labels(**named: str) -> Labels:
    """A set of labels."""
    return frozenset(named.items())


def evaluate(query: str, series: Series, at_s: float) -> Vector:
    """Result of ``query`` at ``at_s``: an alert fires for every entry."""
    tokens = _TOKEN.findall(query)
    if "".join(tokens) != re.sub(r"\s+", "", query):
        raise ValueError(f"expected the part of PromQL that is known here, got {query!r}")
    reader = _Reader(tokens, series, at_s)
    found = reader.either()
    if reader.tokens or isinstance(found, float):
        raise ValueError(f"expected one vector, got {found!r} before {reader.tokens}")
    return found


@dataclass
class _Reader:
    tokens: list[str]
    series: Series
    at_s: float

    def either(self) -> Vector | float:
        """``a or b``: from b the entries with other labels than all of a."""
        found = self.compared()
        while self.took("or"):
            other = self.compared()
            found = {**_vector(other), **_vector(found)}
        return found

    def compared(self) -> Vector | float:
        """``vector < number`` keeps the entries for which it holds."""
        found = self.multiplied()
        if self.tokens and self.tokens[0] in _COMPARES:
            holds, limit = _COMPARES[self.tokens.pop(0)], self.multiplied()
            if not isinstance(limit, float):
                raise ValueError("expected a number to compare with")
            return {key: one for key, one in _vector(found).items() if holds(one, limit)}
        return found

    def multiplied(self) -> Vector | float:
        """``number * vector``."""
        found = self.single()
        while self.took("*"):
            if not isinstance(found, float):
                raise ValueError("expected a number to multiply by")
            times = found
            found = {key: times * one for key, one in _vector(self.single()).items()}
        return found

    def single(self) -> Vector | float:
        """A number, an aggregation, a function, a selector, or anything in parentheses."""
        if self.took("("):
            found = self.either()
            self.needs(")")
            return found
        name = self.tokens.pop(0)
        if name[0].isdigit():
            return float(name)
        if name in _GROUPS:
            return self.grouped(_GROUPS[name])
        return self.called(name) if self.tokens[:1] == ["("] else self.selected(name)

    def grouped(self, join: Callable[[list[float]], float]) -> Vector:
        """``sum by (a, b) (vector)``."""
        self.needs("by")
        kept = set(self.listed("(", ")"))
        groups: dict[Labels, list[float]] = {}
        for key, one in _vector(self.single()).items():
            groups.setdefault(frozenset(pair for pair in key if pair[0] in kept), []).append(one)
        return {key: join(values) for key, values in groups.items()}

    def called(self, name: str) -> Vector:
        """A function of one vector, or ``histogram_quantile``."""
        self.needs("(")
        if name == "histogram_quantile":
            quantile = float(self.tokens.pop(0))
            self.needs(",")
            found = _quantiles(quantile, _vector(self.either()))
        elif name == "absent":
            found = {} if self.either() else {labels(): 1.0}
        elif name in ("rate", "last_over_time"):
            found = self.selected(self.tokens.pop(0), name)
        else:
            raise ValueError(f"{name} is not known here")
        self.needs(")")
        return found

    def selected(self, name: str, function: str = "") -> Vector:
        """Newest samples of a metric, or ``function`` of a range of them."""
        matchers = self.listed("{", "}") if self.tokens[:1] == ["{"] else []
        range_s = LOOKBACK_S
        if self.took("["):
            told = "".join(self.until("]"))
            range_s = float(told[:-1]) * _UNIT_S[told[-1]]
        found: Vector = {}
        for (metric, own), samples in self.series.items():
            inside = [one for one in samples if self.at_s - range_s < one[0] <= self.at_s]
            if metric != name or not inside or not _matches(dict(own), matchers):
                continue
            rise = (inside[-1][1] - inside[0][1]) / max(inside[-1][0] - inside[0][0], 1.0)
            found[own] = rise if function == "rate" else inside[-1][1]
        return found

    def listed(self, begin: str, end: str) -> list[str]:
        """Tokens between brackets, without commas."""
        self.needs(begin)
        return [one for one in self.until(end) if one != ","]

    def until(self, end: str) -> list[str]:
        """Tokens up to ``end``, which is consumed."""
        at = self.tokens.index(end)
        found, self.tokens = self.tokens[:at], self.tokens[at + 1 :]
        return found

    def took(self, token: str) -> bool:
        """Whether ``token`` came next; it is consumed."""
        there = self.tokens[:1] == [token]
        self.tokens = self.tokens[there:]
        return there

    def needs(self, token: str) -> None:
        """ValueError unless ``token`` comes next; it is consumed."""
        if not self.took(token):
            raise ValueError(f"expected {token} before {self.tokens}")


def _vector(found: Vector | float) -> Vector:
    if isinstance(found, float):
        raise ValueError(f"expected a vector, got {found}")
    return found


def _matches(own: Mapping[str, str], matchers: Sequence[str]) -> bool:
    for name, how, value in zip(matchers[::3], matchers[1::3], matchers[2::3], strict=True):
        equal = re.fullmatch(value.strip('"'), own.get(name, "")) is not None
        if equal is (how == "!="):
            return False
    return True


def _quantiles(quantile: float, buckets: Vector) -> Vector:
    """Upper edge of the bucket that holds the quantile; edges in between are not needed here."""
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for key, count in buckets.items():
        rest = frozenset(pair for pair in key if pair[0] != "le")
        groups.setdefault(rest, []).append((float(dict(key)["le"]), count))
    return {
        key: next(edge for edge, count in sorted(found) if count >= quantile * max(found)[1])
        for key, found in groups.items()
    }
