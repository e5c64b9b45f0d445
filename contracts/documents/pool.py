"""``KernelPool``: which kernels may serve, with how many replicas and in which role."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from contracts.documents.envelope import Document, Name, Positive, PositiveCount, Sha256, Strict, Uri
from contracts.documents.profile import Fingerprint

Role = Literal["candidate", "serving", "known_good", "reference"]


ServerUrl = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9.\[\]:_-]+$", max_length=300)]


#: An http or https URL, optionally with a path, without user, password, query and fragment.
BaseUrl = Annotated[
    str, Field(pattern=r"^https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~-]+)*/?$", max_length=500)
]
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]


class EngineLimits(Strict):
    """Scheduler limits of one replica (vLLM: max_num_seqs, max_num_batched_tokens, KV blocks)."""

    max_sequences: PositiveCount = 64
    """Most requests in one engine step."""
    max_batch_tokens: PositiveCount = 2048
    """Most tokens in one engine step."""
    kv_blocks: PositiveCount = 4096
    """Number of blocks of the KV cache."""
    block_tokens: PositiveCount = 16
    """Tokens that one block of the KV cache holds."""


#: API group of an ``InferencePool``.
POOL_GROUP: Final = "inference.networking.k8s.io"


class BackendRef(Strict):
    """The Kubernetes Service of a kernel's replicas, or the InferencePool that selects them."""

    group: Literal["", "inference.networking.k8s.io"] = ""
    """API group of the backend: "" for a Service, inference.networking.k8s.io for an InferencePool."""
    kind: Literal["Service", "InferencePool"] = "Service"
    """Kind of the backend: Service or InferencePool."""
    name: Name
    """Name of the Service or the InferencePool."""
    namespace: Name | None = None
    """Namespace of the backend, which must be the pool's own; absent: the pool's namespace."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the Service, required for one; absent for an InferencePool, which has its own target port."""


class PoolKernel(Strict):
    """One kernel of the pool."""

    name: Name
    """Name of the kernel, unique in this pool."""
    profile: Uri
    """Measured ``KernelProfile`` of the kernel: a path, a ``package:`` or an ``oci://`` URI."""
    profile_sha256: Sha256 | None = None
    """SHA-256 of the profile's canonical form, as `selvage contract validate` prints it; the profile and its
    samples are checked wherever the pool is used. Absent: any profile at that URI."""
    replicas: Annotated[int, Field(ge=1, le=1024)]
    """Number of replicas; servers beyond this number are neither scraped nor probed."""
    role: Role
    """Role of the kernel. serving: takes traffic; known_good: target of fallbacks; candidate: awaits a
    promotion; reference: source of the reference log-probabilities, takes no traffic."""
    stage: Literal["shadow", "canary", "active"] = "active"
    """Stage of the kernel. shadow: weight 0; canary: weight capped by the shield; active: no cap."""
    zone: Name | None = None
    """Zone of all replicas of the kernel; absent: none, or one per replica in zones."""
    zones: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1024)] | None = None
    """Zones of the replicas, one per replica; absent: zone holds for all of them."""
    limits: EngineLimits = EngineLimits()
    capacity_rps: Positive | None = None
    """Capacity of one replica, requests per second; absent: derived from the profile's step-time model."""
    fingerprint: Fingerprint | None = None
    """Fingerprint expected of every replica; absent: the profile's fingerprint."""
    backend: BackendRef | None = None
    """Kubernetes Service or InferencePool of the replicas; clusters require it except for the reference."""
    servers: Annotated[tuple[ServerUrl, ...], Field(min_length=1, max_length=1024)] | None = None
    """Addresses of running servers, one per replica, as http://HOST:PORT without path or key; absent:
    none."""

    def zone_of(self, number: int) -> str:
        """Zone of replica ``number``, from 0; "" if none is declared. Numbers beyond the list start over."""
        declared = self.zones or (self.zone or "",)
        return declared[number % len(declared)]


class Home(Strict):
    """The kernel that serves a slice while everything is healthy."""

    slice: Name
    """Name of a slice of the contract."""
    kernel: Name
    """Name of the kernel of this pool that serves the slice; any role but reference."""


class Prometheus(Strict):
    """A Prometheus server, or one with the same HTTP API, that scrapes the servers of this pool."""

    url: BaseUrl
    """Base URL above /api/v1/query, for example https://prometheus.monitoring.svc:9090. Its origin must be
    one that the operator was started with (--prometheus-origin)."""
    scrape_interval_s: Annotated[float, Field(ge=1.0, le=300.0)] = 15.0
    """Time between two scrapes of a server, s; at most half of the contract's stale_after_s."""
    pod_label: LabelName = "pod"
    """Label of the samples that holds the name of the pod."""
    namespace_label: LabelName = "namespace"
    """Label of the samples that holds the namespace of the pod."""


class PoolSpec(Strict):
    """The kernels of a pool, and the home kernel of each slice."""

    kernels: Annotated[tuple[PoolKernel, ...], Field(min_length=1, max_length=64)]
    """Kernels of the pool; exactly one has the role known_good."""
    home: Annotated[tuple[Home, ...], Field(min_length=1, max_length=16)]
    """Home kernels of the slices, one entry per slice."""
    known_good_headroom_ratio: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of the usual load that the ready servers of the known-good kernel must be able to take, above 0
    to 1; below it the operator only warns. Absent: not checked."""
    prometheus: Prometheus | None = None
    """Prometheus from which the operator reads the servers' metrics instead of scraping each server; only
    clusters use it. Absent: servers are scraped."""


class KernelPool(Document):
    """The kernels of one model."""

    kind: Literal["KernelPool"] = "KernelPool"
    spec: PoolSpec
