"""The documents of a pool of servers on this machine, behind an Envoy of the test, as applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from contracts.loading.uris import resolve_uri
from tests.support.cluster.cluster_worlds import Object, sample
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.documents.reduced_certificate import LOOSE

#: Kernel -> places for replicas; the first is struck, the second is known-good.
REPLICAS = {"fp16": 2, "fp32": 1}
#: Declared requests per second of a replica: one of fp16 has no headroom for prose under a drill.
CAPACITY_RPS = {"fp16": 4.0, "fp32": 7.0}
PORT = 8000
_LIBRARY = "package:contracts/library"


def contract() -> Object:
    """The sample's contract, with numeric clauses only and fast: the machine's load moves no traffic.

    Thresholds are close to the clipping limit, so that few probes show that a server is healthy again, and
    windows are short, because an unhealthy kernel stays away for five of them.
    """
    (found,) = sample("contract")
    spec = found["spec"]
    spec["clauses"] = [one for one in spec["clauses"] if one["metric"] == "kl_mean"]
    for clause in spec["clauses"]:
        clause.update(threshold=1e-2, clip=0.02)
    spec["detection"].update(window_s=6.0, min_samples=5, stale_after_s=120.0)
    return dict(found)


def pool() -> Object:
    """fp16 at home for prose, fp32 for numbers."""
    kernels = [
        {
            "name": name,
            "profile": f"{_LIBRARY}/profiles/{name}.yaml",
            "replicas": replicas,
            "role": role,
            "capacity_rps": CAPACITY_RPS[name],
            "backend": {"name": f"chat-{name}", "port": PORT},
        }
        for (name, replicas), role in zip(REPLICAS.items(), ("serving", "known_good"), strict=True)
    ]
    home = [{"slice": "prose", "kernel": "fp16"}, {"slice": "numbers", "kernel": "fp32"}]
    return envelope("KernelPool", "chat-pool", {"kernels": kernels, "home": home})


def policy(meta: Path, **changes: Any) -> Object:
    """The sample's policy under ``meta``; ``changes`` replace parts of its spec."""
    (found,) = sample("policy")
    found["spec"] |= {"meta_contract": str(meta), "policy": "sequential", "hang_timeouts": 0, **changes}
    return dict(found)


def route(namespace: str) -> Object:
    """The sample's route, handed over: everything goes to the known-good kernel until the first plan."""
    (found,) = sample("route")
    found["metadata"]["annotations"] = {"selvage.dev/route-policy": f"{namespace}/chat"}
    found["spec"]["rules"] = [{"backendRefs": [{"name": "chat-fp32", "port": PORT}]}]
    return dict(found)


def service(name: str) -> Object:
    """The Service of a kernel, as the sample has it: the label is in its selector."""
    labels = {"app.kubernetes.io/name": "chat", "selvage.dev/kernel": name}
    ports = [{"name": "http", "port": PORT, "targetPort": PORT}]
    spec = {"selector": {**labels, "selvage.dev/in-rotation": "true"}, "ports": ports}
    metadata = {"name": f"chat-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def meta_contract(folder: Path) -> Path:
    """The shipped meta-contract, which demotes no policy for a busy machine's pace; the known-good kernel,
    which needs no certificate, takes over.
    """
    document = yaml.safe_load(resolve_uri(f"{_LIBRARY}/meta-contract.yaml", "").read_text())
    document["spec"]["baseline"] = "fixed_known_good"
    for clause in document["spec"]["clauses"]:
        clause["threshold"] = LOOSE.get(clause["id"], clause["threshold"])
    return write_yaml(folder / "meta-contract.yaml", document)


def drill(name: str, **changes: Any) -> Object:
    """The first fp16 server's weights in three bits, behind status 200; ``changes`` replace parts of it."""
    fault = {
        "name": "bits",
        "kind": "requantise",
        "condition": "as-measured",
        "live": {"bits": 3},
        "target": {"kernel": "fp16", "replica": 0},
        "onset_s": 10.0,
    }
    spec: Object = {
        "description": "One fp16 server answers from weights of three bits.",
        "pool": "chat-pool",
        "load": {
            "rate_rps": 3.0,
            "answer_tokens": 4,
            "prompt_tokens": 16,
            "timeout_s": 120.0,
            "slice_mix": [{"slice": "prose", "share": 0.8}, {"slice": "numbers", "share": 0.2}],
        },
        "faults": [fault],
        "steady_state": [{"name": "answers", "metric": "failure_rate", "threshold": 0.0, "window_s": 10.0}],
        "abort_when": [{"name": "outage", "metric": "failure_rate", "threshold": 0.5, "window_s": 10.0}],
        "expect": {"failed_ratio_at_most": 0.0},
        "undo": {"verify_probes": 3, "readmit_over_s": 2.0},
        "time_to_live_s": 60.0,
        "after_s": 12.0,
    }
    return envelope("FaultDrill", name, spec | changes)


def write_scenario(folder: Path) -> Path:
    """The same pool and contract as a simulated fleet, with a fault in it; the scenario's path."""
    write_yaml(folder / "pool.yaml", pool())
    write_yaml(folder / "contract.yaml", contract())
    fault = {
        "name": "bits",
        "kind": "requantise",
        "condition": "requantise-w4",
        "onset_s": 60.0,
        "target": {"kernel": "fp16", "replica": 0},
    }
    spec: Object = {
        "description": "One fp16 server answers from weights of four bits.",
        "pool_uri": "pool.yaml",
        "contract": "contract.yaml",
        "horizon_s": 130.0,
        "tick_s": 1.0,
        "workload": {
            "rate_rps": 7.0,
            "arrivals": "poisson",
            "slice_mix": [{"slice": "prose", "share": 0.8}, {"slice": "numbers", "share": 0.2}],
            "prompt_tokens": {"distribution": "lognormal", "mean": 16.0, "sigma": 0.2, "max_tokens": 64},
            "output_tokens": {"distribution": "lognormal", "mean": 4.0, "sigma": 0.2, "max_tokens": 16},
        },
        "telemetry": {"probes_per_s": 1.0, "scrape_interval_s": 1.0},
        "faults": [fault],
    }
    return write_yaml(folder / "scenario.yaml", envelope("Scenario", "own-servers", spec))
