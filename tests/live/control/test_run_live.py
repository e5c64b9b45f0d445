"""The controller on real vLLM servers behind a real Envoy: it leaves a fleet alone that keeps its contract,
and moves the traffic of a kernel that does not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from live.control import pace
from live.control.journal import read_log
from live.control.loop import Turn
from live.control.metrics import ControllerMetrics
from live.control.replay import replay
from live.errors import LiveError
from live.fleet.control import down
from live.fleet.state import FleetFolder
from live.load import run_load
from live.run.assemble import Assembled, controlled_fleet
from live.run.options import ProbeOptions, RunOptions
from tests.support.documents_written import envelope, write_yaml
from tests.support.live_fleets import bring_up, load

pytestmark = [
    pytest.mark.needs("vllm", "torch", "envoy", "aiohttp"),
    pytest.mark.slow,
    pytest.mark.timeout(420),
]
#: Half precision is home to all; single precision is who answers what is right.
POOL = """
apiVersion: selvage.dev/v1alpha1
kind: KernelPool
metadata: {name: test-pool}
spec:
  kernels:
    - {name: fp16, profile: none.yaml, replicas: 1, role: serving, capacity_rps: 500.0}
    - {name: fp32, profile: none.yaml, replicas: 1, role: known_good, capacity_rps: 500.0}
  home:
    - {slice: prose, kernel: fp16}
    - {slice: numbers, kernel: fp16}
"""
#: Mean KL that half precision keeps easily, and one that it breaks: rounding alone is 100 times as much.
LOOSE, STRICT = 0.05, 1e-9


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetFolder]:
    """Two servers of two kernels, forked."""
    folder = bring_up(tmp_path_factory.mktemp("driven"), POOL, "--start", "fork")
    yield folder
    down(folder)


def contract(place: Path, threshold: float) -> str:
    """A contract of one hard numeric clause."""
    clause = {
        "id": "N-kl", "family": "N", "metric": "kl_mean", "estimator": "full_vocab", "threshold": threshold,
        "unit": "nats", "budget": 0.0, "level": "L3", "clip": 0.1, "remediation": "move", "reason": "test",
    }  # fmt: skip
    spec = {
        "description": "One hard clause.",
        "temperature": 1.0,
        "slices": [
            {"name": "prose", "default": True, "priority": 1},
            {"name": "numbers", "priority": 2},
        ],
        "clauses": [clause],
        "escalation": {
            "guard_threshold": 0.5,
            "fallback_threshold": 2.0,
            "when_uncertified": "serve_known_good",
        },
        "detection": {
            "window_s": 10.0,
            "min_samples": 5,
            "alarm_confidence": 0.99,
            "false_switch_budget_per_slice_month": 1.0,
            "stale_after_s": 60.0,
            "ejection_cap_ratio": 0.5,
        },
        "on_controller_loss": "hold",
    }
    return str(write_yaml(place, envelope("KernelContract", "one-clause", spec)))


def options(place: Path, threshold: float) -> RunOptions:
    """Few prompts, each with time enough for a machine that is busy."""
    probes = ProbeOptions(per_slice=4, tokens_per_s=200.0, limit_s=30.0)
    return RunOptions(contract=contract(place, threshold), probes=probes)


def step_until(one: Assembled, holds: object, seconds: float = 150.0) -> list[Turn]:
    """Turns until ``holds`` says so; fails when the time is over."""
    assert callable(holds)
    stop, turns = threading.Event(), []

    def step() -> None:
        turns.append(one.controller.step())
        if holds(turns[-1]):
            stop.set()

    pace.run(step, 1.0, stop, seconds)
    assert stop.is_set(), one.controller.last_error
    return turns


def all_probed(turn: Turn) -> bool:
    """Every kernel was seen on every slice, often."""
    return turn.decision is not None and bool((turn.decision.observation.evidence_count >= 5).all())


def moved_away(turn: Turn) -> bool:
    """Next to nothing is left on the kernel that breaks the contract, and Envoy says so."""
    return turn.executed and bool((turn.after.table[0, :, 0] < 0.01).all())


def test_a_kept_contract_moves_nothing_and_a_broken_one_moves_traffic(
    fleet: FleetFolder, tmp_path: Path
) -> None:
    """The same fleet: under the loose contract every turn leaves the home table and the metrics say so; under
    the strict one traffic goes to the other kernel, at the gateway too; both logs decide again alike.
    """
    with controlled_fleet(fleet, options(tmp_path / "loose.yaml", LOOSE)) as one:
        metrics = ControllerMetrics(
            one.controller.setup, observes=False, sent_tokens=lambda: one.prober.sent_tokens
        )
        url, stop = metrics.serve(0)
        try:
            one.controller.watch(metrics)
            with (
                pytest.raises(LiveError, match="another controller"),
                controlled_fleet(fleet, options(tmp_path / "loose.yaml", LOOSE)),
            ):
                pass
            turns = step_until(one, all_probed)
            shown = httpx.get(url, timeout=10.0).text
        finally:
            stop()
    assert all(not turn.decision.moved[0] for turn in turns if turn.decision is not None)
    np.testing.assert_array_equal(turns[-1].after.table[0, :, 0], 1.0)
    assert 'selvage_health_ratio{kernel="fp16",slice="prose"} 0.0' in shown
    assert 'selvage_probe_tokens_total{replica="fp32-0"}' in shown
    with controlled_fleet(fleet, options(tmp_path / "strict.yaml", STRICT)) as one:
        setup, folder = one.controller.setup, one.folder
        step_until(one, moved_away)
    records = run_load(load(fleet, 3.0, rate_rps=4.0, streamed=0.0))
    assert {record.replica for record in records if record.complete} == {"fp32-0"}
    rows = read_log(folder)
    last = max(at for at, row in enumerate(rows) if row["kind"] == "start")
    found = replay(rows[last:], setup)
    assert found.identical
    assert found.moved_logged > 0
