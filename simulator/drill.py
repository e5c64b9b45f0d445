"""A drill on the simulated fleet: the same document, phases and measures as on live servers.

The whole episode is simulated when the drill begins; later steps only read it up to the present time. A fault
is proved by comparison with the same episode without that fault: both must be equal until the onset (the
negative control) and different after it. An early undo simulates the episode again with the faults ending at
that time, which changes nothing before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from contracts.documents import KernelContract, PoolSpec, Scenario
from contracts.documents.envelope import Metadata
from contracts.documents.pool import Home
from contracts.documents.scenario import Gateway, ScenarioSpec, ScheduledFault, TelemetrySettings
from contracts.documents.workload import TokenLengths, Workload
from contracts.loading.loader import load_as
from contracts.loading.shipped import SERVING_POOL
from contracts.loading.uris import resolve_uri
from contracts.scoring.episode import EpisodeRecord, truncate
from controller.healing.records import HealingPhase, drill_terms
from faults.client.replica import Proof
from faults.drill.outcome import Mended
from faults.drill.plan import HEAL_ATTEMPTS, HEAL_WAIT_S, TICK_S, DrillPlan, Strike
from simulator.drive import Driver
from simulator.fleet import run_episodes
from simulator.returning import ReturningDriver, SimulatedReturn
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

_ATTEMPTS = 3


def drill_scenario(plan: DrillPlan, pool: PoolSpec, pool_file: Path, strikes: tuple[Strike, ...]) -> Scenario:
    """The drill as a scenario with the faults of ``strikes``.

    Slices without a home get the default slice's home. Profiles and contract are named by absolute path, so
    the scenario can be compiled from any location.
    """
    spec = plan.spec
    contract = resolve_uri(spec.contract or SERVING_POOL, plan.file).resolve()
    workload = Workload(
        rate_rps=plan.load.rate_rps,
        arrivals=plan.load.arrivals,
        trace_uri=_absolute(plan.load.trace_uri, plan.file),
        slice_mix=plan.slices,
        prompt_tokens=TokenLengths(distribution="fixed", mean=float(plan.load.prompt_tokens)),
        output_tokens=TokenLengths(distribution="fixed", mean=float(plan.load.answer_tokens)),
    )
    return Scenario(
        metadata=Metadata(name=plan.name),
        spec=ScenarioSpec(
            description=spec.description,
            pool=_complete(pool, pool_file, load_as(KernelContract, contract)),
            contract=str(contract),
            horizon_s=plan.latest_at_s,
            tick_s=TICK_S,
            workload=workload,
            gateway=Gateway(timeout_s=plan.load.timeout_s, max_attempts=_ATTEMPTS),
            telemetry=TelemetrySettings(scrape_interval_s=TICK_S),
            faults=tuple(_timed(strike) for strike in strikes),
        ),
    )


def _timed(strike: Strike) -> ScheduledFault:
    """The strike's fault with its own times, without settings that only a live injection needs."""
    times = {"onset_s": strike.onset_s, "duration_s": max(strike.ends_at_s - strike.onset_s, 1e-3)}
    return strike.fault.model_copy(update=times)


def _complete(pool: PoolSpec, pool_file: Path, contract: KernelContract) -> PoolSpec:
    """``pool`` with a home for every slice of ``contract``, and profiles named by absolute path."""
    homes = {home.slice: home.kernel for home in pool.home}
    default = next((one.name for one in contract.spec.slices if one.default), "")
    usual = homes.get(default, pool.home[0].kernel)
    more = [Home(slice=one.name, kernel=usual) for one in contract.spec.slices if one.name not in homes]
    kernels = tuple(
        kernel.model_copy(update={"profile": str(_absolute(kernel.profile, str(pool_file)))})
        for kernel in pool.kernels
    )
    return pool.model_copy(update={"kernels": kernels, "home": (*pool.home, *more)})


def _absolute(uri: str | None, file: str) -> str | None:
    return None if uri is None else str(resolve_uri(uri, file).resolve())


