"""A drill on a fleet of this machine: one that is running, or one started for the drill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from contracts.documents import KernelContract
from contracts.errors import DocumentError, MissingPartError, Problem, refusal
from contracts.loading.loader import load_as
from contracts.telemetry import SampleRates
from faults.drill.ledger import DrillLedger, only_drill, pending, take_back
from faults.drill.outcome import DrillOutcome, judge
from faults.drill.runner import Say, run_drill
from faults.inside.gate import CallRefusedError
from live.control.setup import LiveDocuments, live_setup
from live.drill.fleet import LocalFleet
from live.drill.healer import NoHealer
from live.drill.servers import open_for_drills
from live.drill.target import LiveTarget, frame_of
from live.fleet.background import running_fleet
from live.fleet.plan import FleetPlan, ServerOptions, plan_fleet
from live.fleet.state import FleetFolder, FleetState, is_up, read_state
from live.fleet.supervisor import SupervisorOptions
from live.gateway.process import find_envoy
from live.load import LoadRecord
from policies.route import coverage_gaps
from scripts.drill.documents import ReadDrill, check_live
from scripts.drill.healer import RunningController, driving_document
from scripts.drill.inputs import NOBODY, contract_file

#: Options of a trial controller: requests to replicas do not affect the check.
_RATES = SampleRates(probes_per_s=1.0, scrape_interval_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """A judged drill and every request of its load."""

    outcome: DrillOutcome
    requests: list[LoadRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDrill:
    """A drill with its fleet and contract."""

    read: ReadDrill
    fleet: FleetPlan
    contract_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DrilledPolicy:
    """The policy that heals, and the seed of the load. name: as in results; "": the policy. meta: URI of the
    meta-contract of the policy; "": that of its artefact, else the shipped one.
    """

    policy: str
    seed: int
    name: str = ""
    meta: str = ""


def drill_local(read: ReadDrill, folder: FleetFolder, driver: DrilledPolicy, say: Say) -> LocalRun:
    """Run and judge the drill ``read`` on the fleet in ``folder``, which is started if none is running.

    Raises DocumentError for a fault that cannot be injected and for the findings of ``refuse_unfit``,
    LiveError and DrillError for a fleet that does not take part or that another process drills.
    """
    drill = local_drill(read, folder)
    refuse_unfit((drill,), folder, (driver,))
    with drilled_fleet(drill.fleet, folder, say):
        return run_on(drill, folder, driver, say)


def refuse_unfit(drills: Iterable[LocalDrill], folder: FleetFolder, drivers: Iterable[DrilledPolicy]) -> None:
    """DocumentError with every reason that prevents ``drills`` in ``folder`` under ``drivers``: a policy that
    does not fit the fleet or its contract, or whose certificate does not cover it; a load of missing
    slices; another fleet in the folder; a part that is not installed.

    Ports are not checked: fleets of drills take free ones.
    """
    asked = tuple(drills)
    found = [*_fleets(asked, folder), *_loads(asked)]
    for problems in unfit_policies(asked, drivers).values():
        found += problems
    if found:
        raise DocumentError(found)


def unfit_policies(
    drills: Iterable[LocalDrill], drivers: Iterable[DrilledPolicy]
) -> dict[str, list[Problem]]:
    """By policy, the reasons why those of ``drivers`` that do not fit cannot drive fleets of ``drills``."""
    judged = {(one.fleet.pool, one.contract_file): one for one in drills}
    found: dict[str, list[Problem]] = {}
    for healer in {(one.policy, one.meta): one for one in drivers}.values():
        problems = [problem for one in judged.values() for problem in _policy(one, healer)]
        if problems:
            found.setdefault(healer.policy, []).extend(problems)
    return found


def _fleets(drills: tuple[LocalDrill, ...], folder: FleetFolder) -> Iterator[Problem]:
    """Problems of the fleet in ``folder``, or of the documents that would start it."""
    state = read_state(folder)
    if state is None or not is_up(state):
        yield from _missing_parts()
        return
    for one in {one.fleet.pool: one.fleet for one in drills}.values():
        yield from _another(state, one, folder)


def _another(state: FleetState, wanted: FleetPlan, folder: FleetFolder) -> Iterator[Problem]:
    """Differences of the fleet that runs in ``folder`` from ``wanted``."""
    end = "name another --folder, or end that fleet with `selvage fleet down`"
    here = {server.name for server in state.servers}
    lacking = [replica.name for replica in wanted.replicas if replica.name not in here]
    if state.pool != wanted.pool:
        yield Problem(str(folder.path), 0, "pool", wanted.pool, f"a fleet of {state.pool} runs", end)
    elif lacking:
        actual = f"a fleet without {', '.join(lacking)}"
        yield Problem(str(folder.path), 0, "replicas", f"those of {wanted.pool}", actual, end)


def _missing_parts() -> Iterator[Problem]:
    """Required parts of a fleet that are not installed."""
    try:
        find_envoy()
    except MissingPartError as error:
        yield Problem("this machine", 0, "Envoy", "installed", str(error), "install it")
    if find_spec("vllm") is None:
        step = "run `make setup-test`, or `pip install 'selvage-fleet[live]'` and vllm"
        yield Problem("this machine", 0, "vLLM", "installed", "no module vllm", step)


def _loads(drills: tuple[LocalDrill, ...]) -> Iterator[Problem]:
    """Loads that name slices which the fleet lacks."""
    for one in drills:
        unknown = [part.slice for part in one.read.plan.slices if part.slice not in one.fleet.slices]
        if unknown:
            expected = f"slices of {', '.join(one.fleet.slices)}"
            step = "name slices that have a home in the pool"
            yield Problem(str(one.read.file), 0, "spec.load.slice_mix", expected, ", ".join(unknown), step)


def _policy(drill: LocalDrill, driver: DrilledPolicy) -> Iterator[Problem]:
    """Why ``driver`` cannot drive the fleet of ``drill``: its document is compiled as `selvage run` does."""
    if driver.policy == NOBODY:
        return
    try:
        documents = _documents(drill, driver)
        setup = live_setup(documents, _by_kernel(drill), _RATES).setup
    except DocumentError as error:
        yield from error.problems
        return
    for gap in coverage_gaps(documents.policy, str(documents.policy_file), setup.fleet).policy:
        expected = f"a certificate that speaks of the fleet of {drill.fleet.pool}, else a fallback drives"
        step = "leave the policy out, or certify it: selvage policy certify --help"
        yield Problem("--policy", 0, driver.policy, expected, gap, step)


def _documents(drill: LocalDrill, driver: DrilledPolicy) -> LiveDocuments:
    read, contract = drill.read, drill.contract_file
    return LiveDocuments(
        pool=read.pool,
        pool_file=read.pool_file,
        contract=load_as(KernelContract, contract),
        policy=driving_document(drill.fleet.pool, driver.policy, driver.meta, contract),
        policy_file=read.file,
    )


def _by_kernel(drill: LocalDrill) -> dict[str, tuple[str, ...]]:
    replicas = drill.fleet.replicas
    kernels = dict.fromkeys(one.kernel for one in replicas)
    return {name: tuple(one.name for one in replicas if one.kernel == name) for name in kernels}


def local_drill(read: ReadDrill, folder: FleetFolder) -> LocalDrill:
    """``read`` prepared for a fleet in ``folder``; DocumentError for a fault that cannot be injected."""
    try:
        check_live(read.plan)
    except CallRefusedError as error:
        step = "run it with --target sim"
        raise refusal(read.file, "live faults", str(error), step, path="spec.faults") from None
    fleet = plan_fleet(read.pool, read.pool_file, ServerOptions(), folder.path.parent / "checkpoints")
    return LocalDrill(read=read, fleet=fleet, contract_file=contract_file(read))


def run_on(drill: LocalDrill, folder: FleetFolder, driver: DrilledPolicy, say: Say) -> LocalRun:
    """Run and judge ``drill`` on the fleet that runs in ``folder``, inside ``drilled_fleet``."""
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
    healer = NoHealer() if driver.policy == NOBODY else driven
    frame = frame_of(plan, drill.fleet, contract, driver.name or driver.policy, driver.seed)
    ledger = DrillLedger(folder=folder.drills, name=plan.name)
    target = LiveTarget(LocalFleet(folder, ledger.records), frame, healer)
    run = run_drill(plan, target, ledger, say)
    return LocalRun(outcome=judge(plan, run), requests=target.requests)


def undo_local(folder: FleetFolder) -> list[str]:
    """Undo the faults that a dead runner left in force on the fleet in ``folder``; a line per fault."""
    if not folder.drills.is_dir():
        return []
    with only_drill(folder.drills):
        lost = pending(folder.drills)
        told = take_back(folder.drills)
    return told or ([f"{lost['drill']}: nothing was in force"] if lost else [])


@contextmanager
def drilled_fleet(plan: FleetPlan, folder: FleetFolder, say: Say) -> Iterator[None]:
    """The fleet of ``plan`` in ``folder``, locked for this runner, without faults of a dead one."""
    with only_drill(folder.drills), _fleet(plan, folder, say):
        for line in take_back(folder.drills):
            say(f"left by a lost runner: {line}")
        yield


@contextmanager
def _fleet(plan: FleetPlan, folder: FleetFolder, say: Say) -> Iterator[None]:
    """The fleet that runs in ``folder``, or one of ``plan`` until the block ends."""
    state = read_state(folder)
    if state is not None and is_up(state):
        # ``refuse_unfit`` checked this before; the fleet started, or changed, since.
        if found := list(_another(state, plan, folder)):
            raise DocumentError(found)
        yield
        return
    say(f"bringing up {len(plan.replicas)} replicas of {plan.pool}")
    with running_fleet(folder, open_for_drills(plan, folder), SupervisorOptions()) as up:
        say(f"up after {up.up_s:.1f} s: {up.gateway.url}")
        yield
    say("the fleet is down")


def default_folder(named: Path | None) -> FleetFolder:
    """Folder of the fleet of drills."""
    from live.fleet.control import fleets_folder

    return FleetFolder(path=(named or fleets_folder() / "live").resolve())
