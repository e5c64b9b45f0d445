"""Results of the examples of docs/extending.md once they are installed, as one object on stdout.

A separate program: plug-ins are found on the path of a new process.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import selvage_fleet as selvage
from tests.support.documents.documents_written import write_yaml
from tests.support.fleets.e5_world import write_suite

_ONSET_S, _HORIZON_S = 60.0, 300.0


def struck(folder: Path, **fault: str) -> selvage.CompiledScenario:
    """The world of ``folder`` in which ``fault`` strikes the kernel bf16."""
    written = yaml.safe_load((folder / "scenario.yaml").read_text())
    written["spec"]["faults"] = [
        {"name": "struck", "target": {"kernel": "bf16"}, "onset_s": _ONSET_S, **fault}
    ]
    return selvage.load_scenario(write_yaml(folder / f"{fault['kind']}.yaml", written))


def moves(world: selvage.CompiledScenario, policy: str) -> int:
    """Ticks in which the table changes under ``policy``."""
    table = selvage.run_episode(world, policy, seed=1).table
    return int((np.abs(np.diff(table, axis=0)).sum(axis=(1, 2)) > 1e-6).sum())


def in_flight(record: selvage.EpisodeRecord) -> float:
    """Requests in the fleet, mean over the ticks after the onset."""
    ended = record.answered + record.failed + record.shed
    return float(np.cumsum((record.offered - ended).sum(axis=1))[int(_ONSET_S) :].mean())


def verdict(folder: Path, answers: list[str]) -> str:
    """Verdict on ``answers`` by a contract that allows loops in 2 % of them."""
    written = yaml.safe_load((folder / "contract.yaml").read_text())
    spec = written["spec"]
    spec["slices"] = spec["slices"][:1]
    own = {"id": "S-loop", "family": "S", "metric": "looping", "estimator": "none", "threshold": 0.02}
    spec["clauses"] = [{key: value for key, value in spec["clauses"][0].items() if key != "clip"} | own]
    contract = write_yaml(folder / "own-contract.yaml", written)
    selvage.load(contract)  # loading resolves the metric, which imports its module
    log = folder / "own-log.jsonl"
    log.write_text(import_module("acme_metrics").observed(spec["slices"][0]["name"], answers))
    return str(selvage.judge(contract, log).verdict)


def main(folder: Path) -> dict[str, Any]:
    """Run each example; ``folder`` is empty."""
    write_suite(folder, _HORIZON_S)
    plain = selvage.load_scenario(folder / "scenario.yaml")
    idle = not any(name.startswith("acme") for name in sys.modules)
    bf16 = plain.layout.kernels.index("bf16")
    wrong, hot = (
        struck(folder, kind="requantise", condition="requantise-w4"),
        struck(folder, kind="thermal_throttle"),
    )
    routed = selvage.run_episode(wrong, "by-capacity:least_replicas=2", seed=1)
    held = [in_flight(selvage.run_episode(one, "fixed-bare", seed=1)) for one in (plain, hot)]
    detector = "hysteresis:detector=by-margin,margin_ratio="
    return {
        "idle": idle,
        "policy": routed.policy,
        "before": float(routed.table[int(_ONSET_S) - 5, :, bf16].min()),
        "after": float(routed.table[-1, :, bf16].max()),
        "shed": float(routed.table[:, :, -1].max()),
        "moves": [moves(wrong, f"{detector}{margin}") for margin in (0, 100_000)],
        "slower": held[1] / held[0],
        "looping": [verdict(folder, ["no\nno\nno"] * 300), verdict(folder, ["yes\nno"] * 300)],
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
