"""``KernelProfile``: what was *measured* of one kernel, healthy and at every fault dose.

The document holds quantiles and models; values per prompt and repeat are in the samples file
(``.npz``, no pickle), pinned by sha256.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.contract import Estimator
from contracts.documents.envelope import (
    Count,
    Document,
    FileRef,
    MetricName,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Sha256,
    Strict,
    Text,
    Uri,
)

#: The condition that every other one is compared with.
HEALTHY = "healthy"
Words = Annotated[str, Field(max_length=400)]


class Fingerprint(Strict):
    """What tells one kernel from another; empty text where the engine does not say."""

    engine: Words
    """Name of the engine, for example vllm."""
    engine_version: Words
    """As the engine states it."""
    dtype: Words
    """Of weights and activations."""
    quantization: Words = "none"
    """Of the weights; none: as trained."""
    kv_cache_dtype: Words = "auto"
    """Of the KV cache; auto: the dtype."""
    attention_backend: Words = ""
    """That the engine chose."""
    compile_mode: Words = ""
    """How the engine compiles its graph."""
    hardware: Words = ""
    """Of the accelerator or the processor."""
    isa: Words = ""
    """Instruction set that was used."""
    system_fingerprint: Words = ""
    """As answers of the server state it."""


class Reference(Strict):
    """The kernel that golden log-probabilities came from."""

    name: Name
    engine: Words = ""
    dtype: Words = ""
    log_probs: FileRef | None = None


class StepPoint(Strict):
    """One measured engine step, or the steps of one timed request: then its work is the sum over them."""

    prefill_tokens: Count
    decode_sequences: Count
    context_tokens: Count
    measured_ms: NonNegative
    steps: PositiveCount | None = None
    """Engine steps in it; absent: one."""
    sequences: PositiveCount | None = None
    """Sequences of the timed request; absent where the engine itself was timed."""


class StepHalfWidths(Strict):
    """How far each coefficient may be off, either way, with 95 % confidence."""

    base_ms: NonNegative
    per_prefill_token_ms: NonNegative
    per_decode_sequence_ms: NonNegative
    per_context_token_ms: NonNegative


class StepPrediction(Strict):
    """The model's step time at one operating point, with its half-width at 95 % confidence."""

    prefill_tokens: Count
    decode_sequences: Count
    context_tokens: Count
    predicted_ms: NonNegative
    half_width_ms: NonNegative


class StepTime(Strict):
    """Time of one engine step, ms: base + per token prefilled + per sequence decoded + per context token."""

    base_ms: NonNegative
    per_prefill_token_ms: NonNegative
    per_decode_sequence_ms: NonNegative
    per_context_token_ms: NonNegative
    relative_error: NonNegative
    """Median of |fitted - measured| / measured over the measured points."""
    measured_points: Count
    points: Annotated[tuple[StepPoint, ...], Field(max_length=512)] = ()
    half_widths: StepHalfWidths | None = None
    """Absent in profiles that were measured before uncertainty was."""
    predictions: Annotated[tuple[StepPrediction, ...], Field(max_length=16)] | None = None
    dropped_points: Count | None = None
    """Points that took no time by the clock, and count for nothing."""
    per_request_ms: NonNegative | None = None
    """What a timed request takes beside its steps: client, network, the server's own interface."""
    per_sequence_ms: NonNegative | None = None
    """What each sequence of a timed request adds to that."""


class ServingPoint(Strict):
    """Streamed requests timed through the server, so many at once: medians, and what engines say of them."""

    concurrent: PositiveCount
    prompt_tokens: Count
    answer_tokens: PositiveCount
    first_ms: NonNegative
    inter_token_ms: NonNegative
    engine_first_ms: NonNegative | None = None
    """From the engine's own histograms, queue and prefill; absent where the server exports none."""
    engine_inter_token_ms: NonNegative | None = None


class ServingHalfWidths(Strict):
    """How far each term may be off, either way, with 95 % confidence."""

    request_overhead_ms: NonNegative
    step_overhead_ms: NonNegative
    token_overhead_ms: NonNegative


class ServingPath(Strict):
    """What serving adds to the engine's steps: API process, tokeniser, detokeniser, stream, shared cores.

    The first delays; the other two make tokens come further apart, so they hold the engine's loop.
    """

    request_overhead_ms: NonNegative = 0.0
    """By which a request's first and last token come later; the engine does other work meanwhile."""
    step_overhead_ms: NonNegative = 0.0
    """Between one step and the next."""
    token_overhead_ms: NonNegative = 0.0
    """Of each token that is streamed, in the step that makes it."""
    half_widths: ServingHalfWidths | None = None
    outside_engine_ratio: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of ``request_overhead_ms`` that the engine's own histograms do not know of."""
    points: Annotated[tuple[ServingPoint, ...], Field(max_length=64)] = ()


class Memory(Strict):
    """Bytes of one replica."""

    weights_bytes: Count
    kv_bytes_per_token: Count
    peak_rss_bytes: Count


class MeasuredMetric(Strict):
    """Distribution over prompts of one metric on one slice, in the metric's unit."""

    slice: Name
    metric: MetricName
    estimator: Estimator
    split: Literal["certify", "probe", "traffic"] = "certify"
    mean: float
    p50: float
    p95: float
    p99: float
    max: float
    n: PositiveCount


class Condition(Strict):
    """The kernel in one state: healthy, or a fault at one dose."""

    name: Name
    fault: Name = "none"
    """Fault kind; ``none`` when healthy."""
    dose_setting: float = 0.0
    """What the injector was told, e.g. bits; 0 when healthy."""
    dose_unit: Words = ""
    verified: bool
    """A functional canary saw the injection happen."""
    restored_bit_exact: bool
    step_time_factor: Positive = 1.0
    measures: Annotated[tuple[MeasuredMetric, ...], Field(max_length=4096)]


class Samples(Strict):
    """The values per condition, prompt, repeat and metric."""

    uri: Uri
    sha256: Sha256
    format: Literal["npz"] = "npz"


class Version(Strict):
    """One installed package."""

    name: Words
    version: Words


class Provenance(Strict):
    """How to measure this again."""

    command: Text
    versions: Annotated[tuple[Version, ...], Field(max_length=64)]
    hardware: Text
    model: Words = ""
    model_sha256: Sha256
    seed: Count
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}(T[0-9:.]+(Z|[+-]\d{2}:\d{2}))?$")]


class ProfileSpec(Strict):
    """One kernel, measured."""

    kernel: Name
    description: Annotated[str, Field(max_length=4000)] = ""
    fingerprint: Fingerprint
    reference: Reference
    step_time: StepTime | None = None
    """Absent where it was not measured: such a kernel can be judged, but not simulated."""
    serving: ServingPath | None = None
    """Absent where it was not measured: latencies are then those of engine steps alone."""
    memory: Memory
    conditions: Annotated[tuple[Condition, ...], Field(min_length=1, max_length=64)]
    samples: Samples
    prompts: FileRef
    provenance: Provenance
    not_measured: Annotated[tuple[MetricName, ...], Field(max_length=128)] = ()
    notes: Annotated[tuple[Text, ...], Field(max_length=64)] = ()


class KernelProfile(Document):
    """A measured kernel."""

    kind: Literal["KernelProfile"] = "KernelProfile"
    spec: ProfileSpec
