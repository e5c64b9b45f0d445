"""Decides from the objects alone which FaultDrills may run; every refusal says what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contracts.compiled.contract import FleetLayout
from contracts.documents import FaultDrill
from contracts.errors import DocumentError
from contracts.loading.oci import MissingArtefactError, OciUri
from controller.fleet import USUAL_RATES
from faults.client.replica import wire_form
from faults.drill.plan import DrillPlan, plan_drill
from faults.inside.document import fault_of
from faults.inside.gate import CallRefusedError
from k8s.operator.admission import Documents, judge_policy
from k8s.operator.fleet import controller_setup, route_shape, serving
from k8s.operator.objects import Manifest, Resources
from k8s.operator.status.conditions import ResourceCondition, condition
from k8s.resources.kinds import document_of, origin
from k8s.routes.rules import Backend, RouteShape
from live.load import SLICE_HEADER

_TRUE = "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSite:
    """A drill and the fleet that it strikes, all of them valid."""

    drill: FaultDrill
    plan: DrillPlan
    documents: Documents
    layout: FleetLayout
    shape: RouteShape

    @property
    def homes(self) -> tuple[str, ...]:
        """Home kernel of each slice, in the layout's order."""
        found = {home.slice: home.kernel for home in self.documents.pool.spec.home}
        return tuple(found[name] for name in self.layout.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillAdmission:
    """Result for one drill. site None: it cannot run at present."""

    accepted: ResourceCondition
    resolved: ResourceCondition
    site: DrillSite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlace:
    """Where drills run. allowed: namespaces; shed: what routes name for what is refused; missing: told of
    artefacts that were not fetched.
    """

    namespace: str
    allowed: frozenset[str]
    shed: Backend
    missing: Callable[[OciUri], None] = lambda _: None


def judge_drill(found: Manifest, seen: Resources, place: DrillPlace) -> DrillAdmission:
    """The verdict on ``found``."""
    namespace, allowed = place.namespace, place.allowed
    if namespace not in allowed:
        message = (
            f"namespace {namespace}: drills are allowed in {', '.join(sorted(allowed)) or 'none'} alone;"
            " apply the drill there, or name this one with --allow-namespace of the drill runner"
        )
        return refused_admission("NamespaceNotAllowed", message)
    try:
        drill = document_of(found)
    except DocumentError as error:
        return refused_admission("Invalid", str(error))
    assert isinstance(drill, FaultDrill)
    problem = _unsound(drill)
    if problem is not None:
        return refused_admission(*problem)
    return _resolved(drill, found, seen, place)


def change_since(site: DrillSite, began: Resources, now: Resources) -> str:
    """How the objects that ``site`` was judged by in ``began`` changed, "" if they did not. They are compared
    by uid and generation, so a pool that was recreated under its name counts as changed.
    """
    documents = site.documents
    names = (documents.pool.metadata.name, documents.contract.metadata.name, documents.policy.metadata.name)
    for name, before, found in zip(names, _judged_by(began), _judged_by(now), strict=True):
        was, there = before[name], found.get(name)
        what = f"{was['kind']} {name}"
        if there is None:
            return f"{what} was deleted while the drill ran"
        if there["metadata"]["uid"] != was["metadata"]["uid"]:
            return f"{what} was deleted and created again while the drill ran"
        if there["metadata"].get("generation") != was["metadata"].get("generation"):
            return f"{what} was changed while the drill ran"
    return ""


def _judged_by(seen: Resources) -> tuple[Mapping[str, Manifest], ...]:
    return seen.pools, seen.contracts, seen.policies


def refused_admission(reason: str, message: str) -> DrillAdmission:
    """A drill that is not accepted."""
    return DrillAdmission(
        accepted=condition("Accepted", False, reason, message),
        resolved=condition("ResolvedRefs", None, "NotAccepted", "judged once the drill is accepted"),
    )


def unresolved_admission(verdict: DrillAdmission, reason: str, message: str) -> DrillAdmission:
    """``verdict`` with condition ResolvedRefs False, for something missing that may still be created."""
    return DrillAdmission(
        accepted=verdict.accepted, resolved=condition("ResolvedRefs", False, reason, message)
    )


def _unsound(drill: FaultDrill) -> tuple[str, str] | None:
    """Reason and message of a problem within the document itself."""
    spec = drill.spec
    if not spec.abort_when:
        return "NoGuards", "abort_when: a drill on a cluster needs at least one guard that ends it; state one"
    for fault in spec.faults:
        if fault.shape not in ("step", "intermittent"):
            return "NotInjectable", f"{fault.name}: shape {fault.shape}; faults of pods are on or off"
        if fault.kind == "load_surge":
            continue
        try:
            fault_of(wire_form(fault))
        except CallRefusedError as error:
            return "NotInjectable", f"{fault.name}: {error}; choose a kind that live servers take"
    return None


def _resolved(drill: FaultDrill, found: Manifest, seen: Resources, place: DrillPlace) -> DrillAdmission:
    accepted = condition("Accepted", True, "Valid", "the drill is sound, has guards, and is allowed here")
    verdict = DrillAdmission(accepted=accepted, resolved=accepted)
    documents, problem = _documents(drill.spec.pool, seen, place.namespace)
    if documents is None:
        return unresolved_admission(verdict, "RefNotFound", problem)
    pool = documents.pool.spec.model_copy(update={"kernels": serving(documents.pool)})
    try:
        plan = plan_drill(drill, origin(found), pool)
        layout = controller_setup(documents, USUAL_RATES).setup.layout
    except MissingArtefactError as error:
        place.missing(error.uri)
        return unresolved_admission(verdict, "ArtefactNotFetched", f"{error.uri} is being fetched")
    except (DocumentError, ValueError) as error:
        return unresolved_admission(verdict, "DoesNotFit", str(error))
    header = documents.policy.spec.route.slice_header
    if header != SLICE_HEADER:
        message = f"route.slice_header: expected {SLICE_HEADER}, which the load of drills sends, got {header}"
        return unresolved_admission(verdict, "DoesNotFit", message)
    strange = [part.slice for part in plan.slices if part.slice not in layout.slices]
    if strange:
        message = f"load.slice_mix: no slice {', '.join(strange)}; there are {', '.join(layout.slices)}"
        return unresolved_admission(verdict, "DoesNotFit", message)
    shape = route_shape(documents, layout, place.shed)
    site = DrillSite(drill=drill, plan=plan, documents=documents, layout=layout, shape=shape)
    message = (
        f"pool {drill.spec.pool} and the policy {documents.policy.metadata.name} that routes it were found"
    )
    return DrillAdmission(
        accepted=accepted, resolved=condition("ResolvedRefs", True, "Resolved", message), site=site
    )


def _documents(pool: str, seen: Resources, namespace: str) -> tuple[Documents | None, str]:
    """The oldest sound policy that routes ``pool``, with its documents; else what is missing."""
    if pool not in seen.pools:
        known = ", ".join(sorted(seen.pools)) or "none"
        return None, f"pool: there is no KernelPool {pool} in this namespace (there are: {known}); apply it"
    message = ""
    for name in sorted(seen.policies):
        if seen.policies[name].get("spec", {}).get("pool") != pool:
            continue
        verdict = judge_policy(name, seen, namespace)
        if verdict.documents is not None:
            return verdict.documents, ""
        bad = verdict.resolved if verdict.accepted.status == _TRUE else verdict.accepted
        message = f"RoutePolicy {name} routes it and is not sound: {bad.message}"
    return None, message or (
        f"pool: no RoutePolicy routes KernelPool {pool}, so nothing says where its traffic goes and what it "
        "is judged by; apply one"
    )
