"""Rules of profiles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from contracts.documents.profile import HEALTHY, Condition, MeasuredMetric, ProfileSpec
from contracts.errors import KeyPath
from contracts.rules.breach import Breach, repeated_names


def profile_breaches(spec: ProfileSpec) -> Iterator[Breach]:
    """Broken rules of one profile, paths from its spec."""
    yield from repeated_names([condition.name for condition in spec.conditions], ("conditions",), "name")
    yield from _healthy(spec)
    for index, condition in enumerate(spec.conditions):
        yield from _condition(condition, ("conditions", index), spec.not_measured)


def _healthy(spec: ProfileSpec) -> Iterator[Breach]:
    if not any(condition.name == HEALTHY and condition.fault == "none" for condition in spec.conditions):
        yield Breach(
            path=("conditions",),
            expected="a condition 'healthy' with fault: none",
            actual=", ".join(condition.name for condition in spec.conditions),
            next_step="measure the kernel without a fault as well",
        )


def _condition(condition: Condition, path: KeyPath, not_measured: tuple[str, ...]) -> Iterator[Breach]:
    if condition.fault != "none" and not condition.verified:
        hint = "an injection that no canary saw is no measurement; measure it again or drop it"
        yield Breach(path=(*path, "verified"), expected="true", actual="false", next_step=hint)
    keys = [f"{m.slice} {m.metric}@{m.estimator} {m.split}" for m in condition.measures]
    yield from repeated_names(keys, (*path, "measures"), None)
    for index, measure in enumerate(condition.measures):
        yield from _measure(measure, (*path, "measures", index), not_measured)


def _measure(measure: MeasuredMetric, path: KeyPath, not_measured: tuple[str, ...]) -> Iterator[Breach]:
    ladder = (("p50", measure.p50), ("p95", measure.p95), ("p99", measure.p99), ("max", measure.max))
    for (low_name, low), (high_name, high) in pairwise(ladder):
        if high < low:
            expected = f"a value >= {low_name} {low:g}"
            hint = "quantiles grow; measure again"
            yield Breach(path=(*path, high_name), expected=expected, actual=f"{high:g}", next_step=hint)
    if measure.metric in not_measured:
        hint = "take it out of not_measured, or drop these numbers"
        actual = f"numbers for {measure.metric}, which not_measured lists"
        yield Breach(path=(*path, "metric"), expected="measured or not", actual=actual, next_step=hint)
