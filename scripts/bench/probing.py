"""Cost of probing for a replica: ``selvage bench probing``.

One replica of the shipped pool's first kernel, saturated by a closed loop, in turns with and without an
observing controller: it scrapes, sends prefill probes and every kind that generates, and moves nothing.
The replica has its own core if there are two; load generator, Envoy and controller share the rest, so
the measured cost is the replica's, its scrapes included. A turn's first seconds do not count.
Rates are per wall time and per CPU time of the replica; the latter is independent of other processes. In
addition, CPU time of the idle replica with and without the controller: a lone probe shares no batch, so this
is an upper bound of the share.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from contracts.loading.shipped import LIBRARY, SERVING_GENERATION
from contracts.scoring.intervals import clustered_mean
from live.closed_loop import Saturation
from scripts.bench.live import SEED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from live.fleet.state import FleetFolder, FleetState
    from live.run.assemble import Assembled

#: Turns with and turns without; their duration, and the uncounted beginning of each, s.
PAIRS, TURN_S, SETTLE_S = 12, 15.0, 3.0
#: Time for which the idle replica is observed, with and without, s.
IDLE_S = 30.0
CLIENTS = 32
_SLICES = ("prose", "code", "json", "numbers")


def run() -> dict[str, object]:
    """Flat figures; rates in answered tokens, ``probing_*cost_*`` shares of the rate without probes."""
    with _one_replica() as (folder, state), _observing(folder) as probes:
        _separate(state)
        spent = _spent_s(state)
        idle = {probed: _idle(probes, spent, probed) for probed in (False, True)}
        with Saturation(state.servers[0].url, state.served_name, CLIENTS, SEED) as load:
            found, asked = _in_turns(probes, load, spent)
    return {
        **_costs(found),
        "probing_cpu_ratio_idle": idle[True] - idle[False],
        "probe_tokens_per_s": asked,
        "pairs": PAIRS,
        "turn_s": TURN_S,
        "seed": SEED,
    }


@dataclass(slots=True)
class HeldController:
    """A controller whose turns, and with them scrapes and probes, can be paused."""

    one: Assembled
    on: threading.Event

    def asked_tokens(self) -> int:
        """Tokens requested by all probes so far."""
        return sum(self.one.prober.sent_tokens.values())

    def turn(self, probed: bool) -> None:
        """Resume probing, or pause: long probes are then cancelled."""
        self.one.prober.receive(dict.fromkeys(self.one.prober.sent_tokens, 0.0 if probed else 1.0))
        (self.on.set if probed else self.on.clear)()

    def step(self) -> None:
        """A turn of the controller, unless it is paused."""
        if self.on.is_set():
            self.one.controller.step()


def _costs(found: NDArray[np.float64]) -> dict[str, object]:
    """Figures of ``found`` [pairs, without and with, per second and per CPU second], with 95 % intervals."""
    figures: dict[str, object] = {}
    for place, (name, unit) in enumerate((("cost", "s"), ("cpu_cost", "cpu_s"))):
        without, with_ = found[:, 0, place], found[:, 1, place]
        limits = clustered_mean((1.0 - with_ / without)[:, None], name=f"probing-{name}")
        figures |= {
            f"saturated_tokens_per_{unit}_unprobed": float(np.median(without)),
            f"saturated_tokens_per_{unit}_probed": float(np.median(with_)),
            f"probing_{name}_ratio": limits.mean,
            f"probing_{name}_ratio_low": limits.ci_low,
            f"probing_{name}_ratio_high": limits.ci_high,
        }
    return figures


def _in_turns(
    probes: HeldController, load: Saturation, spent_s: Callable[[], float]
) -> tuple[NDArray[np.float64], float]:
    """[pairs, without and with, 2] tokens per second and per second of the replica's CPU time, and the tokens
    of probes per second while they ran.

    The order changes from pair to pair, so that a drift of the machine falls on both alike.
    """
    found, asked = np.empty((PAIRS, 2, 2)), 0
    for pair in range(PAIRS):
        for probed in (pair % 2 == 1, pair % 2 == 0):
            before = probes.asked_tokens()
            probes.turn(probed)
            time.sleep(SETTLE_S)
            began_at_s = spent_s()
            rate = load.tokens_per_s(TURN_S - SETTLE_S)
            found[pair, int(probed)] = rate, rate * (TURN_S - SETTLE_S) / (spent_s() - began_at_s)
            asked += (probes.asked_tokens() - before) * probed
    return found, asked / (PAIRS * TURN_S)


def _idle(probes: HeldController, spent_s: Callable[[], float], probed: bool) -> float:
    """CPU time of the replica, which serves no user, per second."""
    probes.turn(probed)
    time.sleep(SETTLE_S)
    began_at_s, before_s = time.monotonic(), spent_s()
    time.sleep(IDLE_S)
    return (spent_s() - before_s) / (time.monotonic() - began_at_s)


@contextmanager
def _one_replica() -> Iterator[tuple[FleetFolder, FleetState]]:
    """A pool of one replica, up for as long as the block."""
    from live.fleet.background import running_fleet
    from live.fleet.plan import ServerOptions, default_pool, load_pool, plan_fleet
    from live.fleet.state import FleetFolder
    from live.fleet.supervisor import SupervisorOptions

    with tempfile.TemporaryDirectory(prefix="selvage-probing-") as place:
        kernel = load_pool(default_pool())[0].spec.kernels[0].name
        file = Path(place) / "one.yaml"
        file.write_text(_pool_text(kernel), encoding="utf-8")
        plan = plan_fleet(load_pool(str(file))[0], file, ServerOptions(), Path(place) / "checkpoints")
        folder = FleetFolder(path=Path(place) / "fleet")
        with running_fleet(folder, plan, SupervisorOptions()) as state:
            yield folder, state


def _pool_text(kernel: str) -> str:
    homes = "\n".join(f"    - {{slice: {name}, kernel: {kernel}}}" for name in _SLICES)
    profile = f"{LIBRARY}profiles/{kernel}.yaml"
    return f"""apiVersion: selvage.dev/v1alpha1
