"""Decides from the objects alone which RoutePolicies are accepted and whether their references resolve. Pure.

The API server already rejects what violates a schema or a validation rule. Such objects only occur here if
they were stored before the rule existed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from contracts.documents import Document, KernelContract, KernelPool, RoutePolicy
from contracts.errors import DocumentError
from contracts.loading.loader import document_sha256
from k8s.operator.objects import Manifest, Resources
from k8s.operator.pods.upgrades import Announced
from k8s.operator.status.conditions import ResourceCondition, condition
from k8s.resources.kinds import document_of, written
from k8s.routes.rules import Mirror

DocumentT = TypeVar("DocumentT", bound=Document)
#: Fields of a policy that name other objects, by their kinds.
_FIELDS = {"KernelPool": "pool", "KernelContract": "contract"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """One policy and the objects that it refers to, all of them valid."""

    policy: RoutePolicy
    pool: KernelPool
    contract: KernelContract
    mirrors: tuple[Mirror, ...] = ()
    """Request mirrors for promotions in the shadow stage; not part of the snapshot."""
    announced: tuple[Announced, ...] = ()
    """Upgrades in place that promotions announce; not part of the snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAdmission:
    """Result for one policy. documents None: the policy cannot be put in force in its current form."""

    accepted: ResourceCondition
    resolved: ResourceCondition
    documents: Documents | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """Result of parsing one object. document None: the object is invalid, and ``problem`` says why."""

    found: Manifest
    document: Document | None
    problem: str
    sha256: str


class ObjectReader:
    """Parses objects of one namespace into documents. An object with an unchanged document is not parsed
    again.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Read] = {}

    def keep(self, seen: Resources) -> None:
        """Drop cached results of objects that are not in ``seen``."""
        kinds = (seen.contracts, seen.pools, seen.policies)
        there = {_key(found) for objects in kinds for found in objects.values()}
        self._known = {key: read for key, read in self._known.items() if key in there}

    def read(self, found: Manifest, kind: type[DocumentT]) -> tuple[DocumentT | None, str]:
        """The document in ``found`` and ""; None and the reason if it is invalid or of another kind."""
        read = self._read(found)
        if read.document is None:
            return None, read.problem
        return (
            (read.document, "") if isinstance(read.document, kind) else (None, f"expected a {kind.__name__}")
        )

    def sha256(self, found: Manifest) -> str:
        """Hash of the document in ``found``, "" if it is invalid."""
        return self._read(found).sha256

    def _read(self, found: Manifest) -> _Read:
        key = _key(found)
        before = self._known.get(key)
        if before is not None and before.found is found:
            return before
        if before is not None and written(before.found) == written(found):
            read = replace(before, found=found)
        else:
            read = _read_anew(found)
        self._known[key] = read
        return read


def _key(found: Manifest) -> tuple[str, str]:
    return str(found["kind"]), str(found["metadata"]["name"])


def _read_anew(found: Manifest) -> _Read:
    try:
        document = document_of(found)
    except DocumentError as error:
        return _Read(found=found, document=None, problem=str(error), sha256="")
    return _Read(found=found, document=document, problem="", sha256=document_sha256(document))


def route_owners(seen: Resources) -> dict[str, str]:
    """Route -> the oldest policy that names it; policies created in the same second are ordered by name."""
    claims: dict[str, tuple[str, str]] = {}
    for name, found in seen.policies.items():
        route = found.get("spec", {}).get("route", {}).get("name")
        claim = str(found["metadata"].get("creationTimestamp", "")), name
        claims[route] = min(claims.get(route, claim), claim)
    return {route: name for route, (_, name) in claims.items()}


class PolicyJudge:
    """Admission of one namespace's policies. Each is judged once per ``Resources`` object."""

    def __init__(self, namespace: str) -> None:
        self.reader = ObjectReader()
        self._namespace = namespace
        self._seen: Resources | None = None
        self._owners: Mapping[str, str] = {}
        self._fresh: set[str] = set()
        self._verdicts: dict[str, PolicyAdmission] = {}

    def policy(self, name: str, seen: Resources) -> PolicyAdmission:
        """As ``judge_policy``. Returns the same object as before if the result is equal."""
        if seen is not self._seen:
            self._seen, self._owners = seen, route_owners(seen)
            self._fresh.clear()
            self._verdicts = {one: self._verdicts[one] for one in self._verdicts if one in seen.policies}
            self.reader.keep(seen)
        if name not in self._fresh:
            found = _judged(name, seen, self._namespace, self._owners, self.reader)
            if found != self._verdicts.get(name):
                self._verdicts[name] = found
            self._fresh.add(name)
        return self._verdicts[name]


