"""``PolicyArtifact``: manifest of a trained policy with the certificate of its meta-contract suite."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import (
    Count,
    Document,
    FileRef,
    Name,
    NonNegative,
    PositiveCount,
    Sha256,
    Strict,
    Text,
    Uri,
)
from contracts.documents.profile import Version


class TrainingRun(Strict):
    """One seed of the training, whether its policy was shipped or not."""

    seed: Count
    env_steps: Count
    """Environment steps taken, warm start included."""
    chosen_at: Count
    """Update after which the seed's weights were kept; 0: the warm start."""
    score: float
    """On the validation scenarios, higher is better: the recipe's reward per tick."""
    shipped: bool = False


class ComparedBaseline(Strict):
    """A policy without learning, with its own detector, on the same validation scenarios."""

    configuration: Text
    score: float
    """As ``TrainingRun.score``."""
    gain: float
    """Score of the shipped seed minus this one, paired by episode, with 95 % bootstrap limits."""
    gain_low: float
    gain_high: float


class Training(Strict):
    """How the policy was trained."""

    command: Text
    seeds: Annotated[tuple[Count, ...], Field(min_length=1, max_length=64)]
    recipe_sha256: Sha256 | None = None
    """Of the canonical form of the ``TrainingRecipe``; absent where no recipe was used."""
    data: Annotated[tuple[FileRef, ...], Field(max_length=64)] = ()
    """Documents that decided what was trained on: scenarios, pools, contract, logged data sets."""
    runs: Annotated[tuple[TrainingRun, ...], Field(max_length=64)] = ()
    """Every seed, not the best alone."""
    baselines: Annotated[tuple[ComparedBaseline, ...], Field(max_length=8)] = ()
    """What the shipped seed is compared with."""
    versions: Annotated[tuple[Version, ...], Field(max_length=64)] = ()


class CertifiedClause(Strict):
    """Outcome of one meta-clause on its suite: the limit ``ci_high`` decides, not the value."""

    id: Name
    metric: Name
    judged_on: Literal["incidents", "quiet"]
    method: Literal[
        "exact_poisson",
        "clustered_bootstrap",
        "exact_binomial",
        "order_statistic",
        "count",
        "capped_hall",
        "simultaneous_t",
    ]
    """How ``ci_high``, the upper end of a two-sided 95 % interval, comes about; ``count``: a law, counted;
    ``capped_hall``: one-sided, true of all scenarios at once, a gain counted up to the threshold;
    ``simultaneous_t``: so with every gain in full, of certificates from before."""
    threshold: NonNegative
    value: NonNegative | None = None
    """Absent: there was nothing to judge, which is no pass."""
    ci_high: NonNegative | None = None
    n: Count
    """Observations behind it: events, incidents, episodes or decisions."""
    worst: Text | None = None
    """Scenario with the highest limit, of a clause that is kept in every single one."""
    passed: bool


class CertifiedRange(Strict):
    """What one fact of a fleet was in the worlds of the suites."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """As ``policies.certify.coverage`` names it."""
    low: float
    high: float


class Certificate(Strict):
    """The suites' verdict on one policy; an artefact without a passing one is refused."""

    subject: Text
    """The policy as it was run, for people."""
    subject_sha256: Sha256
    """What was certified: hash over ONNX file, encoding version and rules, or over the text of a built-in
    policy."""
    rules_sha256: Sha256 | None = None
    """Of a learned policy: over the fixed rules beside the network and every setting of the configuration."""
    meta_contract_sha256: Sha256
    suite_sha256: Sha256
    quiet_suite_sha256: Sha256 | None = None
    worlds_sha256: Sha256 | None = None
    """Over every scenario, contract and profile that the suites lead to."""
    inputs_sha256: Sha256 | None = None
    """Over the same with pools, traces and the code of plug-ins; absent: certified before it was kept."""
    sources_sha256: Sha256 | None = None
    """Over the sources that ran the suites; absent: certified before it was kept."""
    covers: Annotated[tuple[CertifiedRange, ...], Field(min_length=1, max_length=1024)] | None = None
    """Ranges of the suites' worlds; a fleet outside is not spoken of. Absent: not recorded."""
    evidence_sha256: Sha256 | None = None
    """Of the file of all episodes, from which every clause can be judged again; absent: not kept."""
    command: Text
    code_version: Text
    seeds: PositiveCount
    episodes: PositiveCount
    quiet_slice_days: NonNegative = 0.0
    passed: bool
    clauses: Annotated[tuple[CertifiedClause, ...], Field(min_length=1, max_length=64)]


class RecurrentState(Strict):
    """Numbers that a recurrent network remembers of a fleet from tick to tick; zero before the first."""

    hidden: PositiveCount
    cell: PositiveCount


class ArtifactSpec(Strict):
    """One trained policy."""

    description: Text
    onnx: FileRef
    encoding_version: PositiveCount
    """Version of the observation and action encoding."""
    configuration: Literal["gym"] | None = None
    """gym: another library trained it on the environment, and it drives as there; absent: `learned`."""
    recurrent: RecurrentState | None = None
    """Absent: the network remembers nothing of its own."""
    training: Training
    meta_contract: Uri | None = None
    """``MetaContract`` that the certificate must pass; absent: the shipped one. Which one a route
    accepts, its ``RoutePolicy`` says."""
    certificate: Certificate | None = None
    """Absent: not certified, so refused wherever it would drive."""


class PolicyArtifact(Document):
    """A trained policy."""

    kind: Literal["PolicyArtifact"] = "PolicyArtifact"
    spec: ArtifactSpec
