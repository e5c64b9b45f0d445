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

#: Name of the condition that all others are compared with.
HEALTHY = "healthy"
Words = Annotated[str, Field(max_length=400)]


class Fingerprint(Strict):
    """Properties that tell kernels apart; empty text where the engine does not report one."""

    engine: Words
    """Name of the engine, for example vllm."""
    engine_version: Words
    """Version of the engine, as the engine reports it."""
    dtype: Words
    """Data type of weights and activations."""
    quantization: Words = "none"
    """Quantisation of the weights; none: as trained."""
    kv_cache_dtype: Words = "auto"
    """Data type of the KV cache; auto: the same as dtype."""
    attention_backend: Words = ""
    """Attention backend that the engine chose."""
    compile_mode: Words = ""
    """Mode in which the engine compiles its graph."""
    hardware: Words = ""
    """Model of the accelerator or the processor."""
    isa: Words = ""
    """Instruction set that the engine used."""
    system_fingerprint: Words = ""
    """Value of system_fingerprint in the server's answers."""


class Reference(Strict):
    """The kernel that the golden log-probabilities came from."""

    name: Name
    engine: Words = ""
    dtype: Words = ""
    log_probs: FileRef | None = None
    """File of the golden log-probabilities; absent: not kept."""


class StepPoint(Strict):
    """One measured engine step, or the sums over the steps of one timed request."""

    prefill_tokens: Count
    decode_sequences: Count
    context_tokens: Count
    measured_ms: NonNegative
    steps: PositiveCount | None = None
    """Number of engine steps in this point; absent: one."""
    sequences: PositiveCount | None = None
    """Sequences of the timed request; absent where the engine itself was timed."""


class StepHalfWidths(Strict):
    """Half-widths of the 95 % confidence intervals of the coefficients."""

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
    """Time of a step without tokens, ms."""
    per_prefill_token_ms: NonNegative
    """Time that each prefilled token adds, ms."""
    per_decode_sequence_ms: NonNegative
    """Time that each decoded sequence adds, ms."""
    per_context_token_ms: NonNegative
    """Time that each token of context adds, ms."""
    relative_error: NonNegative
    """Median of |fitted - measured| / measured over the measured points."""
    measured_points: Count
    """Number of measured points behind the fit."""
    points: Annotated[tuple[StepPoint, ...], Field(max_length=512)] = ()
    half_widths: StepHalfWidths | None = None
    """Uncertainty of the coefficients; absent in older profiles."""
    predictions: Annotated[tuple[StepPrediction, ...], Field(max_length=16)] | None = None
    dropped_points: Count | None = None
    """Number of points left out because their measured time was zero; absent in older profiles."""
    per_request_ms: NonNegative | None = None
    """Time that a timed request takes beside its steps (client, network, server interface), ms; absent: not
    fitted."""
    per_sequence_ms: NonNegative | None = None
    """Time that each sequence of a timed request adds to per_request_ms, ms; absent: not fitted."""


class ServingPoint(Strict):
    """Medians over concurrent streamed requests, by the client and by the engine's histograms."""

    concurrent: PositiveCount
    prompt_tokens: Count
    answer_tokens: PositiveCount
    first_ms: NonNegative
    inter_token_ms: NonNegative
    engine_first_ms: NonNegative | None = None
    """Queue and prefill time by the engine's own histograms, ms; absent: the server exports none."""
    engine_inter_token_ms: NonNegative | None = None
    """Time between tokens by the engine's own histograms, ms; absent: the server exports none."""


class ServingHalfWidths(Strict):
    """Half-widths of the 95 % confidence intervals of the terms."""

    request_overhead_ms: NonNegative
    step_overhead_ms: NonNegative
    token_overhead_ms: NonNegative