kind: KernelPool
metadata:
  name: probing
spec:
  kernels:
    - {{name: {kernel}, profile: "{profile}", replicas: 1, role: known_good}}
  home:
{homes}
"""


@contextmanager
def _observing(folder: FleetFolder) -> Iterator[HeldController]:
    """A controller of the whole matrix of probes, paused until its first turn."""
    from live.control import clocks
    from live.run.assemble import controlled_fleet
    from live.run.options import RunOptions

    stop = threading.Event()
    with controlled_fleet(folder, RunOptions(observe=True, contract=SERVING_GENERATION)) as one:
        probes = HeldController(one=one, on=threading.Event())
        beat = threading.Thread(target=clocks.run_on_the_beat, args=(probes.step, 1.0, stop))
        beat.start()
        try:
            yield probes
        finally:
            stop.set()
            beat.join()


def _separate(state: FleetState) -> None:
    """The replica on the first available core, everything else on the others; no change with one core."""
    from live.fleet.processes import group_members

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return
    envoy = state.gateway.process
    ours = [os.getpid(), *([envoy.pid] if envoy else [])]
    theirs = [one for s in state.servers if s.process for one in group_members(s.process.pid)]
    for processes, own in ((theirs, cores[:1]), (ours, cores[1:])):
        for process in processes:
            for task in Path(f"/proc/{process}/task").iterdir():
                os.sched_setaffinity(int(task.name), own)


def _spent_s(state: FleetState) -> Callable[[], float]:
    """CPU time of the replica's processes so far."""
    from live.fleet.processes import process_clock

    process = state.servers[0].process
    assert process is not None
    return process_clock(process.pid)