class SimulatedTarget:
    """``faults.drill.runner.DrillTarget`` over the simulator; ``driver`` makes the driver of a scenario."""

    def __init__(
        self,
        plan: DrillPlan,
        pool: PoolSpec,
        pool_file: Path,
        driver: Callable[[CompiledScenario], Driver],
        seed: int,
    ) -> None:
        self._plan, self._pool, self._pool_file = plan, pool, pool_file
        self._driver, self._seed = driver, seed
        self._now_s = 0.0
        self._without: dict[str, EpisodeRecord] = {}
        self._struck: tuple[str, ...] = ()
        self._returns: dict[str, SimulatedReturn] = {}
        self._episode: EpisodeRecord | None = None

    def begin(self) -> None:
        """Simulate the drill as planned."""
        self._now_s, self._returns = 0.0, {}
        self._struck = tuple(dict.fromkeys(name for one in self._plan.strikes for name in one.replicas))
        self._episode = self._simulated(self._plan.strikes)

    def advance(self) -> float:
        """Advance by one tick, without waiting; returns the new time, in s."""
        self._now_s += TICK_S
        return self._now_s

    def record(self) -> EpisodeRecord:
        """The episode up to now."""
        assert self._episode is not None, "begin() comes first"
        return truncate(self._episode, self._now_s)

    def proof(self, strike: Strike) -> Proof:
        """Whether the episode up to now differs from the one without this fault."""
        name = strike.fault.name
        if name not in self._without:
            others = tuple(one for one in self._plan.strikes if one.fault.name != name)
            self._without[name] = self._simulated(others)
        differ = _differing(self.record(), truncate(self._without[name], self._now_s))
        message = f"differs from the episode without it in {', '.join(differ)}" if differ else "no difference"
        return Proof(happened=bool(differ), evidence=message)

    def inject(self, strike: Strike) -> None:
        """Do nothing; the fault is part of the simulated episode."""

    def keep(self) -> None:
        """Do nothing; simulated faults have no lease."""

    def undo(self, strikes: tuple[Strike, ...]) -> tuple[bool, str]:
        """End the faults of ``strikes`` now; the episode is simulated again if they would have
        lasted longer.
        """
        late = {one.fault.name for one in strikes if one.ends_at_s > self._now_s}
        if late:
            cut = tuple(
                replace(one, ends_at_s=min(one.ends_at_s, self._now_s))
                for one in self._plan.strikes
                if one.onset_s < self._now_s
            )
            self._episode = self._simulated(cut)
        return True, "the simulated faults ended"

    def mend(self) -> tuple[Mended, ...]:
        """Verify the struck replicas: a replica is healthy if it breaks no clause in this tick."""
        record = self.record()
        broken = (record.violating[-1] | record.runtime_violating[-1]).any(axis=1)
        for name in self._struck:
            if name not in self._returns:
                self._returns[name] = SimulatedReturn.at(
                    name, drill_terms(self._plan.spec.undo, HEAL_WAIT_S, HEAL_ATTEMPTS), self._now_s
                )
            unhealthy = bool(broken[record.replicas.index(name)])
            self._returns[name].turn(self._now_s, "it does not answer as before" if unhealthy else "")
        return tuple(_mended(one) for one in self._returns.values())

    def end(self) -> None:
        """Do nothing; no process is running."""

    def _simulated(self, strikes: tuple[Strike, ...]) -> EpisodeRecord:
        scenario = drill_scenario(self._plan, self._pool, self._pool_file, strikes)
        compiled = compile_scenario(scenario, self._plan.file)
        driver = ReturningDriver(
            self._driver(compiled),
            compiled.layout,
            drill_terms(self._plan.spec.undo, HEAL_WAIT_S, 0),
            lambda r, now_s: _why_not(strikes, compiled.layout.replicas[r], now_s),
        )
        return run_episodes(compiled, driver, [self._seed])[0]


def _why_not(strikes: tuple[Strike, ...], name: str, now_s: float) -> str:
    """The fault because of which a probe of the replica would disagree now; "" if there is none."""
    on = (one for one in strikes if name in one.replicas and one.onset_s <= now_s < one.ends_at_s)
    return next((f"{one.fault.name} is in force" for one in on), "")


def _mended(one: SimulatedReturn) -> Mended:
    healed = {HealingPhase.HEALED: True, HealingPhase.FAILED: False}.get(one.state.phase)
    return Mended(replica=one.name, healed=healed, told=one.line, lines=tuple(one.lines))


def _differing(one: EpisodeRecord, other: EpisodeRecord) -> list[str]:
    """Names of the arrays in which two records differ."""
    arrays = [field.name for field in fields(one) if isinstance(getattr(one, field.name), np.ndarray)]
    return [name for name in arrays if not np.array_equal(getattr(one, name), getattr(other, name))]
