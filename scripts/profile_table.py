"""The drift table: kernel, precision, slice against mean KL, p99 KL, mean |dlogp| and top-1 flips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from contracts.documents.profile import Condition, KernelProfile, Measure

_HEAD = ("kernel", "precision", "condition", "slice", "mean KL", "p99 KL", "mean abs dlogp", "top-1 flips")


def drift_table(profiles: Sequence[KernelProfile], *, conditions: bool = False) -> str:
    """Markdown rows per kernel and slice, least drift first; with ``conditions`` those of every fault.

    KL in nats, quantiles over the certify prompts; |dlogp| is E|log w| over the kernel's own
    distribution, in nats; flips in percent of positions.
    """
    ordered = sorted(profiles, key=lambda one: (_drift(one.spec.conditions[0]), one.spec.kernel))
    rows = [_HEAD, tuple("---" for _ in _HEAD)]
    for profile in ordered:
        for condition in profile.spec.conditions if conditions else profile.spec.conditions[:1]:
            rows += _rows(profile, condition)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def condition_table(profile: KernelProfile) -> str:
    """Markdown rows per condition of one profile: mean over slices of KL, TV and flips, and step time."""
    rows = [("condition", "dose", "mean KL", "mean TV", "top-1 flips", "step time"), ("---",) * 6]
    for condition in profile.spec.conditions:
        means = [_mean_over_slices(condition, name) for name in ("kl_mean", "tv_mean", "top1_flip")]
        dose = f"{condition.dose_setting:g} {condition.dose_unit}" if condition.fault != "none" else ""
        rows.append(
            (
                condition.name,
                dose,
                f"{means[0]:.2e}",
                f"{means[1]:.2e}",
                f"{100 * means[2]:.2f} %",
                f"{condition.step_time_factor:.2f}x",
            )
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _rows(profile: KernelProfile, condition: Condition) -> Iterable[tuple[str, ...]]:
    mark = profile.spec.fingerprint
    precision = "/".join(
        part for part in (mark.dtype, mark.quantization, mark.kv_cache_dtype) if part not in ("none", "auto")
    )
    for name in dict.fromkeys(measure.slice for measure in condition.measures):
        kl = _find(condition, name, "kl_mean")
        spread, flips = _find(condition, name, "abs_log_w"), _find(condition, name, "top1_flip")
        yield (
            profile.spec.kernel,
            precision,
            condition.name,
            name,
            f"{kl.mean:.2e}" if kl else "-",
            f"{kl.p99:.2e}" if kl else "-",
            f"{spread.mean:.2e}" if spread else "-",
            f"{100 * flips.mean:.2f} %" if flips else "-",
        )


def _find(condition: Condition, slice_name: str, metric: str) -> Measure | None:
    """The measure by the widest estimator there is."""
    found = {m.estimator: m for m in condition.measures if m.slice == slice_name and m.metric == metric}
    return found.get("full_vocab") or found.get("top_k")


def _mean_over_slices(condition: Condition, metric: str) -> float:
    slices = dict.fromkeys(measure.slice for measure in condition.measures)
    found = [_find(condition, name, metric) for name in slices]
    means = [measure.mean for measure in found if measure]
    return sum(means) / len(means) if means else float("nan")


def _drift(condition: Condition) -> float:
    return _mean_over_slices(condition, "kl_mean")
