"""Drills on real vLLM servers: proved and undone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.client import record as records
from faults.drill.ledger import pending
from live.fleet.state import FleetFolder
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.needs("vllm", "torch", "envoy", "aiohttp"),
    pytest.mark.slow,
]
ONSET_S, HELD_S = 4.0, 5.0


def drill_file(fleet: FleetFolder, held_s: float = HELD_S, **fault: Any) -> Path:
    """A drill of one fault on the first replica; its guards hold even on a slow machine."""
    spec = {
        "description": "one fault on one replica",
        "pool": "test-pool",
        "pool_uri": "pool.yaml",
        "load": {"rate_rps": 10.0, "answer_tokens": 4, "timeout_s": 60.0},
        "faults": [
            {
                "name": "bad",
                "target": {"kernel": "fp16", "replica": 0},
                "onset_s": ONSET_S,
                "duration_s": held_s,
            }
            | fault
        ],
        "steady_state": [{"name": "answers", "metric": "failure_rate", "threshold": 1.0}],
        "undo": {"verify_probes": 2, "readmit_over_s": 2.0},
        "time_to_live_s": ONSET_S + held_s,
        "after_s": 2.0,
    }
    return write_yaml(fleet.path.parent / "drill.yaml", envelope("FaultDrill", "live", spec))


def command(fleet: FleetFolder, *words: str) -> list[str]:
    """``selvage drill`` on the fleet."""
    return [sys.executable, "-m", "scripts.cli.main", "drill", *words, "--folder", str(fleet.path)]


def drilled(fleet: FleetFolder, drill: Path) -> dict[str, Any]:
    """The result of a run without a healing controller."""
    words = ("run", str(drill), "--target", "local", "--policy", "none", "--json")
    done = subprocess.run(
        command(fleet, *words), capture_output=True, text=True, check=False, cwd=ROOT, timeout=400
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == found["exit_code"]
    return found


def proved(found: dict[str, Any]) -> None:
    """The fault did not show before, did after, and was undone."""
    shown = [(one["before"], one["happened"]) for one in found["faults"]]
    assert shown == [(False, True)], found
    assert found["verdict"] == "passed", found["reason"]
    assert found["offered_requests"] > 20


@pytest.mark.parametrize(
    ("fault", "evidence"),
    [
        ({"kind": "requantise", "condition": "requantise-w3", "live": {"bits": 3}}, "canary"),
        ({"kind": "hang"}, "the engine answers no call"),
        ({"kind": "crash"}, "ended"),
    ],
    ids=["numeric", "hang", "crash"],
)
def test_a_live_drill_is_proved_and_undone(fleet: FleetFolder, fault: dict[str, Any], evidence: str) -> None:
    """A numeric fault, a hang and a crash are injected, show, and the replica is restored or restarted."""
    found = drilled(fleet, drill_file(fleet, **fault))
    proved(found)
    assert evidence in found["faults"][0]["evidence"]
    assert pending(fleet.drills) is None
    assert list(records.open_records(fleet.drills / "records")) == []


def test_a_fleet_of_another_pool_is_refused(fleet: FleetFolder) -> None:
    """The error names both pools and what to do."""
    words = ("run", "crash", "--target", "local", "--policy", "none")
    done = subprocess.run(command(fleet, *words), capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "expected live-pool-half, got a fleet of test-pool runs; name another --folder" in done.stderr
