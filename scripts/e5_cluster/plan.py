"""Plan of E5 on a cluster, judged from its objects: drills of the pool that one RoutePolicy routes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.documents import FaultDrill
from contracts.errors import DocumentError
from contracts.loading.files import canonical_sha256
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.oci import OCI_PREFIX
from contracts.loading.uris import PACKAGE_PREFIX
from controller.fleet import USUAL_RATES
from faults.drill.plan import plan_drill
from faults.inside.gate import CallRefusedError
from k8s.operator.admission import Documents, judge_policy
from k8s.operator.fleet import controller_setup, kernel_backends, serving
from k8s.operator.objects import Manifest, Resources
from k8s.operator.pods.replicas import KernelBackend
from k8s.operator.status.conditions import ResourceCondition
from k8s.resources.kinds import object_of
from policies.certify.admission import LEARNED
from policies.supervised import meta_sha256
from scripts.drill.documents import check_live, find_drill
from scripts.drill.healer import meta_fields, shipped_artefact
from scripts.e5.configurations import BASELINE_CONFIGURATION
from scripts.e5.suite import group_of
from scripts.e5_drills.plan import (
    HOLD_S,
    DrillEpisode,
    DrillSuite,
    Entry,
    configurations_of,
    hold_faults,
    option_refusal,
)

COMMAND = "selvage e5 --target kubernetes"
#: Default policy configurations, beside the policy that the RoutePolicy itself names.
CONFIGURATIONS = ("fixed", "breaker", "hysteresis", "sequential")
#: The configuration while the pool comes to rest. Its name differs from the next configuration's, so that the
#: next one starts without memory.
AT_REST = BASELINE_CONFIGURATION
#: Additional times of an episode: a pool coming to rest, a policy starting, a drill being deleted.
_BESIDE_S = 45.0
_DRIVES = "a policy that can drive the pool"
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options of the command line. policies empty: ``CONFIGURATIONS``; drills: files of FaultDrills; meta:
    URI of the meta-contract that keeps every policy, "": the RoutePolicy's.
    """

    out: Path
    namespace: str
    route_policy: str
    drills: tuple[str, ...]
    policies: tuple[str, ...] = ()
    seeds: int = 1
    hold_s: float = HOLD_S
    command: str = COMMAND
    meta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSuite(DrillSuite):
    """A run on one pool. specs: of the RoutePolicy, by the names of configurations. before: its spec as
    found. homes: slice -> kernel.
    """

    policy_uid: str
    before: Mapping[str, Any]
    specs: Mapping[str, dict[str, Any]]
    homes: Mapping[str, str]
    backends: tuple[KernelBackend, ...]

    @property
    def key(self) -> str:
        """Key that distinguishes this run's drills from those of others."""
        facts = [[document_sha256(one.drill), document_sha256(one.contract)] for one in self.entries]
        return canonical_sha256([self.policy_uid, facts, sorted(self.specs)])[:8]

    def drill(self, episode: DrillEpisode) -> Manifest:
        """The FaultDrill of ``episode``, as an object to create."""
        found = object_of(episode.entry.drill)
        name = f"e5-{self.key}-{episode.entry.name}-{episode.configuration.name}"
        name = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_LONGEST_NAME].strip("-")
        return {
            "apiVersion": found["apiVersion"],
            "kind": found["kind"],
            "metadata": {
                "name": f"{name}-{episode.seed}",
                "labels": {"app.kubernetes.io/part-of": "selvage"},
            },
            "spec": {**found["spec"], "seed": episode.seed},
        }


def plan_cluster(options: ClusterOptions, seen: Resources) -> ClusterSuite:
    """Check everything that can be judged from here; DocumentError for anything that cannot run."""
    documents, found = _documents(options, seen)
    own = documents.policy.spec.policy
    names = options.policies or tuple(dict.fromkeys((*CONFIGURATIONS, own)))
    _refuse_own_place(options.meta)
    configurations = configurations_of(names, COMMAND, options.meta)
    metas = {AT_REST: "", **{one.name: one.meta for one in configurations}}
    specs = {name: spec_of(found["spec"], name, meta) for name, meta in metas.items()}
    for name, spec in specs.items():
        _check_spec(options, seen, name, spec)
    entries = tuple(_entry(name, documents, options.hold_s) for name in dict.fromkeys(options.drills))
    if not entries:
        step = "e.g. --drills silent.yaml,crash.yaml"
        raise _refusal("--drills", f"FaultDrills of pool {documents.pool.metadata.name}", "none", step)
    return ClusterSuite(
        target="kubernetes",
        entries=entries,
        configurations=configurations,
        seeds=tuple(range(1, options.seeds + 1)),
        layout=controller_setup(_with(documents, specs[AT_REST]), USUAL_RATES).setup.layout,
        beside_s=_BESIDE_S,
        meta_sha256=meta_sha256(options.meta) or found["spec"].get("meta_contract_sha256"),
        policy_uid=str(found["metadata"].get("uid", "")),
        before=found["spec"],
        specs=specs,
        homes={home.slice: home.kernel for home in documents.pool.spec.home},
        backends=kernel_backends(documents.pool),
    )


