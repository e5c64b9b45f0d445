"""Home kernels that break the contract without any fault, so that no incident can recover on them.

Judged like the ground truth, by the healthy values of the traffic prompts. The check needs no engine and is
made before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from contracts.compiled.build import compile_contract
from contracts.compiled.contract import CompiledContract
from contracts.documents.profile import HEALTHY
from contracts.documents.scenario import ScenarioSpec
from contracts.metrics import metric
from contracts.telemetry import Source
from simulator.world.kernel_measurements import MeasuredKernel
from simulator.world.pool import MeasuredPool, layout_of, load_pool
from simulator.world.tables import clause_broken, clause_value


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenAtRest:
    """A clause that a slice's home kernel breaks when healthy.

    value: of the clause, in ``unit``; for a rate clause, the share of prompts beyond the threshold.
    """

    kernel: str
    slice: str
    clause_id: str
    hard: bool
    value: float
    limit: float
    unit: str

    def __str__(self) -> str:
        kind = " (hard)" if self.hard else ""
        return (
            f"{self.kernel}, home of {self.slice}, breaks {self.clause_id}{kind} with nothing injected: "
            f"{self.value:.3g} {self.unit} against {self.limit:.3g}"
        )


#: Consequence and next step, for messages.
CONSEQUENCE = (
    "no incident can recover there, and its MTTR says nothing; give the slice a home that keeps the "
    "contract, or the clause a limit that the healthy kernel keeps"
)


def broken_at_rest(spec: ScenarioSpec, file: str) -> tuple[BrokenAtRest, ...]:
    """Clauses that the home kernels of scenario ``spec`` break when healthy; its URIs are relative to
    ``file``.

    Raises DocumentError for a pool, profile or contract that cannot be used.
    """
    return broken_in_pool(load_pool(spec, file))


def broken_in_pool(pool: MeasuredPool) -> tuple[BrokenAtRest, ...]:
    """The same for a loaded pool, slice by slice."""
    layout = layout_of(pool, {})
    contract = compile_contract(pool.contract, layout)
    found = []
    for place, name in enumerate(layout.slices):
        kernel = pool.kernels[pool.home_of(name)]
        found += list(_broken(pool, kernel, contract, place, layout.probe_metrics))
    return tuple(found)


def _broken(
    pool: MeasuredPool,
    kernel: MeasuredKernel,
    contract: CompiledContract,
    place: int,
    columns: tuple[str, ...],
) -> Iterator[BrokenAtRest]:
    """Probe clauses that ``kernel`` breaks on the slice at index ``place``."""
    name = contract.slices[place]
    rows = kernel.samples.rows("traffic", name)
    documents = {clause.id: clause for clause in pool.contract.spec.clauses}
    for clause in np.flatnonzero(
        (contract.source == int(Source.PROBE)) & contract.applies[:, place]
    ).tolist():
        column = columns[int(contract.column[clause])]
        values = kernel.samples.prompt_values(column, HEALTHY, rows)[None]
        if not clause_broken(values, contract, clause)[0]:
            continue
        is_rate, identity = bool(contract.is_rate[clause]), contract.clause_ids[clause]
        yield BrokenAtRest(
            kernel=kernel.entry.name,
            slice=name,
            clause_id=identity,
            hard=bool(contract.hard[clause]),
            value=float(clause_value(values, contract, clause)[0]),
            limit=float(contract.rate_limit[clause] if is_rate else contract.threshold[clause]),
            unit="of the prompts beyond it" if is_rate else metric(documents[identity].metric).unit,
        )
