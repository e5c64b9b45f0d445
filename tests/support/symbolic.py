"""Runs plain Python functions on symbolic real numbers, path by path.

A ``Number`` wraps a z3 term. Arithmetic builds terms; where Python asks for the truth of a comparison, the
explorer chooses a branch that the path so far allows and later returns for the other one. So every
feasible path of the function is run once, each with the condition under which it is taken. A condition
that z3 cannot decide within ``STEPS`` of its own steps counts as feasible, which only adds paths; steps are
counted, not timed, so that every machine explores the same paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

#: z3's resource limit of one decision.
STEPS = 100_000


class Explorer:
    """Depth first over the truth values of a function's comparisons."""

    def __init__(self, assumptions: list[z3.BoolRef], steps: int = STEPS) -> None:
        self._assumptions, self._steps = assumptions, steps
        self._prefix: list[bool] = []
        self._taken: list[bool] = []
        self._open: list[bool] = []
        self._solver = z3.Solver()
        self.paths = 0

    def run(self, function: Callable[[Explorer], Any]) -> Iterator[Any]:
        """Results of ``function`` on every feasible path; ``condition`` is the path's own meanwhile."""
        self._prefix = []
        while True:
            self._taken, self._open = [], []
            self._solver = z3.Solver()
            self._solver.set("rlimit", self._steps)
            self._solver.add(*self._assumptions)
            result = function(self)
            self.paths += 1
            yield result
            while self._taken and not self._open[-1]:
                self._taken.pop()
                self._open.pop()
            if not self._taken:
                return
            self._prefix = [*self._taken[:-1], not self._taken[-1]]
            self._opened = [*self._open[:-1], False]

    def decide(self, condition: z3.BoolRef) -> bool:
        """The truth of ``condition`` on this path."""
        at = len(self._taken)
        if at < len(self._prefix):
            choice, other = self._prefix[at], self._opened[at]
        else:
            can = self._feasible(condition)
            other = can and self._feasible(z3.Not(condition))
            choice = can
        self._solver.add(condition if choice else z3.Not(condition))
        self._taken.append(choice)
        self._open.append(other)
        return choice

    def _feasible(self, condition: z3.BoolRef) -> bool:
        return bool(self._solver.check(condition) != z3.unsat)

    def holds(self, condition: z3.BoolRef) -> bool:
        """Whether ``condition`` follows from the path so far."""
        return bool(self._solver.check(z3.Not(condition)) == z3.unsat)


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """A comparison with a truth value that Python requests."""

    explorer: Explorer
    term: z3.BoolRef

    def __bool__(self) -> bool:
        term = z3.simplify(self.term)
        if z3.is_true(term) or z3.is_false(term):
            return bool(z3.is_true(term))
        return self.explorer.decide(term)


class Number:
    """A real number given as a z3 term."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, explorer: Explorer, term: z3.ArithRef) -> None:
        self.explorer, self.term = explorer, term

    def _with(self, term: z3.ArithRef) -> Number:
        return Number(self.explorer, z3.simplify(term))

    def _ask(self, term: z3.BoolRef) -> Truth:
        return Truth(self.explorer, term)

    def __add__(self, other: Any) -> Number:
        return self._with(self.term + _term(other))

    def __radd__(self, other: Any) -> Number:
        return self._with(_term(other) + self.term)

    def __sub__(self, other: Any) -> Number:
        return self._with(self.term - _term(other))

    def __rsub__(self, other: Any) -> Number:
        return self._with(_term(other) - self.term)

    def __mul__(self, other: Any) -> Number:
        return self._with(self.term * _term(other))

    def __rmul__(self, other: Any) -> Number:
        return self._with(_term(other) * self.term)

    def __truediv__(self, other: Any) -> Number:
        return self._with(self.term / _term(other))

    def __rtruediv__(self, other: Any) -> Number:
        return self._with(_term(other) / self.term)

    def __abs__(self) -> Number:
        return self if self >= 0.0 else self._with(-self.term)

    def __lt__(self, other: Any) -> Truth:
        return self._ask(self.term < _term(other))

    def __le__(self, other: Any) -> Truth:
        return self._ask(self.term <= _term(other))

    def __gt__(self, other: Any) -> Truth:
        return self._ask(self.term > _term(other))

    def __ge__(self, other: Any) -> Truth:
        return self._ask(self.term >= _term(other))

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return self._ask(self.term != _term(other))

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return self._ask(self.term == _term(other))


def _term(value: Any) -> z3.ArithRef:
    if isinstance(value, Number):
        return value.term
    return z3.RealVal(repr(float(value)) if isinstance(value, float) else str(value))
