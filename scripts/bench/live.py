"""Costs of the live fleet: ``selvage bench live``.

The shipped pool of this processor starts in a temporary folder (servers forked where that is possible), and
these are timed: start, a weight change until Envoy acknowledges it, a replica's return after SIGKILL, a
reset, shutdown. Load is an open loop of Poisson arrivals on every slice, 30 % streamed, prompts of 32 and
answers of 16 tokens; requests without a complete answer are counted, begun streams of the killed replica
separately.
The bar is 100 weight changes and 20 removals of an endpoint through 5,000 requests, none of them lost.
Times are wall times; the load generator runs on the same cores.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np

from contracts.regular_files import MIB
from contracts.rng import stream
from contracts.units import MS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controller.ports import RoutingPlan
    from live.fleet.plan import FleetPlan
    from live.fleet.state import FleetFolder, FleetState
    from live.gateway.actuator import EnvoyActuator
    from live.load import LoadPlan, LoadRecord

SEED = 1
CHANGES, REMOVALS, REQUESTS = 100, 20, 5000
RATE_RPS, CHANGED_RATE_RPS = 10.0, 20.0
PAIRS = 40


def run() -> dict[str, object]:
    """Flat figures; ``*_s`` and ``*_ms`` are wall time, ``memory_*`` counts shared pages once (PSS)."""
    with benched() as bench:
        figures = {**bench.standing(), **bench.changes(), **bench.killed(), **bench.gateway()}
        began_at_s = time.monotonic()
    figures["down_s"] = time.monotonic() - began_at_s
    return {**figures, "seed": SEED}


@contextmanager
def benched() -> Iterator[LiveBench]:
    """The shipped pool of this processor, up for as long as the block."""
    from live.fleet.background import running_fleet
    from live.fleet.plan import ServerOptions, default_pool, load_pool, plan_fleet
    from live.fleet.state import FleetFolder
    from live.fleet.supervisor import SupervisorOptions

    with tempfile.TemporaryDirectory(prefix="selvage-live-") as place:
        pool, file = load_pool(default_pool())
        plan = plan_fleet(pool, file, ServerOptions(), Path(place) / "checkpoints")
        folder = FleetFolder(path=Path(place) / "fleet")
        with running_fleet(folder, plan, SupervisorOptions()) as state:
            yield LiveBench(folder=folder, plan=plan, state=state)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBench:
    """A running fleet and its measurements."""

    folder: FleetFolder
    plan: FleetPlan
    state: FleetState

    def standing(self) -> dict[str, object]:
        """Start time, and memory of the standing fleet."""
        from live.fleet.processes import group_memory_bytes

        memory = [group_memory_bytes(s.process.pid) / MIB for s in self.state.servers if s.process]
        envoy = self.state.gateway.process
        return {
            "pool": self.state.pool,
            "replicas": len(self.state.servers),
            "started": self.state.how,
            "up_s": self.state.up_s,
            "replica_up_s_max": max(server.up_s for server in self.state.servers),
            "memory_mib_replica_max": max(memory),
            "memory_mib_replicas": sum(memory),
            "memory_mib_envoy": group_memory_bytes(envoy.pid) / MIB if envoy else 0.0,
            "envoy": self.state.gateway.version,
        }

    def changes(self) -> dict[str, object]:
        """Weight changes, and between them removals of single replicas that return, under load."""
        took_s: list[float] = []
        at_s: list[float] = []
        seconds = REQUESTS / CHANGED_RATE_RPS
        plans = self._changes()

        def drive(actuator: EnvoyActuator) -> None:
            began_at_s = time.monotonic()
            for number, plan in enumerate(plans):
                time.sleep(max(0.0, began_at_s + seconds * number / len(plans) - time.monotonic()))
                if actuator.apply(plan):
                    took_s.append(actuator.last_apply_s)
                    at_s.append(time.monotonic())

        records = self._loaded(seconds, lambda: self.acting(drive), CHANGED_RATE_RPS)
        return {
            "changes": CHANGES,
            "removals": REMOVALS,
            "changes_acknowledged": len(took_s),
            "change_ms_p50": 1000.0 * float(np.percentile(took_s, 50)),
            "change_ms_p99": 1000.0 * float(np.percentile(took_s, 99)),
            "changes_requests": len(records),
            "changes_streamed": sum(record.streamed for record in records),
            "changes_streamed_across": sum(record.streamed and _across(record, at_s) for record in records),
            "changes_lost": sum(not record.complete for record in records),
        }

    def _changes(self) -> list[RoutingPlan]:
        """Random tables; after every fifth one a replica is removed, and the next one restores it."""
        rng = stream(SEED, "bench_live")
        plans: list[RoutingPlan] = []
        for number in range(CHANGES):
            plans.append(self._plan(len(plans) + 1, rng))
            if number % (CHANGES // REMOVALS) == 0:
                out = (number // (CHANGES // REMOVALS)) % len(self.plan.replicas)
                plans.append(self._plan(len(plans) + 1, rng, out))
        return plans

    def killed(self) -> dict[str, object]:
        """SIGKILL of the first replica under load, every slice on every kernel."""
        from live.fleet.control import require_up
        from live.fleet.state import Phase

        everywhere = self.everywhere(CHANGES + REMOVALS + 1)
        self.acting(lambda actuator: actuator.apply(everywhere))
        victim = self.state.servers[0].name
        back: list[float] = []

        def kill() -> None:
            was = next(s for s in require_up(self.folder).servers if s.name == victim).process
            if was is None:
                return
            time.sleep(2.0)
            os.killpg(was.pid, signal.SIGKILL)
            began_at_s = time.monotonic()
            while time.monotonic() < began_at_s + 120.0:
                now = next(s for s in require_up(self.folder).servers if s.name == victim)
                if now.phase is Phase.READY and now.process not in (None, was):
                    back.append(time.monotonic() - began_at_s)
                    return
                time.sleep(0.02)

        records = self._loaded(8.0, kill)
        lost = [record for record in records if not record.complete]
        begun = [record for record in lost if record.streamed and record.replica == victim]
        return {
            "killed_requests": len(records),
            "killed_lost_begun_streams": len(begun),
            "killed_lost_others": len(lost) - len(begun),
            "killed_back_s": back[0] if back else float("nan"),
        }

    def gateway(self) -> dict[str, object]:
        """Latency that the gateway adds to a one-token request of an idle fleet, and duration of a reset."""
        from live.fleet.control import gateway_control
        from live.fleet.state import FleetDiscovery
        from live.gateway.actuator import upstream_of

        target = self.state.servers[-1]
        direct, through = self._pairs(target.url, self.state.gateway.url)
        with gateway_control(self.folder) as driver:
            known = tuple(upstream_of(one) for one in FleetDiscovery(self.folder).replicas())
            reset_s = driver.reset(target.name, known)
        return {
            "request_ms_direct": direct,
            "request_ms_gateway": through,
            "request_pairs": PAIRS,
            "reset_s": reset_s,
        }

    def _pairs(self, direct: str, gateway: str) -> tuple[float, float]:
        """Medians in ms, alternating, of the same request to the last replica and through its home slice."""
        from live.drill.between import home_plan

        body = {"model": self.state.served_name, "prompt": [1, 2, 3, 4], "max_tokens": 1, "temperature": 0.0}
        home = self.state.slices[-1]
        homes = home_plan(self.plan, CHANGES + REMOVALS + 2)
        self.acting(lambda actuator: actuator.apply(homes))
        taken: tuple[list[float], list[float]] = ([], [])
        with httpx.Client(timeout=60.0, headers={"x-selvage-slice": home}) as client:
            for _ in range(PAIRS):
                for url, times in zip((direct, gateway), taken, strict=True):
                    began_at_s = time.perf_counter()
                    client.post(f"{url}/v1/completions", json=body).raise_for_status()
                    times.append(1000.0 * (time.perf_counter() - began_at_s))
        return float(np.median(taken[0])), float(np.median(taken[1]))

    def _loaded(
        self, seconds: float, during: Callable[[], None], rate_rps: float = RATE_RPS
    ) -> list[LoadRecord]:
        from live.load import run_load

        return run_load(self.load_plan(seconds, rate_rps), during)

    def load_plan(self, seconds: float, rate_rps: float) -> LoadPlan:
        """An open loop on every slice."""
        from live.load import LoadPlan

        return LoadPlan(
            url=self.state.gateway.url,
            rate_rps=rate_rps,
            seconds=seconds,
            slices=self.state.slices,
            model=self.state.served_name,
            timeout_s=120.0,
            seed=SEED,
        )

    def acting(self, do: Callable[[EnvoyActuator], object]) -> None:
        """Run ``do`` with the fleet's actuator."""
        from live.fleet.control import gateway_control
        from live.fleet.state import FleetDiscovery
        from live.gateway.actuator import EnvoyActuator, RoutingFrame

        with gateway_control(self.folder) as driver:
            frame = RoutingFrame(layout=self.plan.layout(), default_slice=self.plan.default_slice)
            do(EnvoyActuator(driver, FleetDiscovery(self.folder), frame))

    def _plan(self, version: int, rng: np.random.Generator, out: int = -1) -> RoutingPlan:
        """Random shares of every kernel on every slice; without the replica ``out``."""
        layout = self.plan.layout()
        rows = rng.dirichlet(np.ones(len(layout.kernels)), size=len(layout.slices))
        return self._plan_of(version, rows, out)

    def everywhere(self, version: int) -> RoutingPlan:
        """Every slice evenly on every kernel."""
        layout = self.plan.layout()
        kernels = len(layout.kernels)
        return self._plan_of(version, np.full((len(layout.slices), kernels), 1.0 / kernels))

    def _plan_of(self, version: int, rows: NDArray[np.float64], out: int = -1) -> RoutingPlan:
        from controller.ports import RoutingPlan

        rotation = np.ones((1, len(self.plan.replicas)), dtype=np.bool_)
        if out >= 0:
            rotation[0, out] = False
        table = np.concatenate([rows, np.zeros((len(rows), 1))], axis=1)
        return RoutingPlan(table=table[None], in_rotation=rotation, version=np.array([version]))


def _across(record: LoadRecord, at_s: list[float]) -> bool:
    """Whether some instant of ``at_s`` lies within the request."""
    ended_at_s = record.started_at_s + record.duration_ms / MS_PER_S
    return any(record.started_at_s < one < ended_at_s for one in at_s)
