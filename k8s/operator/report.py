"""Status conditions of a policy and its pool, from the last turn. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from contracts.compiled.meta import POLICY_METRICS
from contracts.units import MS_PER_S
from controller.decision import Decision
from k8s.operator.admission import PolicyAdmission
from k8s.operator.pods.returns import PATIENCE_S, PodReturns
from k8s.operator.route_loop import RouteLoop
from k8s.operator.status.conditions import ResourceCondition, condition
from k8s.operator.status.failed import failed_turn_conditions

_HEADROOM, _RETURNS = "KnownGoodHeadroom", "ReturnsVerified"


def policy_conditions(
    verdict: PolicyAdmission, loop: RouteLoop | None, suspended: bool
) -> tuple[ResourceCondition, ...]:
    """All conditions of a policy. ``loop`` None: the policy has no loop."""
    heads = (verdict.accepted, _resolved(verdict, loop))
    if suspended:
        message = "spec.suspend is true: the route stays as it is and is not watched; remove it to go on"
        return (*heads, condition("Ready", False, "Suspended", message))
    decision = None if loop is None or loop.standing.turn is None else loop.standing.turn.decision
    if loop is None or decision is None:
        if loop is not None and loop.standing.turn is not None and loop.standing.turn.error:
            return (*heads, _programmed(loop), *failed_turn_conditions(loop.standing.turn.error))
        message = "the documents are not in force; see Accepted and ResolvedRefs"
        return (*heads, condition("Ready", False, "NotRunning", message))
    body = (
        _programmed(loop),
        _fresh(decision, loop),
        _progressing(loop, decision),
        _degraded(verdict, loop, decision),
        _fallback(decision, loop),
        _meta(decision, loop),
        *_returns(loop),
    )
    return (*heads, _ready((*heads, *body), loop, decision), *body)


def _resolved(verdict: PolicyAdmission, loop: RouteLoop | None) -> ResourceCondition:
    """Condition ResolvedRefs, with problems of backends and notes about the documents."""
    found = verdict.resolved
    if loop is None or found.status != "True":
        return found
    if problems := loop.discovery.problems:
        message = "; ".join(one.message for one in problems)
        return condition("ResolvedRefs", False, problems[0].reason, message)
    if loop.standing.discovery_error and not loop.discovery.pods:
        return condition("ResolvedRefs", None, "BackendsUnread", loop.standing.discovery_error)
    failed = loop.standing.discovery_error
    stands = (f"pods stand as last seen, because they cannot be read: {failed}",) if failed else ()
    lost = loop.standing.state_problem
    anew = (f"the controller began anew from the route and the labels of pods: {lost}",) if lost else ()
    if not (loop.notes or stands or anew):
        return found
    reason = "BeganAnew" if anew else found.reason
    return replace(found, reason=reason, message="; ".join((found.message, *loop.notes, *stands, *anew)))


def _programmed(loop: RouteLoop) -> ResourceCondition:
    if not loop.enforces:
        message = "mode observe: decisions stand in the status and no route is written"
        return condition("Programmed", None, "Observing", message)
    if loop.actuator.refusal:
        return condition("Programmed", False, "GatewayRefused", loop.actuator.refusal)
    if loop.standing.frozen:
        message = "spec.freeze holds the route until its instant; hard clauses still warn"
        return condition("Programmed", True, "Frozen", message)
    name, actuator = loop.actuator.target.route.name, loop.actuator
    if loop.standing.programmed:
        message = f"HTTPRoute {name} holds the weights of the last plan"
        doubts = f"; whether they are in force is unknown: {actuator.doubts}" if actuator.doubts else ""
        if loop.standing.unaccepted:
            return condition("Programmed", None, "GatewayBehind", message + doubts)
        return condition("Programmed", True, "Written", message + doubts)
    reason = actuator.last_reason or "Pending"
    return condition("Programmed", False, reason, actuator.last_error or "no plan was written yet")


def _fresh(decision: Decision, loop: RouteLoop) -> ResourceCondition:
    silent = bool(decision.held[0]) or bool(decision.degraded[0])
    if (failure := loop.source.failure) is not None:
        message = "the last table is held" if silent else "after stale_after_s the last table is held"
        return condition("TelemetryFresh", False, failure.reason, f"{failure.message}; {message}")
    if silent:
        message = "no replica was scraped or probed for longer than stale_after_s; the last table is held"
        return condition("TelemetryFresh", False, "Silent", message)
    seen = loop.standing.turn.telemetry if loop.standing.turn is not None else None
    if seen is None or not bool(np.isfinite(seen.scraped_at_ms[0]).any()):
        message = "no replica answered a scrape of /metrics yet; check Services, ports and the NetworkPolicy"
        if loop.documents.pool.spec.prometheus is not None:
            message = "Prometheus has no samples of any replica yet; check its targets and their labels"
        return condition("TelemetryFresh", False, "NeverSeen", message)
    if loop.unseen:
        reason = "MoreThanDeclared" if loop.discovery.beyond else "PartlySeen"
        message = f"replicas answer scrapes, but not all is seen: {loop.unseen}"
        return condition("TelemetryFresh", True, reason, message)
    return condition("TelemetryFresh", True, "Scraped", "replicas answer scrapes")


def _progressing(loop: RouteLoop, decision: Decision) -> ResourceCondition:
    slices = [
        name
        for name, waits in zip(loop.setup.layout.slices, loop.controller.state.pending[0], strict=True)
        if waits
    ]
    if not slices and not bool(decision.moved[0]):
        return condition("Progressing", False, "Settled", "no weight is on its way")
    message = f"weights move: {', '.join(slices) or 'to the new plan'}"
    return condition("Progressing", True, "Moving", message)


def _degraded(verdict: PolicyAdmission, loop: RouteLoop, decision: Decision) -> ResourceCondition:
    if verdict.documents is None:
        message = "the resources as they are now are not in force; the last good ones are, see ResolvedRefs"
        return condition("Degraded", True, "LastGoodConfiguration", message)
    layout, hard = loop.setup.layout, decision.judgement.hard_violated[0]
    broken = [f"{layout.kernels[k]} on {layout.slices[s]}" for k, s in np.argwhere(hard)]
    if broken:
        message = f"a hard clause is broken: {', '.join(broken)}"
        return condition("Degraded", True, "HardClauseBroken", message)
    alarmed = [
        f"{layout.kernels[k]} on {layout.slices[s]}" for k, s in np.argwhere(decision.judgement.level[0] > 1)
    ]
    if alarmed:
        return condition("Degraded", True, "ClauseInAlarm", f"a clause is in alarm: {', '.join(alarmed)}")
    awaited = {one.candidate for one in loop.documents.announced}  # has servers once the upgrade starts
    counts = zip(layout.kernels, decision.observation.ready[0], strict=True)
    gone = [name for name, ready in counts if ready == 0 and name not in awaited]
    if gone:
        return condition("Degraded", True, "KernelGone", f"no replica in rotation: {', '.join(gone)}")
    if loop.unseen:
        reason = "MoreThanDeclared" if loop.discovery.beyond else "NotSeen"
        return condition("Degraded", True, reason, f"a wrong kernel may stay unseen: {loop.unseen}")
    if unkept := loop.standing.unkept_for_long(loop.clock.now_ms() / MS_PER_S):
        message = f"{unkept}; a new leader would begin without what is known now"
        return condition("Degraded", True, "StateNotKept", message)
    return condition("Degraded", False, "Healthy", "every kernel serves and keeps its contract")


def _fallback(decision: Decision, loop: RouteLoop) -> ResourceCondition:
    if bool(decision.degraded[0]):
        known = loop.setup.layout.kernels[loop.setup.layout.known_good]
        message = f"telemetry has been silent for too long, so {known} serves"
        return condition("FallbackActive", True, "KnownGood", message)
    if bool(decision.demoted[0]):
        return condition("FallbackActive", True, "Demoted", "the baseline drives; see MetaContractHeld")
    return condition("FallbackActive", False, "PolicyDrives", "the chosen policy drives")


def _meta(decision: Decision, loop: RouteLoop) -> ResourceCondition:
    if loop.setup.meta is None:
        return condition("MetaContractHeld", None, "NoMetaContract", "no meta-contract is set")
    if not bool(decision.demoted[0]):
        return condition("MetaContractHeld", True, "Held", "the policy keeps its meta-contract")
    at = int(decision.demotion_reason[0])
    metric = POLICY_METRICS[at] if 0 <= at < len(POLICY_METRICS) else "harm or an operator"
    return condition("MetaContractHeld", False, "Broken", f"the policy was demoted for {metric}")


def _returns(loop: RouteLoop) -> tuple[ResourceCondition, ...]:
    """Condition of returns from quarantine; none if the policy does not quarantine."""
    if not (loop.enforces and loop.setup.options.quarantine):
        return ()
    return (returns_condition(loop.returns),)


def returns_condition(returns: PodReturns | None) -> ResourceCondition:
    """Whether pods returning from quarantine are verified, and the progress of those returning now."""
    if returns is None:
        message = "pods come back from quarantine unverified: nothing is probed, or --verify-probes is 0"
        return condition(_RETURNS, None, "NotAsked", message)
    verifier, terms = returns.verifier, returns.verifier.terms
    now = f"; now {'; '.join(returns.lines)}" if returns.lines else ""
    if verifier.ready:
        message = (
            f"a pod comes back from quarantine by {terms.verify_probes} generation probes that agree, over "
            f"{terms.readmit_over_s:g} s"
        )
        return condition(_RETURNS, True, "Verified", message + now)
    if not verifier.unverified:
        message = "the reference is asked for its generations"
        return condition(_RETURNS, None, "ReferenceAwaited", message + now)
    message = (
        f"{verifier.unverified}; a pod waits {PATIENCE_S:g} s for that, then it comes back unverified, on "
        "what it was judged by before"
    )
    return condition(_RETURNS, False, "NoReference", message + now)


def _ready(found: tuple[ResourceCondition, ...], loop: RouteLoop, decision: Decision) -> ResourceCondition:
    states = {one.type: one for one in found}
    wanted = ["Accepted", "ResolvedRefs", "TelemetryFresh", *(["Programmed"] if loop.enforces else [])]
    for kind in wanted:
        if states[kind].status != "True":
            return condition("Ready", False, states[kind].reason, f"{kind}: {states[kind].message}")
    if not bool((decision.observation.ready[0] > 0).any()):
        message = "no kernel has a replica in rotation; the route stays as it is"
        return condition("Ready", False, "NoReadyReplicas", message)
    return condition("Ready", True, "Serving", "every slice is served under its contract")


def pool_conditions(accepted: ResourceCondition, loop: RouteLoop | None) -> tuple[ResourceCondition, ...]:
    """Conditions of a pool. ``loop``: of a policy that routes it, None if there is none."""
    decision = None if loop is None or loop.standing.turn is None else loop.standing.turn.decision
    if loop is None or decision is None:
        message = "no policy routes this pool yet"
        return (accepted, condition("Ready", False, "NotRouted", message))
    ready = bool((decision.observation.ready[0] > 0).any()) and accepted.status == "True"
    message = "a kernel has replicas in rotation" if ready else "no kernel has a replica in rotation"
    return (
        accepted,
        condition("Ready", ready, "Serving" if ready else "NoReadyReplicas", message),
        _fresh(decision, loop),
        *_headroom(loop, decision),
    )


def _headroom(loop: RouteLoop, decision: Decision) -> tuple[ResourceCondition, ...]:
    """One condition if the pool declares its headroom, else none.

    The usual load is the smoothed offered load with which moves are planned. Capacity is that of ready
    replicas in rotation. Messages contain no drifting numbers, because each change would be a status write.
    """
    ratio = loop.documents.pool.spec.known_good_headroom_ratio
    if ratio is None:
        return ()
    k, seen = loop.setup.layout.known_good, decision.observation
    offered_rps, ready = float(seen.offered_rps[0].sum()), int(seen.ready[0, k])
    share = f"{ratio:.0%} of the usual load"
    if not np.isfinite(offered_rps) or bool(decision.held[0]):
        message = f"the offered load is unknown, so nothing is said of {share}"
        return (condition(_HEADROOM, None, "LoadUnknown", message),)
    carried_rps = float(seen.capacity_rps[0, k]) if ready else 0.0
    return (_enough(carried_rps >= ratio * offered_rps, loop.setup.layout.kernels[k], ready, share),)


def _enough(can: bool, kernel: str, ready: int, share: str) -> ResourceCondition:
    if can:
        return condition(_HEADROOM, True, "Enough", f"ready replicas of {kernel} can take {share}")
    message = (
        f"{ready} ready replicas of {kernel}, the known-good kernel, cannot take {share}: a fallback would "
        "shed; add replicas of it, or lower spec.known_good_headroom_ratio"
    )
    return condition(_HEADROOM, False, "TooLittle", message)
