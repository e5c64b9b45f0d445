"""Decides from the objects alone which promotions are accepted and whether references resolve. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from contracts.documents import KernelPromotion
from contracts.documents.promotion import PromotionSpec
from contracts.errors import DocumentError
from k8s.operator.admission import Documents
from k8s.operator.objects import Manifest
from k8s.operator.status.conditions import ResourceCondition, condition
from k8s.resources.kinds import document_of
from live.control.setup import expected_fingerprints
from live.origins import origin_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionAdmission:
    """Result for one promotion. document None: it cannot be put in force in its current form."""

    accepted: ResourceCondition
    resolved: ResourceCondition
    document: KernelPromotion | None = None


def judge_promotion(
    found: Manifest,
    documents: Documents | None,
    taken: Collection[str],
    origins: Collection[str] = (),
) -> PromotionAdmission:
    """Admission of one promotion. ``documents``: those of its policy; ``taken``: candidates of older
    promotions; ``origins``: allowed targets of webhooks, ``https://HOST:PORT``.
    """
    try:
        document = document_of(found)
    except DocumentError as error:
        return _refused("Invalid", str(error))
    if not isinstance(document, KernelPromotion):
        return _refused("Invalid", f"expected a KernelPromotion, got a {document.kind}")
    spec = document.spec
    if spec.candidate in taken:
        message = f"candidate: an older promotion has {spec.candidate}; delete one of the two"
        return _refused("CandidateTaken", message)
    accepted = condition("Accepted", True, "Valid", "the document is sound and its candidate its own")
    if documents is None:
        message = f"policy: RoutePolicy {spec.policy} is not in force; see its conditions, or apply it"
        return _unresolved(accepted, "PolicyNotInForce", message)
    if problem := _problem(document, documents) or _not_allowed(document, origins):
        return _unresolved(accepted, *problem)
    message = f"policy {spec.policy}, its pool and its contract were found and fit"
    resolved = condition("ResolvedRefs", True, "Resolved", message)
    return PromotionAdmission(accepted=accepted, resolved=resolved, document=document)


def _problem(document: KernelPromotion, documents: Documents) -> tuple[str, str] | None:
    """Reason and message of a problem; None if there is none."""
    spec, pool = document.spec, documents.pool
    roles = {kernel.name: kernel.role for kernel in pool.spec.kernels}
    for field, name in (("candidate", spec.candidate), ("replaces", spec.replaces)):
        if name is not None and roles.get(name) in (None, "reference"):
            known = ", ".join(one for one, role in roles.items() if role != "reference")
            told = f"{field}: {name} is no serving kernel of pool {pool.metadata.name} (there are: {known})"
            return "UnknownKernel", told
    if roles[spec.candidate] == "known_good":
        told = f"candidate: {spec.candidate} is the known-good kernel, where a rollback goes; name another"
        return "CandidateIsKnownGood", told
    if told := _announced_problem(spec, expected_fingerprints(pool)):
        return "FingerprintDiffers", told
    homes = [home.slice for home in pool.spec.home if home.kernel == spec.candidate]
    if homes:
        told = (
            f"candidate: {spec.candidate} is the home of {', '.join(homes)}; give them a kernel that serves "
            "now, and say with replaces whose slices come home once it is full"
        )
        return "CandidateIsHome", told
    return None


def _announced_problem(spec: PromotionSpec, stated: Mapping[str, str]) -> str:
    """Problem of the announced fingerprint, "" for none. stated: kernel -> fingerprint that the pool
    states.
    """
    announced, new = spec.announced_fingerprint, stated.get(spec.candidate)
    if announced is None:
        return ""
    if announced == stated.get(spec.replaces or ""):
        return (
            f"announced_fingerprint: {announced!r} is what {spec.replaces} states already; "
            "name that of the new build"
        )
    if new is None or new == announced:
        return ""
    return (
        f"announced_fingerprint: expected {new!r}, which the pool states of {spec.candidate}, "
        f"got {announced!r}; write the same into both"
    )


def _not_allowed(document: KernelPromotion, origins: Collection[str]) -> tuple[str, str] | None:
    """Reason and message if a webhook's origin is not allowed; None if all are."""
    for hook in document.spec.webhooks:
        try:
            origin = origin_of(hook.url)
        except ValueError as error:
            return "WebhookNotAllowed", f"webhooks: {hook.name}: {error}; correct its url"
        if origin not in origins:
            message = (
                f"webhooks: {hook.name} calls {origin}, which this operator may not; start it with "
                f"--webhook-origin {origin}, or take the webhook out"
            )
            return "WebhookNotAllowed", message
    return None


def _refused(reason: str, message: str) -> PromotionAdmission:
    text = "judged once the document is accepted"
    return PromotionAdmission(
        accepted=condition("Accepted", False, reason, message),
        resolved=condition("ResolvedRefs", None, "NotAccepted", text),
    )


def _unresolved(accepted: ResourceCondition, reason: str, message: str) -> PromotionAdmission:
    return PromotionAdmission(accepted=accepted, resolved=condition("ResolvedRefs", False, reason, message))
