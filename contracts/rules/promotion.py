"""Rules of promotions: one offline evidence, windows within deadlines, canary limits and webhook URLs."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from contracts.documents.promotion import PromotionSpec, StageSpec, Webhook
from contracts.rules.breach import Breach, prefixed, repeated_names


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
    if spec.announced_fingerprint is not None and spec.replaces is None:
        hint = "name the kernel whose servers are upgraded in place"
        yield Breach(path=("replaces",), expected="the upgraded kernel", actual="none", next_step=hint)
    yield from prefixed(("shadow",), _window(spec.shadow))
    yield from prefixed(("canary",), _window(spec.canary))
    if spec.canary.guard_ratio > spec.canary.weight_ratio:
        yield Breach(
            path=("canary", "guard_ratio"),
            expected=f"at most weight_ratio, {spec.canary.weight_ratio:g}",
            actual=f"{spec.canary.guard_ratio:g}",
            next_step="a guard lets less in than a healthy canary; lower it",
        )
    yield from repeated_names(spec.manual_gates, ("manual_gates",), None)
    yield from repeated_names([one.name for one in spec.webhooks], ("webhooks",), "name")
    for index, hook in enumerate(spec.webhooks):
        yield from prefixed(("webhooks", index), _hook(hook))


def _hook(hook: Webhook) -> Iterator[Breach]:
    if not _callable(hook.url):
        hint = "as https://hooks.example:8443/path"
        yield Breach(
            path=("url",), expected="a host and a port below 65536", actual=repr(hook.url), next_step=hint
        )
    yield from repeated_names(hook.stages or (), ("stages",), None)
    if hook.stages is not None and hook.kind in ("event", "rollback"):
        hint = "leave stages out: it is told of each of them"
        yield Breach(path=("stages",), expected=f"none for kind {hook.kind}", actual="stages", next_step=hint)


def _callable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _window(terms: StageSpec) -> Iterator[Breach]:
    if terms.deadline_s < terms.stability_s:
        yield Breach(
            path=("deadline_s",),
            expected=f"at least stability_s, {terms.stability_s:g}",
            actual=f"{terms.deadline_s:g}",
            next_step="no stage can show its window before its deadline; raise it",
        )
