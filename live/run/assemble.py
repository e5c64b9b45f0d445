"""Assembles a controller with all its parts: for a fleet of ``selvage fleet up``, or for addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from contracts.documents import KernelContract
from contracts.errors import DocumentError, refusal
from contracts.units import MS_PER_S
from controller.initial import initial_state
from controller.options import ControllerSetup
from live.control.claim import StateKeeper, controlling, kept_state
from live.control.clocks import SteadyClock
from live.control.journal import CONTROL, Beginning, DecisionLog, PassiveJournal, code_version
from live.control.loop import ControlPorts, LiveController, TurnWatcher
from live.control.setup import expected_fingerprints, live_setup
from live.control.source import FleetSource, ProbeStep, SourceParts
from live.control.turns import decide
from live.fleet.control import gateway_control, require_up, restart_and_wait
from live.fleet.plan import load_pool
from live.fleet.state import FleetDiscovery, FleetFolder
from live.gateway.actuator import EnvoyActuator, RoutingFrame
from live.gateway.admin import EnvoyAdmin
from live.gateway.statistics import GatewayLogs
from live.observe.metrics import EngineReading, gauge
from live.observe.passive import PassiveWatch
from live.observe.scrape_notes import ScrapeWatch
from live.observe.scraper import Scraper
from live.observe.trust import FleetTrust
from live.probe.prober import ProbePlan, Prober
from live.run.evidence import EVIDENCE, DescribedReplica, IncidentEvidence, ReferenceAnswer
from live.run.generation import generation_columns, generation_plans
from live.run.options import RunOptions, documents_for, recipe
from live.run.own_gateway import serving_gateway
from live.run.probing import ProbeLoadLimiter, first_model, probe_plan, sample_rates
from live.run.readmission import returning
from live.run.sampled_answers import sampled
from live.run.urls import UrlDiscovery, replica_addresses
from live.run.world import World, access, engine_of

#: Longest time that a condemned replica may take for the answer that is kept as evidence, s.
_EVIDENCE_S = 10.0
#: Longest time of a restarted server until it serves, s.
_RESTART_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A controller that is ready to step, with notes to print."""

    controller: LiveController
    log: DecisionLog
    prober: Prober
    passive: PassiveWatch
    scrapes: ScrapeWatch
    notes: tuple[str, ...]
    folder: Path  # state and log


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watches:
    """The scraper and its listeners."""

    scraper: Scraper
    prober: Prober
    passive: PassiveWatch
    crowding: ProbeLoadLimiter
    scrapes: ScrapeWatch
    trust: FleetTrust

    def receive(self, readings: Mapping[str, EngineReading]) -> None:
        """Pass on the scrapes that ended, by replica."""
        self.prober.receive(gauge("waiting", readings))
        self.prober.paces |= self.crowding.paces(readings)
        self.passive.receive(readings)
        self.scrapes.receive(readings)


@contextmanager
def controlled_fleet(
    folder: FleetFolder, options: RunOptions, watchers: tuple[TurnWatcher, ...] = (), pool: str = ""
) -> Iterator[Assembled]:
    """The controller of the running fleet in ``folder``; with ``options.observe`` it moves nothing.

    pool: URI of the fleet's KernelPool, if the fleet's state does not name it. Raises LiveError if no fleet
    runs there or another controller is in charge, DocumentError for documents that do not fit.
    """
    state = require_up(folder)
    document, file = load_pool(pool or state.pool_file)
    if document.metadata.name != state.pool:
        raise _refusal(file, "metadata.name", state.pool, document.metadata.name, "name the pool that runs")
    with ExitStack() as stack:
        stack.enter_context(controlling(folder.path / CONTROL))
        driver = None if options.observe else stack.enter_context(gateway_control(folder))
        admin = stack.enter_context(closing(EnvoyAdmin(state.gateway.admin_url)))
        discovery = FleetDiscovery(folder)
        world = World(
            folder=folder.path / CONTROL,
            pool=document,
            pool_file=file,
            replicas=discovery.replicas(),
            discovery=discovery,
            model=options.model or state.served_name,
            fleet=f"{state.supervisor.pid}-{state.supervisor.started_ticks}",
            statistics=GatewayLogs(folder.gateway, admin, state.slices),
            driver=driver,
            default_slice=state.default_slice,
            engine=engine_of(folder),
            restart=lambda name: restart_and_wait(folder, name, _RESTART_S),
        )
        yield stack.enter_context(_assembled(world, options, watchers))


