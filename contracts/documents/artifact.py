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
    """One training seed, whether or not its policy was shipped."""

    seed: Count
    """Random seed of the training."""
    env_steps: Count
    """Environment steps of the seed, warm start included, a count."""
    chosen_at: Count
    """Number of the update whose weights were kept; 0: the warm start."""
    score: float
    """Mean reward per tick on the validation scenarios, as the recipe defines it; higher is better."""
    shipped: bool = False
    """True: the policy of this seed is the shipped one."""


class ComparedBaseline(Strict):
    """A policy without learning, with its own detector, run on the same validation scenarios."""

    configuration: Text
    """Policy configuration of the baseline, as in a suite."""
    score: float
    """Score of the baseline, as ``TrainingRun.score``."""
    gain: float
    """Score of the shipped seed minus the baseline's, paired by episode."""
    gain_low: float
    """Lower 95 % bootstrap limit of ``gain``."""
    gain_high: float
    """Upper 95 % bootstrap limit of ``gain``."""


class Training(Strict):
    """How the policy was trained."""

    command: Text
    """Command that trained the policy."""
    seeds: Annotated[tuple[Count, ...], Field(min_length=1, max_length=64)]
    """Random seeds of the training."""
    recipe_sha256: Sha256 | None = None
    """SHA-256 of the canonical form of the ``TrainingRecipe``; absent: no recipe was used."""
    data: Annotated[tuple[FileRef, ...], Field(max_length=64)] = ()
    """Documents used in training: scenarios, pools, contract, logged data sets."""
    runs: Annotated[tuple[TrainingRun, ...], Field(max_length=64)] = ()
    """All training seeds, not only the best."""
    baselines: Annotated[tuple[ComparedBaseline, ...], Field(max_length=8)] = ()
    """Baselines that the shipped seed is compared with."""
    versions: Annotated[tuple[Version, ...], Field(max_length=64)] = ()
    """Versions of installed packages during training."""


class CertifiedClause(Strict):
    """Outcome of one meta-clause on its suite, decided by the limit ``ci_high``, not by the value."""

    id: Name
    """Name of the clause in the meta-contract."""
    metric: Name
    """Metric that the clause limits."""
    judged_on: Literal["incidents", "quiet"]
    """Suite on which the clause was judged."""
    method: Literal[
        "exact_poisson",
        "clustered_bootstrap",
        "exact_binomial",
        "order_statistic",
        "count",
        "capped_hall",
        "simultaneous_t",
    ]
    """Method of ``ci_high``, the upper end of a two-sided 95 % interval. ``count``: violations, counted
    exactly; ``capped_hall``: one-sided, valid for all scenarios at once, with gains counted up to the
    threshold; ``simultaneous_t``: the same with gains in full, in older certificates only."""
    threshold: NonNegative
    """Limit on the metric, in the metric's unit."""
    value: NonNegative | None = None
    """Point estimate, in the metric's unit; absent: there was nothing to judge, and the clause does not
    pass."""
    ci_high: NonNegative | None = None
    """Confidence limit of the value, in the metric's unit; absent: there was nothing to judge."""
    n: Count
    """Number of observations behind the outcome: events, incidents, episodes or decisions."""
    worst: Text | None = None
    """Scenario with the highest limit, for a clause that must hold in every scenario; absent for others."""
    passed: bool
    """True: ``ci_high`` keeps the threshold."""


class CertifiedRange(Strict):
    """Range of one fact of a fleet over the worlds of the suites."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the fact, as in ``policies.certify.coverage``."""
    low: float
    """Smallest value of the fact in the worlds of the suites."""
    high: float
    """Largest value of the fact in the worlds of the suites."""


class Certificate(Strict):
    """Verdict of the suites on one policy; an artefact without a passing certificate is refused."""

    subject: Text
    """Name of the policy as it was run, for people."""
    subject_sha256: Sha256
    """SHA-256 of what was certified: over ONNX file, encoding version and rules, or over the text of a
    built-in policy."""
    rules_sha256: Sha256 | None = None
    """SHA-256 over the fixed rules beside the network and all settings of the configuration; absent for a
    built-in policy."""
    meta_contract_sha256: Sha256
    """SHA-256 of the meta-contract's canonical form."""
    suite_sha256: Sha256
    """SHA-256 of the suite of incidents, in canonical form."""
    quiet_suite_sha256: Sha256 | None = None
    """SHA-256 of the quiet suite, in canonical form; absent: not run."""
    worlds_sha256: Sha256 | None = None
    """SHA-256 over every scenario, contract and profile that the suites refer to; absent: not recorded."""
    inputs_sha256: Sha256 | None = None
    """SHA-256 over the suites' scenarios, contracts, profiles, pools, traces and plug-in code; absent in
    older certificates."""
    sources_sha256: Sha256 | None = None
    """SHA-256 over the sources that ran the suites; absent in older certificates."""
    covers: Annotated[tuple[CertifiedRange, ...], Field(min_length=1, max_length=1024)] | None = None
    """Ranges of the facts of the suites' worlds; a fleet outside them is not covered. Absent: not
    recorded."""
    evidence_sha256: Sha256 | None = None
    """SHA-256 of the file of all episodes, from which every clause can be judged again; absent: not kept."""
    command: Text
    """Command that certified the policy."""
    code_version: Text
    """Version of the code that ran the suites."""
    seeds: PositiveCount
    """Seeds of the suite of incidents, a count."""
    episodes: PositiveCount
    """Episodes of all suites, a count."""
    quiet_slice_days: NonNegative = 0.0
    """Simulated time on the quiet suite, slice-days."""
    passed: bool
    """True: every clause passed."""
    clauses: Annotated[tuple[CertifiedClause, ...], Field(min_length=1, max_length=64)]
    """Outcomes of the clauses."""


class RecurrentState(Strict):
    """Sizes of a recurrent network's state, which is kept per fleet from tick to tick and starts at zero."""

    hidden: PositiveCount
    """Length of the hidden state, a count."""
    cell: PositiveCount
    """Length of the cell state, a count."""


class ArtifactSpec(Strict):
    """A trained policy: its network, its training and its certificate."""

    description: Text
    """What the policy is, as text for people."""
    onnx: FileRef
    """ONNX file of the network."""
    encoding_version: PositiveCount
    """Version of the observation and action encoding that the network expects."""
    configuration: Literal["gym"] | None = None
    """gym: trained by another library on the environment, and run with the environment's rules; absent:
    `learned`."""
    recurrent: RecurrentState | None = None
    """Sizes of the recurrent state; absent: the network has none."""
    training: Training
    """How the policy was trained."""
    meta_contract: Uri | None = None
    """``MetaContract`` that the certificate must pass; absent: the shipped one. A route's ``RoutePolicy``
    says which one the route accepts."""
    certificate: Certificate | None = None
    """Certificate of the policy; absent: not certified, and refused on every route."""


class PolicyArtifact(Document):
    """A trained policy."""

    kind: Literal["PolicyArtifact"] = "PolicyArtifact"
    spec: ArtifactSpec
