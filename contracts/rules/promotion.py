"""Rules of promotions: one evidence, a window before the deadline, a guard below the canary's share."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.documents.promotion import PromotionSpec, StageTerms
from contracts.rules.breach import Breach, repeated, under


def promotion_breaches(spec: PromotionSpec) -> Iterator[Breach]:
    """Broken rules of one promotion, paths from its spec."""
    given = [spec.offline.evaluation, spec.offline.register_file]
    if sum(one is not None for one in given) != 1:
        hint = "name the output of evaluate --json, or a register"
        actual = "both" if all(given) else "neither"
        yield Breach(
            path=("offline",), expected="either evaluation or register_file", actual=actual, next_step=hint
        )
    if spec.replaces == spec.candidate:
        hint = "name the kernel that it takes over from, or leave it out"
        yield Breach(
            path=("replaces",), expected="another kernel", actual=repr(spec.replaces), next_step=hint
        )
    yield from under(("shadow",), _window(spec.shadow))
    yield from under(("canary",), _window(spec.canary))
    if spec.canary.guard_ratio > spec.canary.weight_ratio:
        yield Breach(
            path=("canary", "guard_ratio"),
            expected=f"at most weight_ratio, {spec.canary.weight_ratio:g}",
            actual=f"{spec.canary.guard_ratio:g}",
            next_step="a guard lets less in than a healthy canary; lower it",
        )
    yield from repeated(spec.manual_gates, ("manual_gates",), None)


def _window(terms: StageTerms) -> Iterator[Breach]:
    if terms.deadline_s < terms.stability_s:
        yield Breach(
            path=("deadline_s",),
            expected=f"at least stability_s, {terms.stability_s:g}",
            actual=f"{terms.deadline_s:g}",
            next_step="no stage can show its window before its deadline; raise it",
        )