def spec_of(before: Mapping[str, Any], policy: str, meta: str = "") -> dict[str, Any]:
    """The RoutePolicy's spec driven by ``policy``, under ``meta`` ("": as ``before``).

    Shield and route are as ``before``.
    """
    gone = {"freeze", "suspend"} | ({"artifact"} if before.get("policy") != policy else set())
    spec = {key: value for key, value in before.items() if key not in gone}
    spec |= {"policy": policy, "mode": "enforce"}
    if policy == LEARNED and "artifact" not in spec:
        spec["artifact"] = json.loads(shipped_artefact().model_dump_json())
    return spec | (meta_fields(meta) if meta else {})


def _refuse_own_place(meta: str) -> None:
    """DocumentError for a path that means another file to the operator than it does here."""
    if meta and not (meta.startswith((PACKAGE_PREFIX, OCI_PREFIX)) or Path(meta).is_absolute()):
        expected = "a package: or oci:// URI, or the whole path of a file that the operator has too"
        step = "push it to a registry, or mount it into the operator"
        raise _refusal("--meta", expected, meta, step)


def _documents(options: ClusterOptions, seen: Resources) -> tuple[Documents, Manifest]:
    """The RoutePolicy and its referenced documents, and its form on the server."""
    name, path = options.route_policy, "--route-policy"
    if name not in seen.policies:
        known = ", ".join(sorted(seen.policies)) or "none"
        expected = f"a RoutePolicy of namespace {options.namespace}"
        raise _refusal(path, expected, name or "none", f"there are: {known}")
    verdict = judge_policy(name, seen, options.namespace)
    if verdict.documents is None:
        bad = verdict.accepted if verdict.accepted.status != "True" else verdict.resolved
        raise _refusal(path, "a sound RoutePolicy", _condition_text(bad), "correct it and run again")
    return verdict.documents, seen.policies[name]


def _check_spec(options: ClusterOptions, seen: Resources, policy: str, spec: dict[str, Any]) -> None:
    """DocumentError if the RoutePolicy with ``spec`` could not be put in force."""
    name = options.route_policy
    changed = {**seen.policies[name], "spec": spec}
    there = Resources(contracts=seen.contracts, pools=seen.pools, policies={**seen.policies, name: changed})
    verdict = judge_policy(name, there, options.namespace)
    for one in (verdict.accepted, verdict.resolved):
        if one.status != "True":
            raise _refusal("--policies", _DRIVES, f"{policy}: {_condition_text(one)}", "leave it out")
    assert verdict.documents is not None
    try:
        controller_setup(verdict.documents, USUAL_RATES)
    except (DocumentError, ValueError) as error:
        step = "leave it out, or give the RoutePolicy what it needs"
        raise _refusal("--policies", _DRIVES, f"{policy}: {error}", step) from None


def _entry(named: str, documents: Documents, hold_s: float) -> Entry:
    """The drill called ``named``, with its faults in force for ``hold_s``."""
    file = find_drill(named)
    drill = hold_faults(load_as(FaultDrill, file), hold_s)
    spec, pool = drill.spec, documents.pool
    if spec.pool != pool.metadata.name:
        expected = f"drills of pool {pool.metadata.name}, which the RoutePolicy routes"
        step = "write spec.pool and the targets for this pool"
        raise _refusal("--drills", expected, f"{named}: pool {spec.pool}", step)
    if not spec.abort_when:
        step = "state one under abort_when"
        raise _refusal("--drills", "drills with a guard that ends them", f"{named}: none", step)
    plan = plan_drill(drill, str(file), pool.spec.model_copy(update={"kernels": serving(pool)}))
    try:
        check_live(plan)
    except CallRefusedError as error:
        raise _refusal("--drills", "faults of live servers", f"{named}: {error}", "leave it out") from None
    return Entry(
        name=drill.metadata.name,
        group=group_of(spec.faults),
        drill=drill,
        pool=pool,
        contract=documents.contract,
        plan=plan,
    )


def _with(documents: Documents, spec: dict[str, Any]) -> Documents:
    own = documents.policy.spec.model_copy(update={"policy": spec["policy"], "artifact": None})
    return Documents(
        policy=documents.policy.model_copy(update={"spec": own}),
        pool=documents.pool,
        contract=documents.contract,
    )


def _condition_text(found: ResourceCondition) -> str:
    return f"{found.reason}: {found.message}"


def _refusal(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return option_refusal(COMMAND, path, expected, actual, next_step)