@contextmanager
def listed_servers(
    pool: str, folder: Path, options: RunOptions, port: int | None = None
) -> Iterator[Assembled]:
    """A controller of the servers with addresses listed in ``pool``.

    folder: for its state, log and reference. port: of an own Envoy before the servers (0: any free port);
    None: no Envoy, so it only observes. Raises LiveError if another controller is in charge there,
    DocumentError for a kernel without servers or an unreachable reference.
    """
    document, file = load_pool(pool)
    servers = {one.name: one.servers for one in document.spec.kernels if one.servers}
    lacking = [one.name for one in document.spec.kernels if not one.servers and one.role != "reference"]
    if lacking:
        hint = "list the addresses: servers: [http://HOST:PORT]"
        raise _refusal(file, f"spec.kernels[{lacking[0]}].servers", "addresses of servers", "none", hint)
    found = replica_addresses(servers)
    reached = access(options, found[0].url)
    with ExitStack() as stack:
        stack.enter_context(controlling(folder))
        model = options.model or first_model(reached)
        discovery = UrlDiscovery(found, stack.enter_context(reached.client()), model)
        stack.callback(discovery.close)
        replicas = discovery.refresh()
        world = World(
            folder=folder,
            pool=document,
            pool_file=file,
            replicas=replicas,
            discovery=discovery,
            model=model,
        )
        if port is None:
            yield stack.enter_context(_assembled(world, options, ()))
            return
        front = stack.enter_context(serving_gateway(folder, document, file, replicas, port))
        driven = replace(
            world,
            statistics=front.statistics,
            driver=front.driver,
            default_slice=document.spec.home[0].slice,
        )
        one = stack.enter_context(_assembled(driven, options, (front.rotation,)))
        yield replace(one, notes=(front.description, *one.notes))


@contextmanager
def _assembled(world: World, options: RunOptions, watchers: tuple[TurnWatcher, ...]) -> Iterator[Assembled]:
    documents = documents_for(world.pool, world.pool_file, options)
    plan = _plan(world, options, documents.contract)
    rates = sample_rates(options.probes, plan, options.scrape_s)
    found = live_setup(documents, world.by_kernel(), rates)
    setup = found.setup
    state, why = kept_state(world.folder, setup, world.fleet)
    clock = SteadyClock(not_before_at_s=0.0 if state is None else float(state.now_s[0]))
    with ExitStack() as stack:
        prober = stack.enter_context(_prober(world, options, setup, plan, clock))
        watches = _watches(world, options, plan, prober)
        users = stack.enter_context(sampled(setup.fleet, prober, world.folder, options.sampled_port))
        source = stack.enter_context(closing(_source(world, setup, clock, watches, users.probes)))
        decide(initial_state(setup, 1), source.read(), setup)  # compiles; telemetry so far is discarded
        told = recipe(documents, options, world.by_kernel(), rates)
        evidence = stack.enter_context(closing(_evidence(world, options, setup, plan)))
        beginning = Beginning(setup=setup, state=state, documents=told, code_version=code_version())
        log = stack.enter_context(closing(DecisionLog(world.folder, beginning)))
        keeper = StateKeeper(world.folder, setup, fleet=world.fleet)
        alarms = PassiveJournal(log, watches.passive, watches.scrapes)
        actuator = _actuator(world, setup)
        returns, how = returning(world, options, plan.prompts, stack) if actuator else (None, "")
        ports = ControlPorts(
            source=source,
            clock=clock,
            actuator=actuator,
            resetter=actuator,
            returns=returns,
            admits=actuator,
            watchers=(log, alarms, keeper, evidence, *users.watchers, *watchers),
        )
        yield Assembled(
            controller=LiveController(setup, ports, state),
            log=log,
            prober=prober,
            passive=watches.passive,
            scrapes=watches.scrapes,
            notes=(*found.notes, *users.notes, *filter(None, [how]), *_begun(log, state is not None, why)),
            folder=world.folder,
        )


