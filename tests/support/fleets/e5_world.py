"""A small suite over the synthetic kernels, for tests of the experiment itself."""

from __future__ import annotations

from pathlib import Path

from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.fleets.synthetic import scenario_document, write_world

CONFIGURATIONS = ["fixed-bare", "breaker", "threshold"]


def suite_document(**more: object) -> dict[str, object]:
    """One numeric fault, one crash and one control over ``scenario.yaml`` beside it."""
    numeric = {
        "name": "wrong",
        "kind": "requantise",
        "target": {"kernel": "bf16"},
        "condition": "requantise-w4",
        "onset_s": 47.0,
    }
    crash = {
        "name": "gone",
        "kind": "crash",
        "target": {"kernel": "bf16", "replica": 0},
        "onset_s": 47.0,
        "duration_s": 90.0,
    }
    surge = {"kind": "surge", "at_s": 50.0, "duration_s": 30.0, "factor": 1.5}
    spec: dict[str, object] = {
        "description": "tests only",
        "base": "scenario.yaml",
        "scenarios": [
            {"name": "requantise", "faults": [numeric]},
            {"name": "crash", "faults": [crash]},
            {"name": "surge", "control": True, "changes": [surge]},
        ],
        "policies": CONFIGURATIONS,
        "sweep": ["threshold@0.9"],
        "sweep_scenarios": ["requantise", "surge"],
        "seed": 5,
        "seeds": 2,
    }
    return envelope("Suite", "small", spec | more)


def write_suite(folder: Path, horizon_s: float = 240.0, **more: object) -> Path:
    """Write the world and the suite into ``folder``; return the suite's path."""
    write_world(folder, scenario_document(horizon_s=horizon_s))
    return write_yaml(folder / "suite.yaml", suite_document(**more))
