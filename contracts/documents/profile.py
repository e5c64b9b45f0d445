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
    Positive,
    PositiveCount,
    Sha256,
    Strict,
    Text,
    Uri,
)
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime

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
    """Name of the kernel."""
    engine: Words = ""
    """Engine that computed them; empty: not known."""
    dtype: Words = ""
    """Data type of weights and activations; empty: not known."""
    log_probs: FileRef | None = None
    """File of the golden log-probabilities; absent: not kept."""


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
    """Slice of the prompts."""
    metric: MetricName
    """Name of the metric."""
    estimator: Estimator
    """How the metric was estimated from what the server answers."""
    split: Literal["certify", "probe", "traffic"] = "certify"
    """Purpose of the prompts: certification, probes, or simulated traffic."""
    mean: float
    """Mean over prompts, in the metric's unit."""
    p50: float
    """Median over prompts, in the metric's unit."""
    p95: float
    """95th percentile over prompts, in the metric's unit."""
    p99: float
    """99th percentile over prompts, in the metric's unit."""
    max: float
    """Largest value, in the metric's unit."""
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
    """True: after the undo the kernel answered bit for bit as before."""
    step_time_factor: Positive = 1.0
    """Engine step time as a multiple of the healthy one."""
    measures: Annotated[tuple[MeasuredMetric, ...], Field(max_length=4096)]
    """Metrics measured in this condition."""


class Samples(Strict):
    """File with the values by condition, prompt, repeat and metric."""

    uri: Uri
    """Place of the file."""
    sha256: Sha256
    """SHA-256 of the file's bytes."""
    format: Literal["npz"] = "npz"
    """Format of the file: NumPy arrays without pickled objects."""


class Version(Strict):
    """Version of one installed package."""

    name: Words
    """Name of the package."""
    version: Words
    """Its version."""


class Provenance(Strict):
    """What is needed to repeat the measurement."""

    command: Text
    """Command that measured."""
    versions: Annotated[tuple[Version, ...], Field(max_length=64)]
    """Versions of the packages that took part."""
    hardware: Text
    """Processor or accelerator, as text."""
    model: Words = ""
    """Name of the model; empty: not known."""
    model_sha256: Sha256
    """SHA-256 of the checkpoint's files."""
    seed: Count
    """Seed of every random draw."""
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}(T[0-9:.]+(Z|[+-]\d{2}:\d{2}))?$")]
    """Day of the measurement, or its time with a zone (ISO 8601)."""


class ProfileSpec(Strict):
    """Measurements of one kernel."""

    kernel: Name
    """Name of the measured kernel."""
    description: Annotated[str, Field(max_length=4000)] = ""
    """What the kernel is, for readers."""
    fingerprint: Fingerprint
    """What tells this kernel from others."""
    reference: Reference
    """Kernel that it is compared with."""
    step_time: StepTime | None = None
    """Step-time model; absent: not measured, so the kernel can be judged but not simulated."""
    serving: ServingPath | None = None
    """Overheads of the serving path; absent: not measured, and simulated latencies are those of engine steps
    alone."""
    memory: Memory
    """Memory of one replica."""
    conditions: Annotated[tuple[Condition, ...], Field(min_length=1, max_length=64)]
    """Measurements by condition, the healthy one among them."""
    samples: Samples
    """File with the values by prompt."""
    prompts: FileRef
    """File of the golden prompts."""
    provenance: Provenance
    """What is needed to repeat the measurement."""
    not_measured: Annotated[tuple[MetricName, ...], Field(max_length=128)] = ()
    """Metrics that the profile does not measure."""
    notes: Annotated[tuple[Text, ...], Field(max_length=64)] = ()
    """Remarks of the measurement, for readers."""


class KernelProfile(Document):
    """A measured kernel."""

    kind: Literal["KernelProfile"] = "KernelProfile"
    spec: ProfileSpec
