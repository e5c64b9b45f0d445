"""What E5 runs on real servers: drills as scenarios, policies as configurations, one window for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from contracts.documents.drill import Expectations
from contracts.errors import DocumentError, Problem
from faults.drill.plan import plan_drill
from live.fleet.state import FleetFolder
from policies.kinds import POLICIES
from scripts.drill.documents import ReadDrill, read_drill
from scripts.drill.local import LocalDrill, local_drill
from scripts.e5.configurations import BASELINE_CONFIGURATION, INFORMED, Configuration, parse_configuration
from scripts.e5.suite import group_of

#: Short names of the suite's drills; the one without a fault is ``HEALTHY``.
DRILLS = {"silent": "three-bits", "crash": "crash", "hang": "hang", "slow": "slow"}
HEALTHY = "healthy"
#: What runs where nobody says otherwise.
SUITE = (*DRILLS, HEALTHY)
CONFIGURATIONS = ("fixed", "breaker", "hysteresis", "sequential", "learned")
#: How long a fault is in force: E5 counts a recovery that lasts a minute.
HOLD_S = 120.0
#: Beside an episode: a controller that starts, a fleet that comes to rest.
_BESIDE_S = 25.0
_AFTER_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """What the command line asks for. folder: of the fleet; empty tuples: the whole suite."""

    out: Path
    folder: FleetFolder
    policies: tuple[str, ...] = ()
    drills: tuple[str, ...] = ()
    seeds: int = 1
    hold_s: float = HOLD_S
    command: str = "selvage e5 --target local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One scenario: a drill on the fleet. group: as in the simulator's suites."""

    name: str
    group: str
    drill: LocalDrill

    @property
    def read(self) -> ReadDrill:
        """The drill's documents."""
        return self.drill.read


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One drill under one policy with one seed of its load."""

    entry: Entry
    configuration: Configuration
    seed: int

    @property
    def name(self) -> str:
        """Name of the episode's folder."""
        return f"{self.entry.name}.{self.configuration.name}.{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlan:
    """A checked run. episodes: policies side by side, so that all of them see the machine alike."""

    entries: tuple[Entry, ...]
    configurations: tuple[Configuration, ...]
    seeds: tuple[int, ...]
    episodes: tuple[Episode, ...]

    def expected_s(self, episodes: int) -> float:
        """How long so many ``episodes`` take, about; without what brings the fleet up."""
        each_s = [one.read.plan.total_s + _BESIDE_S for one in self.entries]
        return episodes * sum(each_s) / len(each_s)


def plan_local(options: LocalOptions) -> LocalPlan:
    """Load and check everything; DocumentError for a drill or a policy that cannot run here."""
    entries = tuple(_entry(name, options) for name in dict.fromkeys(options.drills or SUITE))
    configurations = tuple(_configuration(one) for one in dict.fromkeys(options.policies or CONFIGURATIONS))
    pools = {one.drill.fleet.pool: one.name for one in entries}
    if len(pools) > 1:
        told = ", ".join(f"{pool} of {name}" for pool, name in pools.items())
        raise refused(
            "--drills", "drills of one pool, as one fleet runs them all", told, "run each by itself"
        )
    seeds = tuple(range(1, options.seeds + 1))
    return LocalPlan(
        entries=entries,
        configurations=configurations,
        seeds=seeds,
        episodes=tuple(
            Episode(entry=entry, configuration=configuration, seed=seed)
            for seed in seeds
            for entry in entries
            for configuration in configurations
        ),
    )


def _entry(name: str, options: LocalOptions) -> Entry:
    found = read_drill(DRILLS.get(name, DRILLS["silent"] if name == HEALTHY else name))
    read = _calm(found) if name == HEALTHY else found
    read = _held(read, options.hold_s, calm=name == HEALTHY)
    short = name if name in SUITE else read.plan.name
    group = "control" if name == HEALTHY else group_of(read.drill.spec.faults)
    return Entry(name=short, group=group, drill=local_drill(read, options.folder))


def _held(read: ReadDrill, hold_s: float, *, calm: bool) -> ReadDrill:
    """``read`` with every fault in force for ``hold_s`` from the last onset on, and nothing that ends it."""
    spec = read.drill.spec
    faults = tuple(one.model_copy(update={"duration_s": None}) for one in spec.faults)
    lasts_s = max(one.onset_s for one in faults) + hold_s
    own = {"faults": faults, "time_to_live_s": lasts_s, "after_s": _AFTER_S, "abort_when": ()}
    drill = read.drill.model_copy(update={"spec": spec.model_copy(update=own)})
    plan = plan_drill(drill, str(read.file), read.pool.spec)
    if calm:
        plan = replace(plan, strikes=(), onset_s=plan.total_s, undo_at_s=plan.total_s)
    return replace(read, drill=drill, plan=plan)


def _calm(read: ReadDrill) -> ReadDrill:
    """The load of ``read`` without its faults: whoever moves anything there, moves it for nothing."""
    meta = read.drill.metadata.model_copy(update={"name": HEALTHY})
    own = {"description": "Nothing happens.", "expect": Expectations(false_switches_at_most=0)}
    spec = read.drill.spec.model_copy(update=own)
    return replace(read, drill=read.drill.model_copy(update={"metadata": meta, "spec": spec}))


def _configuration(text: str) -> Configuration:
    """A policy by its name: a RoutePolicy, which drives live fleets, names it without settings."""
    found = parse_configuration(text)
    if found.name not in POLICIES or found.name == INFORMED:
        expected = f"a policy by its name, without settings; not {INFORMED}, whom nobody tells of live faults"
        raise refused("--policies", expected, text, f"e.g. --policies {BASELINE_CONFIGURATION},sequential")
    return found


def refused(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    """An error about an option of ``selvage e5 --target local``."""
    return DocumentError([Problem("selvage e5 --target local", 0, path, expected, actual, next_step)])
