"""Documents that a running loop does not take: told apart by fingerprint, and why they are refused."""

from __future__ import annotations

from contracts.loading.loader import document_sha256
from contracts.loading.profiles import ProfileDiffersError
from k8s.operator.admission import Documents, PolicyAdmission
from k8s.operator.conditions import condition


def fingerprint(documents: Documents) -> str:
    """What of the documents a running loop depends on; break-glass and suspension change nothing of it."""
    spec = documents.policy.spec.model_copy(update={"freeze": None, "suspend": None})
    policy = documents.policy.model_copy(update={"spec": spec})
    apart = "".join(repr(one) for one in (documents.mirrors, documents.announced) if one)
    return "".join(document_sha256(one) for one in (policy, documents.pool, documents.contract)) + apart


def with_problem(verdict: PolicyAdmission, problem: str, reason: str = "DoesNotFit") -> PolicyAdmission:
    """``verdict`` with ResolvedRefs False for ``reason``; its documents are not taken."""
    resolved = condition("ResolvedRefs", False, reason, problem)
    return PolicyAdmission(accepted=verdict.accepted, resolved=resolved, documents=None)


def reason_of(error: Exception) -> str:
    """Of ResolvedRefs, where documents are refused for ``error``."""
    return "ProfileDiffers" if isinstance(error, ProfileDiffersError) else "DoesNotFit"
