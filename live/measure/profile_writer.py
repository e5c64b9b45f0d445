"""Writes a measurement as a ``KernelProfile``: the document, its samples file and its prompts file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.assess.samples import KernelSamples, save_samples
from contracts.documents.envelope import FileRef, Metadata
from contracts.documents.profile import (
    Condition,
    KernelProfile,
    MeasuredMetric,
    Memory,
    ProfileSpec,
    Provenance,
    Reference,
    Samples,
    Version,
)
from contracts.loading.files import write_pinned
from contracts.loading.loader import dump_text, load_text
from contracts.metrics import COLUMN_NAMES, METRICS
from contracts.telemetry import Source
from live.measure.measurement import KernelMeasurement, MeasuredCondition
from live.measure.prompts import Prompt

#: Registered metrics that a small model without instruction tuning cannot show.
NOT_MEASURED = (
    "refusal_rate_gap",
    "parseability_gap",
    "ece_gap",
    "reward_trajectory_gap",
    "reference_kl_trajectory_gap",
)
#: Columns with quantiles in the document for fault conditions; the samples file has all columns.
_FAULT_COLUMNS = (
    "kl_mean@full_vocab",
    "tv_mean@full_vocab",
    "linf_max@full_vocab",
    "top1_flip@full_vocab",
    "kl_mean@top_k",
)
_LARGEST_DOCUMENT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileContext:
    """What all profiles of one run have in common."""

    model_name: str
    model_sha256: str
    reference_sha256: str
    golden: FileRef
    prompts_uri: str
    prompts_sha256: str
    command: str
    versions: tuple[tuple[str, str], ...]
    seed: int
    date: str
    reference_name: str = "reference-fp32"
    reference_engine: str = "transformers"
    reference_dtype: str = "float32"


def write_profile(
    folder: Path, measured: KernelMeasurement, prompts: Sequence[Prompt], context: ProfileContext
) -> Path:
    """Write ``<kernel>.npz`` and ``<kernel>.yaml`` into ``folder``; returns the document's path.

    The document is read back before it is written. Raises ValueError above 256 KB.
    """
    name = measured.kernel.name
    digest = save_samples(folder / f"{name}.npz", _samples(measured, prompts))
    document = _document(measured, prompts, context, Samples(uri=f"{name}.npz", sha256=digest))
    text = dump_text(document)
    content = text.encode()
    if len(content) > _LARGEST_DOCUMENT_BYTES:
        raise ValueError(f"profile {name} has {len(content)} bytes, at most {_LARGEST_DOCUMENT_BYTES}")
    target = folder / f"{name}.yaml"
    if load_text(text, str(target)) != document:
        raise ValueError(f"profile {name} does not read back as written")
    write_pinned(target, content)
    return target


def _samples(measured: KernelMeasurement, prompts: Sequence[Prompt]) -> KernelSamples:
    return KernelSamples(
        condition_names=tuple(condition.name for condition in measured.conditions),
        prompt_ids=np.array([prompt.id for prompt in prompts], dtype=np.int64),
        prompt_slice=tuple(prompt.slice for prompt in prompts),
        prompt_split=tuple(prompt.split for prompt in prompts),
        metric_names=COLUMN_NAMES,
        values=np.stack([condition.values for condition in measured.conditions]),
    )


def _document(
    measured: KernelMeasurement, prompts: Sequence[Prompt], context: ProfileContext, samples: Samples
) -> KernelProfile:
    facts = measured.facts
    versions = (*context.versions, (facts.fingerprint.engine, facts.fingerprint.engine_version))
    spec = ProfileSpec(
        kernel=measured.kernel.name,
        description=measured.kernel.description,
        fingerprint=facts.fingerprint,
        reference=Reference(
            name=context.reference_name,
            engine=context.reference_engine,
            dtype=context.reference_dtype,
            log_probs=context.golden,
        ),
        step_time=measured.step_time,
        serving=measured.serving,
        memory=Memory(
            weights_bytes=facts.weights_bytes,
            kv_bytes_per_token=facts.kv_bytes_per_token,
            peak_rss_bytes=measured.peak_bytes,
        ),
        conditions=tuple(_condition(condition, prompts) for condition in measured.conditions),
        samples=samples,
        prompts=FileRef(uri=context.prompts_uri, sha256=context.prompts_sha256),
        provenance=Provenance(
            command=context.command,
            versions=tuple(Version(name=name, version=text) for name, text in sorted(set(versions))),
            hardware=facts.fingerprint.hardware or "unknown",
            model=context.model_name,
            model_sha256=context.model_sha256,
            seed=context.seed,
            date=context.date,
        ),
        not_measured=(*NOT_MEASURED, *(not_by_top_k() if _is_top_k(measured) else ())),
        notes=(*measured.notes, _reference_note(context)),
    )
    return KernelProfile(metadata=Metadata(name=measured.kernel.name), spec=spec)


def _reference_note(context: ProfileContext) -> str:
    return f"Reference log-probabilities ({context.reference_dtype}) sha256 {context.reference_sha256}."


def not_by_top_k() -> tuple[str, ...]:
    """Probe metrics that a list of the most probable tokens cannot provide."""
    return tuple(
        spec.name
        for spec in METRICS.values()
        if spec.source == Source.PROBE and not any(column.endswith("@top_k") for column in spec.columns)
    )


def _is_top_k(measured: KernelMeasurement) -> bool:
    exact = [index for index, name in enumerate(COLUMN_NAMES) if name.endswith("@full_vocab")]
    return bool(np.isnan(measured.conditions[0].values[:, :, exact]).all())


def _condition(condition: MeasuredCondition, prompts: Sequence[Prompt]) -> Condition:
    columns = COLUMN_NAMES if condition.fault == "none" else _FAULT_COLUMNS
    return Condition(
        name=condition.name,
        fault=condition.fault,
        dose_setting=condition.setting,
        dose_unit=condition.unit,
        verified=condition.verified,
        restored_bit_exact=condition.restored,
        step_time_factor=condition.step_time_factor,
        measures=tuple(_measures(condition, prompts, columns)),
    )


def _measures(
    condition: MeasuredCondition, prompts: Sequence[Prompt], columns: Sequence[str]
) -> Iterator[MeasuredMetric]:
    for name in dict.fromkeys(prompt.slice for prompt in prompts):
        rows = [i for i, p in enumerate(prompts) if p.slice == name and p.split == "certify"]
        for column in columns:
            values = condition.values[rows, :, COLUMN_NAMES.index(column)].mean(axis=1)
            values = values[~np.isnan(values)]
            if values.size:
                metric, estimator = column.split("@")
                yield _measure(name, metric, estimator, values)


def _measure(slice_name: str, metric: str, estimator: str, values: NDArray[np.float64]) -> MeasuredMetric:
    p50, p95, p99 = (_short(np.quantile(values, share)) for share in (0.50, 0.95, 0.99))
    return MeasuredMetric.model_validate(
        {
            "slice": slice_name,
            "metric": metric,
            "estimator": estimator,
            "split": "certify",
            "mean": _short(values.mean()),
            "p50": p50,
            "p95": p95,
            "p99": p99,
            "max": _short(values.max()),
            "n": int(values.size),
        }
    )


def _short(value: np.floating | float) -> float:
    """Six significant digits; the samples file has full precision."""
    return float(f"{float(value):.6g}")