def _plan(world: World, options: RunOptions, contract: KernelContract) -> ProbePlan:
    """The probes of every replica, with the answers of the trusted server, which is asked once."""
    kernel, url = world.trusted()
    endpoint = access(options, options.probes.reference_url or url, world.model)
    slices = [home.slice for home in world.pool.spec.home]
    plan = probe_plan(options.probes, slices, endpoint, world.folder / "reference", kernel)
    asked = generation_columns(contract)
    return replace(
        plan,
        generation=generation_plans(
            options.probes, asked, plan.prompts, endpoint, world.folder / "reference", kernel
        ),
    )


def _prober(
    world: World,
    options: RunOptions,
    setup: ControllerSetup,
    plan: ProbePlan,
    clock: SteadyClock,
) -> Prober:
    """The prober of the layout's replicas."""
    urls = {one.name: one.url for one in world.replicas if one.name in setup.layout.replicas}
    client = access(options, next(iter(urls.values()))).client()
    return Prober(setup.layout, plan, urls, world.model, clock.now_ms() / MS_PER_S, client)


def _watches(world: World, options: RunOptions, plan: ProbePlan, prober: Prober) -> _Watches:
    client = access(options, world.replicas[0].url).client()
    scraper, trust = Scraper(options.scrape_timeout_s, client), FleetTrust()
    return _Watches(
        scraper=scraper,
        prober=prober,
        passive=PassiveWatch(),
        crowding=ProbeLoadLimiter(plan.tokens_per_s),
        scrapes=ScrapeWatch(
            lambda: {**scraper.failed, **world.unreached()}, lambda: prober.uninformative, trust
        ),
        trust=trust,
    )


def _source(
    world: World,
    setup: ControllerSetup,
    clock: SteadyClock,
    watches: _Watches,
    probes: ProbeStep,
) -> FleetSource:
    return FleetSource(
        SourceParts(
            layout=setup.layout,
            discovery=world.discovery,
            scraper=watches.scraper,
            clock=clock,
            statistics=world.statistics,
            prober=probes,
            listeners=(watches.receive,),
            fingerprints=expected_fingerprints(world.pool),
            trust=watches.trust,
        )
    )


def _evidence(world: World, options: RunOptions, setup: ControllerSetup, plan: ProbePlan) -> IncidentEvidence:
    """The watcher that keeps the answers of condemned replicas."""
    pairs = zip(plan.prompts, plan.references, strict=True)
    right = {one.id: ReferenceAnswer(prompt=one, reference=reference) for one, reference in pairs}

    def find(name: str) -> DescribedReplica:
        now = next(one for one in world.discovery.replicas() if one.name == name)
        engine = {"kernel": now.kernel, "fingerprint": now.fingerprint, **world.engine(name)}
        endpoint = replace(access(options, now.url, world.model), timeout_s=_EVIDENCE_S)
        return DescribedReplica(endpoint=endpoint, engine=engine)

    return IncidentEvidence(world.folder / EVIDENCE, setup, right, find)


def _actuator(world: World, setup: ControllerSetup) -> EnvoyActuator | None:
    if world.driver is None:
        return None
    frame = RoutingFrame(layout=setup.layout, default_slice=world.default_slice)
    return EnvoyActuator(world.driver, world.discovery, frame)


def _begun(log: DecisionLog, resumed: bool, why: str) -> Iterator[str]:
    """Notes about state and log at the start."""
    yield "goes on from the state that was kept" if resumed else f"begins with nothing known: {why}"
    if log.repaired_bytes:
        yield f"the decision log ended in a torn line of {log.repaired_bytes} bytes, which was cut off"


def _refusal(file: Path, path: str, expected: str, actual: str, hint: str) -> DocumentError:
    return refusal(file, expected, actual, hint, path=path)
