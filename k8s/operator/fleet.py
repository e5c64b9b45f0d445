"""Documents as what the controller is set up with, and as the shape of the route. Pure but for files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.build import compile_contract
from contracts.compiled.layout import FleetLayout
from contracts.documents import KernelContract, KernelPool
from contracts.documents.pool import PoolKernel
from contracts.documents.route import Freeze
from contracts.errors import DocumentError, Problem
from contracts.metrics import metric
from contracts.telemetry import Source
from controller.fleet import FleetSetup, stages_of
from controller.options import ControllerSetup
from k8s.operator.admission import Documents
from k8s.routes.rules import Backend, RouteShape
from policies.route import route_setup

#: URIs of documents that come from the API server are absolute or ``package:``; relative ones start here.
DATA_FOLDER = "/etc/selvage/documents"


def controller_setup(documents: Documents) -> ControllerSetup:
    """What drives and what it drives. Raises DocumentError for whatever does not fit, with what to do."""
    return route_setup(documents.policy, f"{DATA_FOLDER}/policy.yaml", fleet_of(documents))


def fleet_of(documents: Documents) -> FleetSetup:
    """The fleet of the pool's serving kernels on the contract's slices."""
    kernels = serving(documents.pool)
    layout = _layout(kernels, documents.contract)
    homes = {home.slice: layout.kernels.index(home.kernel) for home in documents.pool.spec.home}
    return FleetSetup(
        layout=layout,
        contract=compile_contract(documents.contract, layout),
        capacity_rps=_capacities(documents.pool, kernels),
        home=np.array([homes[name] for name in layout.slices], dtype=np.int64),
        tick_s=documents.policy.spec.tick_s,
        stage=stages_of(kernels),
    )


def route_shape(documents: Documents, layout: FleetLayout, shed: Backend) -> RouteShape:
    """The route's rules but for their weights."""
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


def frozen(freeze: Freeze | None, now: datetime) -> bool:
    """Whether nobody moves weights at ``now``; an instant that is none freezes nothing."""
    if freeze is None:
        return False
    try:
        until = datetime.strptime(freeze.until, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return False
    return now < until


def pinned_table(
    freeze: Freeze | None, table: NDArray[np.float64], layout: FleetLayout
) -> NDArray[np.float64] | None:
    """``table`` [S, K + 1] with the pinned rows; None where none is pinned."""
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
    return Backend(name=kernel.backend.name, port=kernel.backend.port)


def _layout(kernels: Sequence[PoolKernel], contract: KernelContract) -> FleetLayout:
    owner = np.repeat(np.arange(len(kernels)), [kernel.replicas for kernel in kernels])
    probes: dict[str, None] = {}
    for clause in contract.spec.clauses:
        registered = metric(clause.metric)
        if registered.source == Source.PROBE:
            probes[registered.column(clause.estimator)] = None
    names = tuple(kernel.name for kernel in kernels)
    return FleetLayout(
        kernels=names,
        slices=tuple(one.name for one in contract.spec.slices),
        replicas=tuple(f"{kernel.name}-{n}" for kernel in kernels for n in range(kernel.replicas)),
        replica_kernel=np.asarray(owner, dtype=np.int64),
        probe_metrics=tuple(probes),
        known_good=[kernel.role for kernel in kernels].index("known_good"),
    )


def _capacities(pool: KernelPool, kernels: Sequence[PoolKernel]) -> NDArray[np.float64]:
    """float64 [K], as the pool states them; DocumentError where one is missing."""
    problems = [
        Problem(
            file=f"KernelPool {pool.metadata.name}",
            line=0,
            path=f"spec.kernels[{kernel.name}].capacity_rps",
            expected="requests per second that one replica carries",
            actual="nothing",
            next_step="measure it on the cluster's hardware (vllm bench serve) and state it",
        )
        for kernel in kernels
        if kernel.capacity_rps is None
    ]
    if problems:
        raise DocumentError(problems)
    return np.array([kernel.capacity_rps for kernel in kernels], dtype=np.float64)
