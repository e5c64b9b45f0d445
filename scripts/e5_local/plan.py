"""Plan of E5 on the fleet of this machine: the suite's drills, or others of one pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from contracts.documents import KernelContract
from contracts.documents.drill import Expectations
from contracts.loading.loader import load_as
from faults.drill.plan import plan_drill
from live.fleet.state import FleetFolder
from policies.supervised import meta_sha256
from scripts.drill.documents import ReadDrill, read_drill
from scripts.drill.healer import on_servers
from scripts.drill.local import LocalDrill, local_drill
from scripts.e5.configurations import Configuration
from scripts.e5.suite import group_of
from scripts.e5_drills.plan import HOLD_S, DrillSuite, Entry, configurations_of, hold_faults, option_refusal

#: Short names of the suite's drills; the one without a fault is ``WITHOUT_FAULT``.
DRILLS = {"silent": "three-bits", "crash": "crash", "hang": "hang", "slow": "slow"}
WITHOUT_FAULT = "healthy"
#: Default drills and policy configurations.
SUITE = (*DRILLS, WITHOUT_FAULT)
CONFIGURATIONS = ("fixed", "breaker", "hysteresis", "sequential", "learned")
COMMAND = "selvage e5 --target local"
#: Additional times of an episode: a controller starting, a fleet coming to rest.
_BESIDE_S = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """Options of the command line. folder: of the fleet; empty tuples: the whole suite; meta: URI of the
    meta-contract that keeps every policy, "": that of its artefact, else the shipped one.
    """

    out: Path
    folder: FleetFolder
    policies: tuple[str, ...] = ()
    drills: tuple[str, ...] = ()
    seeds: int = 1
    hold_s: float = HOLD_S
    command: str = COMMAND
    meta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSuite(DrillSuite):
    """A run with its drills in the form for fleets of this machine, by the names of its entries."""

    drills: Mapping[str, LocalDrill]


def plan_local(options: LocalOptions) -> LocalSuite:
    """Load and check everything; DocumentError for a drill or a policy that cannot run here."""
    found = dict(_drill(name, options) for name in dict.fromkeys(options.drills or SUITE))
    entries = tuple(_entry(name, drill) for name, drill in found.items())
    pools = {drill.fleet.pool: name for name, drill in found.items()}
    if len(pools) > 1:
        message = ", ".join(f"{pool} of {name}" for pool, name in pools.items())
        expected = "drills of one pool, as one fleet runs them all"
        raise option_refusal(COMMAND, "--drills", expected, message, "run each by itself")
    fleet = next(iter(found.values())).fleet
    return LocalSuite(
        target="local",
        entries=entries,
        configurations=_configurations(options, len(fleet.slices)),
        seeds=tuple(range(1, options.seeds + 1)),
        layout=fleet.layout(),
        beside_s=_BESIDE_S,
        meta_sha256=meta_sha256(options.meta),
        drills=found,
    )


def _configurations(options: LocalOptions, slices: int) -> tuple[Configuration, ...]:
    """The requested policies by name, each for a fleet of this many slices."""
    names = options.policies or CONFIGURATIONS
    found = configurations_of(names, COMMAND, options.meta, artefacts=True)
    return tuple(replace(one, spec=on_servers(one.spec, slices)) for one in found)


def _drill(name: str, options: LocalOptions) -> tuple[str, LocalDrill]:
    """Name of the entry and its drill, without guards that end it early."""
    found = read_drill(DRILLS.get(name, DRILLS["silent"] if name == WITHOUT_FAULT else name))
    read = _held(_calm(found) if name == WITHOUT_FAULT else found, options.hold_s, calm=name == WITHOUT_FAULT)
    return name if name in SUITE else read.plan.name, local_drill(read, options.folder)


def _entry(name: str, drill: LocalDrill) -> Entry:
    read = drill.read
    return Entry(
        name=name,
        group="control" if name == WITHOUT_FAULT else group_of(read.drill.spec.faults),
        drill=read.drill,
        pool=read.pool,
        contract=load_as(KernelContract, drill.contract_file),
        plan=read.plan,
    )


def _held(read: ReadDrill, hold_s: float, *, calm: bool) -> ReadDrill:
    """``read`` with every fault in force for ``hold_s`` from the last onset on, and no guard that ends it."""
    drill = hold_faults(read.drill, hold_s)
    drill = drill.model_copy(update={"spec": drill.spec.model_copy(update={"abort_when": ()})})
    plan = plan_drill(drill, str(read.file), read.pool.spec)
    if calm:
        plan = replace(plan, strikes=(), onset_s=plan.total_s, undo_at_s=plan.total_s)
    return replace(read, drill=drill, plan=plan)


def _calm(read: ReadDrill) -> ReadDrill:
    """The load of ``read`` without its faults: every move there is a false one."""
    meta = read.drill.metadata.model_copy(update={"name": WITHOUT_FAULT})
    own = {"description": "Nothing happens.", "expect": Expectations(false_switches_at_most=0)}
    spec = read.drill.spec.model_copy(update=own)
    return replace(read, drill=read.drill.model_copy(update={"metadata": meta, "spec": spec}))
