"""The drift table (kernel, precision, slice: mean KL, p99 KL, mean |dlogp|, top-1 flips) and its page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from contracts.documents.profile import Condition, KernelProfile, MeasuredMetric

_PAGE = """\
# Measured drift on {hardware}

What each kernel does to the next-token distributions of the reference model, and what each fault adds.
Every number on this page comes from the profiles in `{folder}`; this page is the output of

```sh
selvage profile table {folder} --page
```

and the profiles are the output of the command in their `provenance` (one per kernel):

```sh
{commands}
```

Hardware: {hardware}.
Versions: {versions}.

Reference: Hugging Face transformers in float32 on the same weights, full vocabulary.
KL is KL(reference || kernel) in nats, averaged over the positions of a prompt; mean and p99 are over the
certify prompts of the slice, so p99 is close to the largest of few prompts.
Mean |dlogp| is E|log w| over the kernel's own distribution, in nats.
Top-1 flips are the share of positions whose preferred token changed; json and numbers flip often at low KL,
because their digits are drawn at random and many top tokens are nearly tied.

## Healthy kernels

{healthy}

## Faults

One condition per fault and dose; means over the slices.
Every injection was confirmed by the functional canary (or, for a restart, by changed log-probabilities) and
undone bit for bit before the next.
Weight faults leave the step time alone, so it is measured for slowed steps only.

{faults}

## Notes of the measurements

{notes}
"""
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


def drift_page(profiles: Sequence[KernelProfile], folder: str) -> str:
    """The whole page of the profiles in ``folder``: healthy kernels, every fault, notes, commands."""
    ordered = sorted(profiles, key=lambda one: (_drift(one.spec.conditions[0]), one.spec.kernel))
    faulty = [one for one in ordered if len(one.spec.conditions) > 1]
    versions = {(v.name, v.version) for one in ordered for v in one.spec.provenance.versions}
    return _PAGE.format(
        folder=folder,
        commands="\n".join(one.spec.provenance.command for one in ordered),
        hardware=", ".join(sorted({one.spec.provenance.hardware for one in ordered})),
        versions=", ".join(f"{name} {version}" for name, version in sorted(versions)),
        healthy=drift_table(profiles),
        faults="\n\n".join(f"### {one.spec.kernel}\n\n{condition_table(one)}" for one in faulty),
        notes="\n".join(_noted(ordered)),
    )


def _noted(profiles: Sequence[KernelProfile]) -> Iterator[str]:
    """Every note once, with the kernels that it was made of."""
    kernels: dict[str, list[str]] = {}
    for profile in profiles:
        for note in profile.spec.notes:
            kernels.setdefault(note, []).append(profile.spec.kernel)
    for note, names in kernels.items():
        yield f"- {'every kernel' if len(names) == len(profiles) > 1 else ', '.join(names)}: {note}"


def condition_table(profile: KernelProfile) -> str:
    """Markdown rows per condition of one profile: mean over slices of KL, TV and flips, and step time."""
    rows = [("condition", "dose", "mean KL", "mean TV", "top-1 flips", "step time"), ("---",) * 6]
    for condition in profile.spec.conditions:
        means = [_mean_over_slices(condition, name) for name in ("kl_mean", "tv_mean", "top1_flip")]
        dose = f"{condition.dose_setting:g} {condition.dose_unit}" if condition.fault != "none" else ""
        dose = condition.dose_unit if condition.fault == "kernel_regression" else dose
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


def _find(condition: Condition, slice_name: str, metric: str) -> MeasuredMetric | None:
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