def judge_policy(name: str, seen: Resources, namespace: str) -> PolicyAdmission:
    """Admission of policy ``name``, which must be in ``seen``."""
    return _judged(name, seen, namespace, route_owners(seen), ObjectReader())


def _judged(
    name: str, seen: Resources, namespace: str, owners: Mapping[str, str], reader: ObjectReader
) -> PolicyAdmission:
    policy, problem = reader.read(seen.policies[name], RoutePolicy)
    if policy is None:
        return _refused("Invalid", problem)
    if policy.spec.route.namespace not in (None, namespace):
        return _refused(
            "OtherNamespace",
            f"route.namespace: expected {namespace}, got {policy.spec.route.namespace}; "
            "a policy owns a route of its own namespace, so move it there",
        )
    owner = owners.get(policy.spec.route.name, "")
    if owner != name:
        return _refused(
            "RouteTaken",
            f"route.name: HTTPRoute {policy.spec.route.name} is claimed by the older RoutePolicy {owner}; "
            "name another route or delete one of the two",
        )
    accepted = condition("Accepted", True, "Valid", "the document is sound and its route is its own")
    return _resolved(policy, accepted, seen, namespace, reader)


def judge_document(found: Manifest, kind: type[Document], reader: ObjectReader) -> ResourceCondition:
    """Condition Accepted of a contract or a pool, judged without the objects that refer to it."""
    document, problem = reader.read(found, kind)
    if document is None:
        return condition("Accepted", False, "Invalid", problem)
    return condition("Accepted", True, "Valid", "the document is sound")


def _resolved(
    policy: RoutePolicy, accepted: ResourceCondition, seen: Resources, namespace: str, reader: ObjectReader
) -> PolicyAdmission:
    pool, pool_problem = _named(policy.spec.pool, seen.pools, KernelPool, reader)
    contract, contract_problem = _named(policy.spec.contract, seen.contracts, KernelContract, reader)
    if pool is None or contract is None:
        message = "; ".join(filter(None, (pool_problem, contract_problem)))
        return _unresolved(accepted, "RefNotFound", message)
    if problem := _slices_problem(pool, contract):
        return _unresolved(accepted, "SlicesDiffer", problem)
    if problem := _backend_problem(pool, namespace):
        return _unresolved(accepted, "OtherNamespace", problem)
    if problem := pin_problem(policy, pool):
        return _unresolved(accepted, "UnknownKernel", problem)
    message = f"pool {pool.metadata.name} and contract {contract.metadata.name} were found and fit"
    documents = Documents(policy=policy, pool=pool, contract=contract)
    resolved = condition("ResolvedRefs", True, "Resolved", message)
    return PolicyAdmission(accepted=accepted, resolved=resolved, documents=documents)


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


def pin_problem(policy: RoutePolicy, pool: KernelPool) -> str:
    """Which slice or kernel of the table pinned by ``policy`` is not in ``pool``; "" if all are."""
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


def _named(
    name: str, found: Mapping[str, Manifest], kind: type[DocumentT], reader: ObjectReader
) -> tuple[DocumentT | None, str]:
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        return (
            None,
            f"{_FIELDS[kind.__name__]}: there is no {kind.__name__} {name} in this namespace "
            f"(there are: {known}); apply it",
        )
    return reader.read(found[name], kind)


def _refused(reason: str, message: str) -> PolicyAdmission:
    return PolicyAdmission(
        accepted=condition("Accepted", False, reason, message),
        resolved=condition("ResolvedRefs", None, "NotAccepted", "judged once the document is accepted"),
        documents=None,
    )


def _unresolved(accepted: ResourceCondition, reason: str, message: str) -> PolicyAdmission:
    resolved = condition("ResolvedRefs", False, reason, message)
    return PolicyAdmission(accepted=accepted, resolved=resolved, documents=None)
