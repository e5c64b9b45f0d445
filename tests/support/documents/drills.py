"""A drill as an object."""

from __future__ import annotations

from typing import Any

DRILL: dict[str, Any] = {
    "apiVersion": "selvage.dev/v1alpha1",
    "kind": "FaultDrill",
    "metadata": {"name": "four-bits"},
    "spec": {
        "description": "Four bits on one replica of the home kernel.",
        "pool": "e5-pool",
        "faults": [
            {
                "name": "four-bits",
                "kind": "requantise",
                "condition": "requantise-w4",
                "target": {"kernel": "bf16", "replica": 0},
                "onset_s": 30.0,
            }
        ],
        "steady_state": [{"name": "answers", "metric": "failure_rate", "threshold": 0.02}],
        "abort_when": [{"name": "outage", "metric": "failure_rate", "threshold": 0.2}],
        "time_to_live_s": 300.0,
    },
}
