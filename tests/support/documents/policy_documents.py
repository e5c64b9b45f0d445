"""Valid documents about policies, one of each kind."""

from __future__ import annotations

from tests.support.documents.documents_written import envelope
from tests.support.documents.rule_cases import fault

SHA = "0" * 64
META = envelope(
    "MetaContract",
    "meta",
    {
        "description": "d",
        "baseline": "threshold",
        "clauses": [
            {
                "id": "a",
                "metric": "dwell_s",
                "sense": "at_least",
                "threshold": 30.0,
                "checked": "online",
                "on_violation": "hold",
                "reason": "r",
            },
            {
                "id": "b",
                "metric": "shed_ratio",
                "threshold": 0.02,
                "checked": "both",
                "judged_on": "incidents",
                "on_violation": "demote",
                "reason": "r",
            },
        ],
    },
)
ARTIFACT = envelope(
    "PolicyArtifact",
    "art",
    {
        "description": "d",
        "onnx": {"uri": "p.onnx", "sha256": SHA},
        "encoding_version": 1,
        "training": {"command": "train", "seeds": [1]},
        "certificate": {
            "subject": "art",
            "subject_sha256": SHA,
            "suite_sha256": SHA,
            "meta_contract_sha256": SHA,
            "command": "selvage policy certify",
            "code_version": "0",
            "seeds": 20,
            "episodes": 40,
            "passed": True,
            "clauses": [
                {
                    "id": "a",
                    "metric": "mttr_s",
                    "judged_on": "incidents",
                    "method": "clustered_bootstrap",
                    "threshold": 3.0,
                    "value": 1.0,
                    "ci_high": 2.0,
                    "n": 40,
                    "passed": True,
                }
            ],
        },
    },
)
SUITE = envelope(
    "Suite",
    "suite",
    {
        "description": "d",
        "base": "base.yaml",
        "scenarios": [
            {"name": "w4", "faults": [fault()]},
            {"name": "calm", "control": True},
            {"name": "own", "uri": "own.yaml"},
        ],
    },
)
DRILL = envelope(
    "FaultDrill",
    "drill",
    {
        "description": "d",
        "pool": "pool",
        "faults": [fault()],
        "time_to_live_s": 60.0,
        "steady_state": [{"name": "failures", "metric": "failure_rate", "threshold": 0.1}],
    },
)
ROUTE = envelope(
    "RoutePolicy",
    "route",
    {
        "description": "d",
        "policy": "threshold",
        "pool": "pool",
        "contract": "contract",
        "meta_contract": "package:contracts/library/meta-contract.yaml",
        "route": {"name": "chat"},
    },
)
