"""Random worlds: pool, workload, faults and ordinary change, each drawn from its own random stream.

Hard worlds are included: fleets of one kernel, homes on a kernel with little capacity, loads above the
homes' capacity, faults of everything at once. Only the profiles are the shipped ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml

from contracts.documents import Scenario
from contracts.loading.loader import load_text
from contracts.loading.shipped import LIBRARY, SERVING_POOL
from contracts.rng import stream

SEED, HORIZON_S = 77, 480.0
#: Simulated work stays affordable up to this rate; a world beyond it is drawn at this rate.
MOST_RPS = 150.0
PROFILES, SHARES = ("bf16", "w8a8", "bf16-compiled", "fp16", "fp32"), (0.3, 0.2, 0.2, 0.1, 0.2)
SLICES = ("code", "prose", "json", "numbers", "long_context")
#: Measured conditions of wrong numbers, by profile: kind of fault and condition.
NUMERIC: dict[str, tuple[tuple[str, str], ...]] = {
    "bf16": (
        ("requantise", "requantise-w3"),
        ("requantise", "requantise-w4"),
        ("noise", "noise-0.1-all-layers"),
    ),
    "fp16": (("requantise", "requantise-w3"), ("noise", "noise-0.1-all-layers")),
    "w8a8": (("kernel_regression", "isa-no-vnni"),),
}
#: Doses of the other kinds.
DOSES: dict[str, tuple[float, ...]] = {
    "http_errors": (0.06, 0.1, 0.17, 0.33, 0.6, 0.9),
    "latency": (300.0, 1000.0, 1900.0, 3000.0, 9000.0),
    "slow": (1.2, 1.5, 2.0, 4.0),
    "kv_pressure": (0.5, 0.8, 0.95, 0.99),
    "trace_fields_missing": (0.5,),
}
WITHOUT_DOSE = ("crash", "hang", "telemetry_loss", "wrong_fingerprint")
SCOPES = ("replica", "zone", "share", "kernel", "all")
Spec = dict[str, Any]


def draw_spec(number: int) -> tuple[Spec, float]:
    """The spec of world ``number`` at one request per second, and its load as a share of capacity."""
    rng = stream(SEED, "worlds", number)
    zones = ("a", "b", "c")[: int(rng.integers(1, 4))]
    kernels = _kernels(rng, zones)
    faults = [_fault(rng, f"fault-{i}", kernels) for i in range(int(rng.choice([0, 1, 1, 1, 2])))]
    spec = {
        "description": f"Random world {number}.",
        "pool": {"kernels": kernels, "home": _homes(rng, kernels)},
        "contract": SERVING_POOL,
        "horizon_s": HORIZON_S,
        "workload": _workload(rng),
        "telemetry": {
            "scrape_interval_s": float(rng.choice([2.0, 5.0, 10.0])),
            "scrape_delay_s": 0.5,
            "scrape_loss_ratio": float(rng.choice([0.0, 0.01, 0.1])),
            "probes_per_s": float(rng.choice([0.3, 1.0])),
        },
        "faults": faults,
        "changes": _changes(rng, kernels),
    }
    return spec, float(rng.uniform(0.4, 1.2))


def scenario_of(number: int, spec: Spec) -> Scenario:
    """``spec`` as a checked document."""
    name = f"world-{number}"
    header = {"apiVersion": "selvage.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": name}}
    scenario = load_text(yaml.safe_dump({**header, "spec": spec}), f"{name}.yaml")
    assert isinstance(scenario, Scenario)
    return scenario


def _kernels(rng: np.random.Generator, zones: tuple[str, ...]) -> list[Spec]:
    found: list[Spec] = []
    for number in range(int(rng.integers(1, 7))):
        profile, replicas = str(rng.choice(PROFILES, p=SHARES)), int(rng.integers(1, 9))
        places = [str(rng.choice(zones)) for _ in range(replicas)]
        uri = f"{LIBRARY}profiles/{profile}.yaml"
        one = {"name": f"k{number}-{profile}", "profile": uri, "replicas": replicas, "zones": places}
        found.append({**one, "role": "serving"})
    found[int(rng.integers(len(found)))]["role"] = "known_good"
    return found


def _homes(rng: np.random.Generator, kernels: list[Spec]) -> list[Spec]:
    """A home for every slice, on all kernels or on the first few."""
    among = max(1, len(kernels) - int(rng.integers(0, 3)))
    return [{"slice": one, "kernel": kernels[int(rng.integers(among))]["name"]} for one in SLICES]


def _workload(rng: np.random.Generator) -> Spec:
    mix = slice_mix(rng, 3.0)
    prompt, output = (
        float(np.round(rng.choice(means) * rng.uniform(0.8, 1.2)))
        for means in ([128, 256, 512, 1024, 2048], [32, 128, 256, 400])
    )
    spec: Spec = {
        "rate_rps": 1.0,
        "arrivals": "gamma",
        "gamma": {"gap_cv": float(np.round(rng.uniform(1.0, 4.0), 1))},
        "slice_mix": mix,
        "prompt_tokens": lengths(rng, prompt, 4096),
        "output_tokens": lengths(rng, output, 1024),
    }
    if rng.random() < 0.25:
        wrong = [float(rng.choice([0.5, 2.0])) for _ in range(2)]
        spec["declared"] = {"prompt_tokens": prompt * wrong[0], "output_tokens": output * wrong[1]}
    return spec


def slice_mix(rng: np.random.Generator, evenness: float) -> list[Spec]:
    """Shares of the slices, the nearer to each other the larger ``evenness``."""
    shares = np.round(rng.dirichlet([evenness] * len(SLICES)), 3)
    shares[-1] = round(1.0 - float(shares[:-1].sum()), 3)
    return [{"slice": one, "share": float(share)} for one, share in zip(SLICES, shares, strict=True)]


def lengths(rng: np.random.Generator, mean: float, most: int) -> Spec:
    """A log-normal law with this mean number of tokens, and a drawn shape."""
    sigma = float(rng.choice([0.3, 0.6, 0.9]))
    return {"distribution": "lognormal", "mean": mean, "sigma": sigma, "max_tokens": most}


def _fault(rng: np.random.Generator, name: str, kernels: list[Spec]) -> Spec:
    kernel = kernels[int(rng.integers(len(kernels)))]
    fault: Spec = {"name": name, "onset_s": float(rng.integers(80, 180))}
    conditions = NUMERIC.get(kernel["name"].partition("-")[2], ())
    if conditions and rng.random() < 0.25:
        kind, condition = conditions[int(rng.integers(len(conditions)))]
        return {**fault, "kind": kind, "condition": condition, "target": {"kernel": kernel["name"]}}
    fault["kind"] = kind = str(rng.choice([*DOSES, *WITHOUT_DOSE]))
    fault["target"] = target(rng, kernel)
    if kind in DOSES:
        fault["dose"] = float(rng.choice(DOSES[kind]))
    if rng.random() < 0.3:
        period_s, duty = float(rng.choice([20.0, 60.0, 120.0])), float(rng.choice([0.3, 0.6]))
        fault |= {"shape": "intermittent", "intermittent": {"period_s": period_s, "duty_ratio": duty}}
    return fault


def target(rng: np.random.Generator, kernel: Spec) -> Spec:
    """A replica, a zone, a share, ``kernel`` or all."""
    targets: dict[str, Spec] = {
        "replica": {"kernel": kernel["name"], "replica": int(rng.integers(kernel["replicas"]))},
        "zone": {"zone": str(rng.choice(kernel["zones"]))},
        "share": {"replica_ratio": float(rng.choice([0.34, 0.5, 0.75]))},
        "kernel": {"kernel": kernel["name"]},
        "all": {"replica_ratio": 1.0},
    }
    return targets[str(rng.choice(SCOPES))]


def _changes(rng: np.random.Generator, kernels: list[Spec]) -> list[Spec]:
    kernel, drawn = kernels[int(rng.integers(len(kernels)))], rng.random(3)
    found: list[Spec] = []
    if drawn[0] < 0.15 and kernel["replicas"] > 1:
        found.append({"kind": "scale_down", "at_s": 150.0, "kernel": kernel["name"], "replicas": 1})
    if drawn[1] < 0.1:
        found.append({"kind": "lost_scrapes", "at_s": 120.0, "duration_s": 150.0, "ratio": 0.7})
    if drawn[2] < 0.1:
        found.append(
            {
                "kind": "rolling_restart",
                "at_s": 150.0,
                "kernel": kernel["name"],
                "step_s": 40.0,
                "cold_start_s": 20.0,
            }
        )
    return found
