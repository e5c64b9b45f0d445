"""``KernelPool``: which kernels may serve, with how many replicas and in which role."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from contracts.documents.envelope import Document, Name, Positive, PositiveCount, Sha256, Strict, Uri
from contracts.documents.profile import Fingerprint

Role = Literal["candidate", "serving", "known_good", "reference"]


ServerUrl = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9.\[\]:_-]+$", max_length=300)]


#: http or https, with a path at most: no user and password, no query, no fragment.
BaseUrl = Annotated[
    str, Field(pattern=r"^https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~-]+)*/?$", max_length=500)
]
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]


class EngineLimits(Strict):
    """Scheduler limits of one replica (vLLM: max_num_seqs, max_num_batched_tokens, KV blocks)."""

    max_sequences: PositiveCount = 64
    """Requests in one engine step."""
    max_batch_tokens: PositiveCount = 2048
    """Tokens in one engine step."""
    kv_blocks: PositiveCount = 4096
    """Blocks of the KV cache."""
    block_tokens: PositiveCount = 16
    """Tokens of one block."""


#: API group of an ``InferencePool``.
POOL_GROUP: Final = "inference.networking.k8s.io"


class BackendRef(Strict):
    """The Kubernetes Service of a kernel's replicas, or the InferencePool that selects them."""

    group: Literal["", "inference.networking.k8s.io"] = ""
    """Of the API: "" for a Service, inference.networking.k8s.io for an InferencePool."""
    kind: Literal["Service", "InferencePool"] = "Service"
    """Service or InferencePool."""
    name: Name
    """Of the Service or the InferencePool."""
    namespace: Name | None = None
    """Must be the pool's own; absent: that one."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Of the Service; an InferencePool has a target port of its own."""


class PoolKernel(Strict):
    """One kernel of the pool."""

    name: Name
    """Its own in this pool."""
    profile: Uri
    """Its measured ``KernelProfile``: a path, a ``package:`` or an ``oci://`` URI."""
    profile_sha256: Sha256 | None = None
    """Of the profile's canonical form, as `selvage contract validate` prints it; it and the samples that it
    pins are then compared wherever the pool is put to work. Absent: any profile at that place."""
    replicas: Annotated[int, Field(ge=1, le=1024)]
    """Places for servers; more servers than this are neither scraped nor probed."""
    role: Role
    """serving takes traffic, known_good is fallen back to, candidate waits for a promotion, reference says
    what is right."""
    stage: Literal["shadow", "canary", "active"] = "active"
    """shadow: weight 0; canary: a capped weight; active: no cap of its own."""
    zone: Name | None = None
    """One zone for all replicas."""
    zones: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1024)] | None = None
    """Or one per replica."""
    limits: EngineLimits = EngineLimits()
    capacity_rps: Positive | None = None
    """Per replica; absent: derived from the profile's step-time model."""
    fingerprint: Fingerprint | None = None
    """Expected of every replica; absent: the profile's."""
    backend: BackendRef | None = None
    servers: Annotated[tuple[ServerUrl, ...], Field(min_length=1, max_length=1024)] | None = None
    """Addresses of running servers, one per replica, without a path or a key: http://HOST:PORT."""

    def zone_of(self, number: int) -> str:
        """Zone of replica ``number``, from 0; "" where none is declared. Beyond the list it begins anew."""
        declared = self.zones or (self.zone or "",)
        return declared[number % len(declared)]


class Home(Strict):
    """The kernel that serves a slice when all is well."""

    slice: Name
    """A slice of the contract."""
    kernel: Name
    """A serving or known-good kernel of this pool."""


class Prometheus(Strict):
    """A Prometheus, or a server with its HTTP API, that scrapes the servers of this pool."""

    url: BaseUrl
    """Where /api/v1/query lies below, for example https://prometheus.monitoring.svc:9090; of an origin that
    the operator was started with (--prometheus-origin)."""
    scrape_interval_s: Annotated[float, Field(ge=1.0, le=300.0)] = 15.0
    """How often it scrapes the servers; at most half of the contract's stale_after_s."""
    pod_label: LabelName = "pod"
    """Label that it gives to samples with the name of their pod."""
    namespace_label: LabelName = "namespace"
    """Label with the namespace of their pod."""


class PoolSpec(Strict):
    """The kernels of a pool, and the home kernel of each slice."""

    kernels: Annotated[tuple[PoolKernel, ...], Field(min_length=1, max_length=64)]
    """Builds that may serve; exactly one is known good."""
    home: Annotated[tuple[Home, ...], Field(min_length=1, max_length=16)]
    """One entry for each slice."""
    known_good_headroom_ratio: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of the usual load, above 0 to 1, that ready servers of the known-good kernel must be able to
    take; below it there is a warning and no other decision. Absent: it is not checked."""
    prometheus: Prometheus | None = None
    """A Prometheus from which the operator of a cluster reads the metrics of servers, instead of scraping
    each; other worlds scrape. Absent: servers are scraped."""


class KernelPool(Document):
    """The kernels of one model."""

    kind: Literal["KernelPool"] = "KernelPool"
    spec: PoolSpec