class ServingPath(Strict):
    """What serving adds to the engine's steps: API process, tokeniser, detokeniser, stream, shared cores.

    The request overhead delays tokens; the other two occupy the engine's loop and widen gaps between tokens.
    """

    request_overhead_ms: NonNegative = 0.0
    """Delay of a request's first and last token, ms; the engine does other work meanwhile."""
    step_overhead_ms: NonNegative = 0.0
    """Time between one engine step and the next, ms."""
    token_overhead_ms: NonNegative = 0.0
    """Time that each streamed token adds to the step that makes it, ms."""
    half_widths: ServingHalfWidths | None = None
    outside_engine_ratio: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of ``request_overhead_ms`` that the engine's own histograms do not include, 0..1; absent: not
    known."""
    points: Annotated[tuple[ServingPoint, ...], Field(max_length=64)] = ()


class Memory(Strict):
    """Memory of one replica, bytes."""

    weights_bytes: Count
    """Size of the weights, bytes."""
    kv_bytes_per_token: Count
    """Size of the KV cache per token, bytes."""
    peak_rss_bytes: Count
    """Largest resident memory of the server process, bytes."""


class MeasuredMetric(Strict):
    """Distribution of one metric on one slice over prompts, in the metric's unit."""

    slice: Name
    metric: MetricName
    estimator: Estimator
    split: Literal["certify", "probe", "traffic"] = "certify"
    """Purpose of the prompts: certification, probes, or simulated traffic."""
    mean: float
    p50: float
    p95: float
    p99: float
    max: float
    n: PositiveCount
    """Number of prompts."""


class Condition(Strict):
    """The kernel in one condition: healthy, or with a fault at one dose."""

    name: Name
    """Name of the condition, unique in this profile."""
    fault: Name = "none"
    """Kind of the fault; ``none`` when healthy."""
    dose_setting: float = 0.0
    """Dose as given to the injector, for example bits; 0 when healthy."""
    dose_unit: Words = ""
    """Unit of the dose, as text."""
    verified: bool
    """True: a functional canary confirmed that the injection took place."""
    restored_bit_exact: bool
    step_time_factor: Positive = 1.0
    """Engine step time as a multiple of the healthy one."""
    measures: Annotated[tuple[MeasuredMetric, ...], Field(max_length=4096)]
    """Metrics measured in this condition."""


class Samples(Strict):
    """File with the values by condition, prompt, repeat and metric."""

    uri: Uri
    sha256: Sha256
    """SHA-256 of the file's bytes."""
    format: Literal["npz"] = "npz"


class Version(Strict):
    """Version of one installed package."""

    name: Words
    version: Words


class Provenance(Strict):
    """What is needed to repeat the measurement."""

    command: Text
    versions: Annotated[tuple[Version, ...], Field(max_length=64)]
    hardware: Text
    model: Words = ""
    model_sha256: Sha256
    seed: Count
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}(T[0-9:.]+(Z|[+-]\d{2}:\d{2}))?$")]


class ProfileSpec(Strict):
    """Measurements of one kernel."""

    kernel: Name
    """Name of the measured kernel."""
    description: Annotated[str, Field(max_length=4000)] = ""
    fingerprint: Fingerprint
    reference: Reference
    step_time: StepTime | None = None
    """Step-time model; absent: not measured, so the kernel can be judged but not simulated."""
    serving: ServingPath | None = None
    """Overheads of the serving path; absent: not measured, and simulated latencies are those of engine steps
    alone."""
    memory: Memory
    conditions: Annotated[tuple[Condition, ...], Field(min_length=1, max_length=64)]
    samples: Samples
    prompts: FileRef
    """File of the golden prompts."""
    provenance: Provenance
    not_measured: Annotated[tuple[MetricName, ...], Field(max_length=128)] = ()
    """Metrics that the profile does not measure."""
    notes: Annotated[tuple[Text, ...], Field(max_length=64)] = ()


class KernelProfile(Document):
    """A measured kernel."""

    kind: Literal["KernelProfile"] = "KernelProfile"
    spec: ProfileSpec
