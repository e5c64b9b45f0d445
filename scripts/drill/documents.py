"""Drill documents: found by file, URI or shipped name, resolved with their pool; and where they can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contracts.documents import FaultDrill, KernelPool
from contracts.errors import DocumentError, SelvageError
from contracts.loading.loader import load_as
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import resolve_uri
from faults.client.replica import wire_form
from faults.drill.plan import DrillPlan, plan_drill
from faults.inside.document import fault_of
from faults.inside.gate import CallRefusedError
from simulator.drill import drill_scenario
from simulator.world.scenario import compile_scenario

_DRILLS = f"{LIBRARY}drills/"
_HERE = Path("command line")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDrill:
    """A drill with all documents that it refers to."""

    drill: FaultDrill
    file: Path
    pool: KernelPool
    pool_file: Path
    plan: DrillPlan


def find_drill(named: str) -> Path:
    """Path of a drill: a shipped name such as ``four-bits``, a file, or a ``package:`` URI."""
    shipped = resolve_uri(f"{_DRILLS}{named}.yaml", _HERE) if named and "/" not in named else None
    return shipped if shipped is not None and shipped.is_file() else resolve_uri(named, _HERE)


def read_drill(named: str) -> ReadDrill:
    """The drill called ``named`` with its pool; DocumentError if either is invalid."""
    file = find_drill(named)
    drill = load_as(FaultDrill, file)
    uri = drill.spec.pool_uri or f"{LIBRARY}{drill.spec.pool}.yaml"
    pool_file = resolve_uri(uri, file)
    pool = load_as(KernelPool, pool_file)
    plan = plan_drill(drill, str(file), pool.spec)
    return ReadDrill(drill=drill, file=file, pool=pool, pool_file=pool_file, plan=plan)


def shipped_drills() -> tuple[str, ...]:
    """Names of the drills of the library."""
    folder = resolve_uri(_DRILLS, _HERE)
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def targets_of(read: ReadDrill) -> dict[str, str]:
    """For each target the reason why the drill cannot run there; empty if it can."""
    return {"sim": _said(lambda: _simulated(read)), "local": _said(lambda: check_live(read.plan))}


def check_live(plan: DrillPlan) -> None:
    """CallRefusedError if a fault of ``plan`` cannot be injected into live servers."""
    for strike in plan.strikes:
        fault = strike.fault
        if fault.shape not in ("step", "intermittent"):
            raise CallRefusedError(f"{fault.name}: shape {fault.shape}; live faults are on or off")
        if strike.replicas:
            fault_of(wire_form(fault))


def _simulated(read: ReadDrill) -> None:
    scenario = drill_scenario(read.plan, read.pool.spec, read.pool_file, read.plan.strikes)
    compile_scenario(scenario, str(read.file))


def _said(check: Callable[[], None]) -> str:
    try:
        check()
    except DocumentError as error:
        return "; ".join(f"{one.path}: expected {one.expected}, got {one.actual}" for one in error.problems)
    except (SelvageError, CallRefusedError) as error:
        return str(error)
    return ""
