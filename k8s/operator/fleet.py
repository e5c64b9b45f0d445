"""Converts documents into the controller's setup and the shape of the route, and fingerprints them.

Pure except for file access. If the fingerprint changes, a running loop cannot apply the documents and is
replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.documents import KernelPool, RoutePolicy
from contracts.documents.pool import BackendRef, PoolKernel
from contracts.documents.route import Freeze
from contracts.loading.loader import document_sha256
from contracts.loading.profiles import ProfileDiffersError
from contracts.telemetry import SampleRates
from contracts.units import MS_PER_S
from controller.ports import Clock
from k8s.operator.admission import Documents, PolicyAdmission, pin_problem
from k8s.operator.pods.replicas import KernelBackend
from k8s.operator.status.conditions import condition
from k8s.routes.rules import Backend, RouteShape
from live.control.setup import LiveDocuments, LiveSetup, live_setup

#: URIs of documents that come from the API server are absolute or ``package:``; relative ones start here.
DATA_FOLDER = "/etc/selvage/documents"


def live_documents(documents: Documents) -> LiveDocuments:
    """The documents with the paths against which relative URIs in them are resolved."""
    return LiveDocuments(
        pool=documents.pool,
        pool_file=Path(DATA_FOLDER) / "pool.yaml",
        contract=documents.contract,
        policy=documents.policy,
        policy_file=Path(DATA_FOLDER) / "policy.yaml",
    )


def slots(pool: KernelPool) -> dict[str, tuple[str, ...]]:
    """Kernel -> names of its replica slots. Pods come and go; the slots stay."""
    return {one.name: tuple(f"{one.name}-{n}" for n in range(one.replicas)) for one in serving(pool)}


def controller_setup(documents: Documents, rates: SampleRates) -> LiveSetup:
    """The controller's setup, made as for live servers: with the clauses that a server's answers can judge,
    and capacities as stated or from the profiles' step times. Raises DocumentError if documents do not fit.
    """
    return live_setup(live_documents(documents), slots(documents.pool), rates)


def route_shape(documents: Documents, layout: FleetLayout, shed: Backend) -> RouteShape:
    """Everything about the route's rules except their weights."""
    default = next(one.name for one in documents.contract.spec.slices if one.default)
    return RouteShape(
        slices=layout.slices,
        default_slice=default,
        slice_header=documents.policy.spec.route.slice_header,
        kernels=[_backend(kernel) for kernel in serving(documents.pool)],
        shed=shed,
        mirrors=documents.mirrors,
    )


def serving(pool: KernelPool) -> tuple[PoolKernel, ...]:
    """Kernels that may take traffic, in the pool's order."""
    return tuple(kernel for kernel in pool.spec.kernels if kernel.role != "reference")


def kernel_backends(pool: KernelPool) -> tuple[KernelBackend, ...]:
    """Backend and number of slots of each serving kernel."""
    return tuple(
        KernelBackend(kernel=one.name, backend=one.backend, replicas=one.replicas)
        for one in serving(pool)
        if one.backend is not None
    )


def backend_of(ref: BackendRef) -> Backend:
    """A kernel's backend as a backendRef of a route."""
    return Backend(group=ref.group, kind=ref.kind, name=ref.name, port=ref.port)


def frozen(freeze: Freeze | None, now: datetime) -> bool:
    """Whether weights are frozen at ``now``. An ``until`` that is not a valid time freezes nothing."""
    if freeze is None:
        return False
    try:
        until = datetime.strptime(freeze.until, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return False
    return now < until


def with_freeze(documents: Documents, policy: RoutePolicy | None) -> Documents:
    """``documents``, which stay in force, with the freeze from the current ``policy``.

    A freeze takes effect and ends even if other fields of the objects are invalid. If the freeze's own table
    does not fit the pool in force, the freeze of ``documents`` stays. policy None: it could not be read.
    """
    if policy is None or pin_problem(policy, documents.pool):
        return documents
    spec = documents.policy.spec.model_copy(update={"freeze": policy.spec.freeze})
    return replace(documents, policy=documents.policy.model_copy(update={"spec": spec}))


def earlier_now(now: Callable[[], datetime], clock: Clock) -> Callable[[], datetime]:
    """A clock that returns the earlier of system time and ``clock``, so that a forward jump of the system
    clock does not end a freeze.
    """
    return lambda: min(now(), datetime.fromtimestamp(clock.now_ms() / MS_PER_S, UTC))


def pinned_table(
    freeze: Freeze | None, table: NDArray[np.float64], layout: FleetLayout
) -> NDArray[np.float64] | None:
    """``table`` [S, K + 1] with its pinned rows replaced; None if the freeze pins no table."""
    if freeze is None or freeze.table is None:
        return None
    found = table.copy()
    for row in freeze.table:
        at = layout.slices.index(row.slice)
        found[at] = 0.0
        for one in row.weights:
            found[at, layout.kernels.index(one.kernel)] = one.weight
        found[at] /= found[at].sum()
    return found


def _backend(kernel: PoolKernel) -> Backend:
    assert kernel.backend is not None  # a rule of the resource
    return backend_of(kernel.backend)


def fingerprint(documents: Documents) -> str:
    """Hash of everything in the documents that a running loop depends on. Freeze (break-glass) and suspension
    are excluded, because a running loop follows them.
    """
    spec = documents.policy.spec.model_copy(update={"freeze": None, "suspend": None})
    policy = documents.policy.model_copy(update={"spec": spec})
    apart = "".join(repr(one) for one in (documents.mirrors, documents.announced) if one)
    return "".join(document_sha256(one) for one in (policy, documents.pool, documents.contract)) + apart


def with_problem(verdict: PolicyAdmission, problem: str, reason: str = "DoesNotFit") -> PolicyAdmission:
    """``verdict`` with condition ResolvedRefs False for ``reason`` and without documents."""
    resolved = condition("ResolvedRefs", False, reason, problem)
    return PolicyAdmission(accepted=verdict.accepted, resolved=resolved, documents=None)


def with_note(verdict: PolicyAdmission, note: str) -> PolicyAdmission:
    """``verdict`` with ``note`` in the message of ResolvedRefs; "" for nothing to add."""
    if not note:
        return verdict
    message = f"{verdict.resolved.message}; {note}"
    return replace(verdict, resolved=replace(verdict.resolved, message=message))


def reason_of(error: Exception) -> str:
    """Reason of condition ResolvedRefs if documents are refused because of ``error``."""
    return "ProfileDiffers" if isinstance(error, ProfileDiffersError) else "DoesNotFit"
