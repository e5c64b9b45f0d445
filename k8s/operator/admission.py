"""Which RoutePolicies are accepted, and what they refer to: judged from the objects alone. Pure.

What a document's own schema and rules refuse never comes here, unless the server held it before they did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from contracts.documents import Document, KernelContract, KernelPool, RoutePolicy
from contracts.errors import DocumentError
from k8s.operator.conditions import Condition, condition
from k8s.operator.objects import Manifest, Resources
from k8s.resources.objects import document_of
from k8s.routes.rules import Mirror

DocumentT = TypeVar("DocumentT", bound=Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """One policy with what it refers to, all of it sound."""

    policy: RoutePolicy
    pool: KernelPool
    contract: KernelContract
    mirrors: tuple[Mirror, ...] = ()
    """What promotions in shadow are shown; no part of what is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the objects say of one policy. documents None: it cannot be put in force as it stands."""

    accepted: Condition
    resolved: Condition
    documents: Documents | None


def judge_policy(name: str, seen: Resources, namespace: str) -> Verdict:
    """The verdict on policy ``name``, which is one of ``seen``."""
    policy, problem = _read(seen.policies[name], RoutePolicy)
    if policy is None:
        return _refused("Invalid", problem)
    if policy.spec.route.namespace not in (None, namespace):
        return _refused(
            "OtherNamespace",
            f"route.namespace: expected {namespace}, got {policy.spec.route.namespace}; "
            "a policy owns a route of its own namespace, so move it there",
        )
    owner = _first_owner(policy.spec.route.name, seen)
    if owner != name:
        return _refused(
            "RouteTaken",
            f"route.name: HTTPRoute {policy.spec.route.name} is claimed by the older RoutePolicy {owner}; "
            " name another route or delete one of the two",
        )
    accepted = condition("Accepted", True, "Valid", "the document is sound and its route is its own")
    return _resolved(policy, accepted, seen, namespace)


def judge_document(found: Manifest, kind: type[Document]) -> Condition:
    """Whether a contract or a pool is sound by itself."""
    document, problem = _read(found, kind)
    if document is None:
        return condition("Accepted", False, "Invalid", problem)
    return condition("Accepted", True, "Valid", "the document is sound")


def _resolved(policy: RoutePolicy, accepted: Condition, seen: Resources, namespace: str) -> Verdict:
    pool, pool_problem = _named(policy.spec.pool, seen.pools, KernelPool, "pool")
    contract, contract_problem = _named(policy.spec.contract, seen.contracts, KernelContract, "contract")
    if pool is None or contract is None:
        told = "; ".join(filter(None, (pool_problem, contract_problem)))
        return _unresolved(accepted, "RefNotFound", told)
    if problem := _slices_problem(pool, contract):
        return _unresolved(accepted, "SlicesDiffer", problem)
    if problem := _backend_problem(pool, namespace):
        return _unresolved(accepted, "OtherNamespace", problem)
    if problem := _pin_problem(policy, pool):
        return _unresolved(accepted, "UnknownKernel", problem)
    told = f"pool {pool.metadata.name} and contract {contract.metadata.name} were found and fit"
    documents = Documents(policy=policy, pool=pool, contract=contract)
    resolved = condition("ResolvedRefs", True, "Resolved", told)
    return Verdict(accepted=accepted, resolved=resolved, documents=documents)


def _slices_problem(pool: KernelPool, contract: KernelContract) -> str:
    at_home = {home.slice for home in pool.spec.home}
    promised = {one.name for one in contract.spec.slices}
    if at_home == promised:
        return ""
    missing, strange = sorted(promised - at_home), sorted(at_home - promised)
    parts = [f"no home for {', '.join(missing)}"] if missing else []
    parts += [f"a home for {', '.join(strange)}, which the contract does not know"] if strange else []
    return (
        f"KernelPool {pool.metadata.name} has {' and '.join(parts)}; its spec.home names each slice of "
        f"KernelContract {contract.metadata.name} once"
    )


def _backend_problem(pool: KernelPool, namespace: str) -> str:
    for kernel in pool.spec.kernels:
        if kernel.backend is not None and kernel.backend.namespace not in (None, namespace):
            return (
                f"kernel {kernel.name}: expected a Service of namespace {namespace}, got one of "
                f"{kernel.backend.namespace}; run the pool, its policy and its servers in one namespace"
            )
    return ""


def _pin_problem(policy: RoutePolicy, pool: KernelPool) -> str:
    freeze = policy.spec.freeze
    serving = {kernel.name for kernel in pool.spec.kernels if kernel.role != "reference"}
    for row in () if freeze is None or freeze.table is None else freeze.table:
        strange = sorted({one.kernel for one in row.weights} - serving)
        if strange or row.slice not in {home.slice for home in pool.spec.home}:
            return (
                f"freeze.table: slice {row.slice} on {', '.join(strange) or 'its kernels'} is not in pool "
                f"{pool.metadata.name}; name its slices and serving kernels"
            )
    return ""


def _first_owner(route: str, seen: Resources) -> str:
    """The oldest policy that names ``route``; by name where they are of one second."""
    claims = [
        (found["metadata"].get("creationTimestamp", ""), name)
        for name, found in seen.policies.items()
        if found.get("spec", {}).get("route", {}).get("name") == route
    ]
    return min(claims)[1] if claims else ""


def _named(
    name: str, found: Mapping[str, Manifest], kind: type[DocumentT], role: str
) -> tuple[DocumentT | None, str]:
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        return (
            None,
            f"{role}: there is no {kind.__name__} {name} in this namespace (there are: {known}); apply it",
        )
    return _read(found[name], kind)


def _read(found: Mapping[str, Any], kind: type[DocumentT]) -> tuple[DocumentT | None, str]:
    try:
        document = document_of(found)
    except DocumentError as error:
        return None, str(error)
    return (document, "") if isinstance(document, kind) else (None, f"expected a {kind.__name__}")


def _refused(reason: str, message: str) -> Verdict:
    return Verdict(
        accepted=condition("Accepted", False, reason, message),
        resolved=condition("ResolvedRefs", None, "NotAccepted", "judged once the document is accepted"),
        documents=None,
    )


def _unresolved(accepted: Condition, reason: str, message: str) -> Verdict:
    resolved = condition("ResolvedRefs", False, reason, message)
    return Verdict(accepted=accepted, resolved=resolved, documents=None)
