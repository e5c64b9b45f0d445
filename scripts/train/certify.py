"""Run the certification suites of a meta-contract on one policy and make its certificate.

The policy drives by itself, behind the shield, while the supervisor only counts (``watch_only``): a
certificate must not cover the baseline that would have taken over. Same policy, suites and seeds give
the same certificate except for the latency of decisions, which is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, product
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.meta import CompiledMeta, compile_meta
from contracts.documents import MetaContract, Suite
from contracts.documents.artifact import Certificate, CertifiedRange
from contracts.errors import DocumentError, refusal
from contracts.loading.files import canonical_sha256
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from contracts.plugins import loaded_sha256
from contracts.units import SECONDS_PER_DAY
from policies.certify.certificate import CertificationEvidence, EpisodeEvidence, judge_clauses
from policies.certify.coverage import fleet_facts, ranges
from policies.certify.evidence import evidence_text, text_sha256
from scripts.e5.run.jobs import compiled
from scripts.e5.suite import SuiteEntry, expand_suite, load_suite
from scripts.partial_results import KeptResults, world_facts
from scripts.provenance import git_sha, package_version, sources_sha256
from scripts.setup.warm import warm
from scripts.train.certify_parts import CertificationPart, Still, finished_parts, make, run_parts
from scripts.train.certify_time import CertificationTime
from scripts.train.decision_time import decisions_ms
from scripts.workers import Workers
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.traffic import declared_load_ratio

#: Fleets in lock-step; changes no result.
BATCH = 72

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificationRequest:
    """The policy, and the amount of evidence. seeds, quiet_days: None for the meta-contract's numbers."""

    spec: str
    subject: str
    subject_sha256: str
    command: str
    rules_sha256: str | None = None
    meta_uri: str = SHIPPED_META
    seeds: int | None = None
    quiet_days: float | None = None
    jobs: int = 1
    backend: str = "loky"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One suite to run: its document, its scenarios, and its seeds."""

    document: Suite
    entries: tuple[SuiteEntry, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificationPlan:
    """A checked certification of ``request``, judged by ``meta``."""

    request: CertificationRequest
    document: MetaContract
    meta: CompiledMeta
    incidents: Course
    quiet: Course


def plan_certification(request: CertificationRequest) -> CertificationPlan:
    """Load and check everything; DocumentError for a policy, document or suite that cannot be used."""
    file = resolve_uri(request.meta_uri, "selvage policy certify")
    document = load_as(MetaContract, file)
    asked = document.spec.certification
    if asked is None:
        raise _refusal(str(file), "spec.certification", "the suites to judge on", "nothing")
    seeds = request.seeds or document.spec.suite_seeds
    days = asked.quiet_slice_days if request.quiet_days is None else request.quiet_days
    quiet, quiet_file = load_suite(resolve_uri(asked.quiet, file))
    entries = expand_suite(quiet, quiet_file)
    plan = CertificationPlan(
        request=request,
        document=document,
        meta=compile_meta(document),
        incidents=_course(resolve_uri(asked.incidents, file), seeds),
        quiet=Course(document=quiet, entries=entries, seeds=_seeds(quiet, _quiet_seeds(entries, days))),
    )
    _check(plan)
    found = {"worlds_sha256": worlds_sha256(plan), "inputs_sha256": inputs_sha256(plan)}
    for name, now in found.items():
        pinned = getattr(asked, name)
        if pinned is not None and now != pinned:
            hint = "pin what it is now in the meta-contract, and certify every policy again"
            raise _refusal(str(file), f"spec.certification.{name}", now, pinned, hint)
    return plan


def _check(plan: CertificationPlan) -> None:
    """DocumentError for an unknown policy, before anything runs."""
    try:
        make(plan.request.spec, compiled(plan.incidents.entries[0]), plan.meta)
    except ValueError as error:
        raise _refusal("selvage policy certify", "POLICY", "a policy", str(error)) from None


def _course(file: Path, seeds: int) -> Course:
    suite, place = load_suite(file)
    return Course(document=suite, entries=expand_suite(suite, place), seeds=_seeds(suite, seeds))


def _seeds(suite: Suite, count: int) -> tuple[int, ...]:
    return tuple(range(suite.spec.seed, suite.spec.seed + count))


def _quiet_seeds(entries: tuple[SuiteEntry, ...], slice_days: float) -> int:
    """Seeds for at least ``slice_days`` over all entries."""
    worlds = [compiled(entry) for entry in entries]
    per_seed = sum(world.horizon_s * len(world.layout.slices) for world in worlds) / SECONDS_PER_DAY
    return ceil(slice_days / per_seed - 1e-9)


def run_suites(
    plan: CertificationPlan,
    progress: Progress | None = None,
    kept: KeptResults | None = None,
    expect: Callable[[float], None] | None = None,
) -> CertificationEvidence:
    """The evidence of a certificate: all episodes of both suites; ``progress`` is called with the share done.

    kept: folder of finished parts for a run that resumes; the latency of decisions is measured anew.
    expect: called with the expected seconds, 0: too few to be worth a trial.
    """
    warm()
    kept = kept or KeptResults(None)
    done, todo = finished_parts(_parts(plan), kept)
    workers = Workers(jobs=plan.request.jobs, backend=plan.request.backend)
    timed, episodes = _timed(plan), len(plan.incidents.entries) * len(plan.incidents.seeds)
    needed = CertificationTime.measured(todo, timed, workers.jobs, episodes=episodes)
    if expect is not None:
        expect(needed.expected_s)
    found: dict[str, list[EpisodeEvidence]] = {"incidents": [], "quiet": []}
    still: Still = {}
    for result in chain(done, needed.followed(run_parts(todo, workers, kept), progress)):
        found[result.part.suite] += result.episodes
        still |= result.still
    incidents, quiet = (tuple(sorted(found[name], key=_place(plan))) for name in ("incidents", "quiet"))
    return CertificationEvidence(
        incidents=incidents, quiet=quiet, decision_ms=_decisions_ms(plan), still=still
    )


def _timed(plan: CertificationPlan) -> CertificationPart:
    """The decisions to time, as a part of single fleets that are run one after the other."""
    entry, seeds = plan.incidents.entries[0], plan.incidents.seeds
    return CertificationPart(
        suite="incidents", entry=entry, seeds=seeds, spec=plan.request.spec, meta=plan.meta
    )


def _decisions_ms(plan: CertificationPlan) -> NDArray[np.float64]:
    """Durations of decisions; MeasurementError for an incident suite without a scenario."""
    order = product(plan.incidents.seeds, plan.incidents.entries)
    episodes = ((compiled(entry), seed) for seed, entry in order)
    return decisions_ms(plan.request.spec, plan.meta, episodes)


def _parts(plan: CertificationPlan) -> list[CertificationPart]:
    """The longest first, so that processes end together; the fleet without moves runs incidents alone."""
    courses = {"incidents": plan.incidents, "quiet": plan.quiet}
    asked = [("quiet", plan.request.spec), ("incidents", plan.request.spec), ("incidents", "")]
    return [
        CertificationPart(suite=suite, entry=entry, seeds=seeds, spec=spec, meta=plan.meta)
        for suite, spec in asked
        for entry in courses[suite].entries
        for seeds in _batches(courses[suite].seeds)
    ]


def _batches(seeds: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [seeds[first : first + BATCH] for first in range(0, len(seeds), BATCH)]


def _place(plan: CertificationPlan) -> Callable[[EpisodeEvidence], tuple[int, int]]:
    """Position in the order of the suites, whatever order parts finish in."""
    entries = [*plan.incidents.entries, *plan.quiet.entries]
    order = {entry.name: place for place, entry in enumerate(entries)}
    return lambda episode: (order[episode.scenario], episode.seed)


def certificate_of(plan: CertificationPlan, evidence: CertificationEvidence) -> Certificate:
    """The certificate from ``evidence`` of the suites of ``plan``."""
    request = plan.request
    clauses = judge_clauses(plan.document, evidence)
    return Certificate(
        subject=request.subject,
        subject_sha256=request.subject_sha256,
        rules_sha256=request.rules_sha256,
        meta_contract_sha256=plan.meta.sha256,
        suite_sha256=document_sha256(plan.incidents.document),
        quiet_suite_sha256=document_sha256(plan.quiet.document),
        worlds_sha256=worlds_sha256(plan),
        inputs_sha256=inputs_sha256(plan),
        sources_sha256=sources_sha256(),
        evidence_sha256=text_sha256(evidence_text(evidence)),
        covers=covers(plan),
        command=request.command,
        code_version=f"{package_version('selvage-fleet')} {git_sha() or ''}".strip(),
        seeds=len(plan.incidents.seeds),
        episodes=len(evidence.incidents) + len(evidence.quiet),
        quiet_slice_days=sum(e.slice_hours for e in evidence.quiet) / 24.0,
        passed=all(clause.passed for clause in clauses),
        clauses=clauses,
    )


def _worlds(plan: CertificationPlan) -> list[CompiledScenario]:
    return [compiled(entry) for course in (plan.incidents, plan.quiet) for entry in course.entries]


def worlds_sha256(plan: CertificationPlan) -> str:
    """Hash over every scenario, contract and profile of the suites; pools and traces are in ``inputs_sha256``
    instead.
    """
    rows = [[w.name, w.sha256, w.contract.sha256, *w.profile_sha256] for w in _worlds(plan)]
    return canonical_sha256(rows)


def inputs_sha256(plan: CertificationPlan) -> str:
    """Hash over all inputs of the suites, including pools, traces and the code of plug-ins; a plug-in that is
    the policy is in the subject instead.
    """
    rows = [world_facts(world) for world in _worlds(plan)]
    return canonical_sha256([rows, loaded_sha256("selvage_fleet.metrics", "selvage_fleet.faults")])


def covers(plan: CertificationPlan) -> tuple[CertifiedRange, ...]:
    """Ranges of the facts of both suites' fleets."""
    return ranges([fleet_facts(world.setup, declared_load_ratio(world)) for world in _worlds(plan)])


def _refusal(
    file: str, path: str, expected: str, actual: str, hint: str = "e.g. selvage policy certify sequential"
) -> DocumentError:
    return refusal(file, expected, actual, hint, path=path)
