"""Plan of E5 on real servers: drills as scenarios, policies as configurations, one window for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from contracts.compiled.contract import FleetLayout
from contracts.documents import FaultDrill, KernelContract, KernelPool
from contracts.errors import DocumentError, refusal
from faults.drill.plan import DrillPlan
from policies.certify.admission import TRAINED
from policies.kinds import POLICIES
from policies.spec import parse_spec
from scripts.e5.configurations import BASELINE_CONFIGURATION, INFORMED, Configuration, parse_configuration

#: Duration of a fault: E5 counts a recovery that lasts a minute.
HOLD_S = 120.0
#: Time for which an episode is observed after the undo, s.
_AFTER_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One scenario: a drill with its pool and contract. group: as in the simulator's suites."""

    name: str
    group: str
    drill: FaultDrill
    pool: KernelPool
    contract: KernelContract
    plan: DrillPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillEpisode:
    """One drill under one policy with one seed of its load."""

    entry: Entry
    configuration: Configuration
    seed: int

    @property
    def name(self) -> str:
        """Name of the episode's folder."""
        return f"{self.entry.name}.{self.configuration.name}.{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSuite:
    """A checked run. seeds: of loads, paired between the configurations. beside_s: approximate time of an
    episode beside its drill. meta_sha256: of the meta-contract that applies to every policy (None: each has
    its own).
    """

    target: str
    entries: tuple[Entry, ...]
    configurations: tuple[Configuration, ...]
    seeds: tuple[int, ...]
    layout: FleetLayout
    beside_s: float = 0.0
    meta_sha256: str | None = None
    episodes: tuple[DrillEpisode, ...] = field(init=False)
    """Policies side by side, so that all of them meet equal servers."""

    def __post_init__(self) -> None:
        """Build all pairs."""
        found = tuple(
            DrillEpisode(entry=entry, configuration=configuration, seed=seed)
            for seed in self.seeds
            for entry in self.entries
            for configuration in self.configurations
        )
        object.__setattr__(self, "episodes", found)

    def expected_s(self, episodes: int) -> float:
        """Approximate duration of ``episodes``, without starting servers."""
        each_s = [one.plan.total_s + self.beside_s for one in self.entries]
        return episodes * sum(each_s) / len(each_s)


def hold_faults(drill: FaultDrill, hold_s: float) -> FaultDrill:
    """``drill`` with every fault in force for ``hold_s`` from the last onset on."""
    spec = drill.spec
    faults = tuple(one.model_copy(update={"duration_s": None}) for one in spec.faults)
    lasts_s = max(one.onset_s for one in faults) + hold_s
    own = {"faults": faults, "time_to_live_s": lasts_s, "after_s": _AFTER_S}
    return drill.model_copy(update={"spec": spec.model_copy(update=own)})


def configurations_of(
    names: Iterable[str], command: str, meta: str, *, artefacts: bool = False
) -> tuple[Configuration, ...]:
    """Policies by their names, each once, under ``meta`` ("": under their own): a RoutePolicy, which drives
    servers, names one without settings. artefacts: a trained one may name its artefact.
    """
    return tuple(_configuration(one, command, meta, artefacts) for one in dict.fromkeys(names))


def _configuration(text: str, command: str, meta: str, artefacts: bool) -> Configuration:
    found = parse_configuration(text, meta)
    own = artefacts and found.policy in TRAINED and text.startswith(f"{found.policy}:artefact=")
    plain = found.name in POLICIES and found.name != INFORMED
    if not plain and not (own and set(parse_spec(found.spec)[1]) == {"artefact"} and "@" not in text):
        expected = f"a policy by its name, without settings; not {INFORMED}, which is not told of live faults"
        step = f"e.g. --policies {BASELINE_CONFIGURATION},sequential"
        raise option_refusal(command, "--policies", expected, text, step)
    return found


def option_refusal(command: str, path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    """An error about an option of ``command``."""
    return refusal(command, expected, actual, next_step, path=path)
