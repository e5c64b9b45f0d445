"""A drill on a fleet of this machine: one that runs, or one that lives as long as the drill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contracts.documents import KernelContract
from contracts.errors import DocumentError, Problem
from contracts.loading.loader import load_as
from faults.drill.ledger import DrillLedger, only_drill, pending, take_back
from faults.drill.outcome import DrillOutcome, judge
from faults.drill.runner import Say, run_drill
from faults.inside.gate import CallRefusedError
from live.drill.fleet import LocalFleet
from live.drill.servers import open_for_drills
from live.drill.target import LiveTarget, Nobody, frame_of
from live.errors import LiveError
from live.fleet.background import running_fleet
from live.fleet.plan import FleetPlan, ServerOptions, plan_fleet
from live.fleet.state import FleetFolder, is_up, read_state
from live.fleet.supervisor import SupervisorOptions
from live.load import LoadRecord
from scripts.drill.documents import ReadDrill, check_live
from scripts.drill.healer import RunningController
from scripts.drill.inputs import NOBODY, contract_file


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """A judged drill and every request of its load."""

    outcome: DrillOutcome
    requests: list[LoadRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDrill:
    """A drill with the fleet that it is for and the contract that it is judged by."""

    read: ReadDrill
    fleet: FleetPlan
    contract_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DrilledPolicy:
    """Who heals, and the seed of the load. name: as in results; "": the policy. meta: URI of the
    meta-contract that keeps the policy; "": that of its artefact, else the shipped one.
    """

    policy: str
    seed: int
    name: str = ""
    meta: str = ""


def drill_local(read: ReadDrill, folder: FleetFolder, driver: DrilledPolicy, say: Say) -> LocalRun:
    """Run and judge ``read`` on the fleet in ``folder``, which is started for the drill where none runs.

    Raises DocumentError for a fault that cannot be injected, LiveError and DrillError for a fleet that does
    not take part or that somebody else drills.
    """
    drill = local_drill(read, folder)
    with drilled_fleet(drill.fleet, folder, say):
        return run_on(drill, folder, driver, say)


def local_drill(read: ReadDrill, folder: FleetFolder) -> LocalDrill:
    """``read`` made ready for a fleet in ``folder``; DocumentError for a fault that cannot be injected."""
    try:
        check_live(read.plan)
    except CallRefusedError as error:
        step = "run it with --target sim"
        raise DocumentError(
            [Problem(str(read.file), 0, "spec.faults", "live faults", str(error), step)]
        ) from None
    fleet = plan_fleet(read.pool, read.pool_file, ServerOptions(), folder.path.parent / "checkpoints")
    return LocalDrill(read=read, fleet=fleet, contract_file=contract_file(read))


def run_on(drill: LocalDrill, folder: FleetFolder, driver: DrilledPolicy, say: Say) -> LocalRun:
    """Run and judge ``drill`` on the fleet that runs in ``folder``, inside of ``drilled_fleet``."""
    plan, contract = drill.read.plan, load_as(KernelContract, drill.contract_file).spec
    driven = RunningController(
        folder=folder,
        pool=drill.fleet.pool,
        policy=driver.policy,
        meta=driver.meta,
        contract=drill.contract_file,
        say=say,
        undo=plan.spec.undo,
    )
    healer = Nobody() if driver.policy == NOBODY else driven
    frame = frame_of(plan, drill.fleet, contract, driver.name or driver.policy, driver.seed)
    ledger = DrillLedger(folder=folder.drills, name=plan.name)
    target = LiveTarget(LocalFleet(folder, ledger.records), frame, healer)
    run = run_drill(plan, target, ledger, say)
    return LocalRun(outcome=judge(plan, run), requests=target.requests)


def undo_local(folder: FleetFolder) -> list[str]:
    """Take back what a lost runner left in force on the fleet in ``folder``; a line per fault."""
    if not folder.drills.is_dir():
        return []
    with only_drill(folder.drills):
        lost = pending(folder.drills)
        told = take_back(folder.drills)
    return told or ([f"{lost['drill']}: nothing was in force"] if lost else [])


@contextmanager
def drilled_fleet(plan: FleetPlan, folder: FleetFolder, say: Say) -> Iterator[None]:
    """The fleet of ``plan`` in ``folder`` for this runner alone, with nothing of a lost one in force."""
    with only_drill(folder.drills), _fleet(plan, folder, say):
        for line in take_back(folder.drills):
            say(f"left by a lost runner: {line}")
        yield


@contextmanager
def _fleet(plan: FleetPlan, folder: FleetFolder, say: Say) -> Iterator[None]:
    """The fleet that runs in ``folder``, or one of ``plan`` until the block ends."""
    state = read_state(folder)
    if state is not None and is_up(state):
        if state.pool != plan.pool:
            raise LiveError(
                f"{folder.path}: a fleet of {state.pool} runs there, the drill is for {plan.pool}; "
                "name another --folder, or end that fleet with `selvage fleet down`"
            )
        yield
        return
    say(f"bringing up {len(plan.replicas)} replicas of {plan.pool}")
    with running_fleet(folder, open_for_drills(plan, folder), SupervisorOptions()) as up:
        say(f"up after {up.up_s:.1f} s: {up.gateway.url}")
        yield
    say("the fleet is down")


def default_folder(named: Path | None) -> FleetFolder:
    """Where the fleet of drills lives."""
    from live.fleet.control import fleets_folder

    return FleetFolder(path=(named or fleets_folder() / "live").resolve())
