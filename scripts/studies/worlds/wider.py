"""Random worlds of a wider kind: facts that ``drawn`` keeps fixed vary here as well.

Loads that rise and fall or surge, lengths that drift, sticky sessions, gateways with one or three attempts
and queues that overflow, late and rare scrapes, noisy probes, engines with small limits, capacities
declared far off, quantised kernels beside the others, canaries, faults that come slowly, end, or strike half
of a build, surges and ordinary change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.loading.shipped import LIBRARY, SERVING_POOL
from contracts.rng import stream
from scripts.studies.worlds.drawn import HORIZON_S, SEED, SLICES, Spec, lengths, slice_mix, target

PROFILES = ("bf16", "w8a8", "bf16-compiled", "fp16", "fp32", "fp8", "bf16-kv-e4m3")
SHARES = (0.3, 0.15, 0.15, 0.1, 0.15, 0.1, 0.05)
#: Kernels that keep the contract healthy, and so may be home.
HEALTHY = ("bf16", "bf16-compiled", "fp16", "fp32", "w8a8")
#: Measured conditions of wrong numbers, by profile: kind of fault and condition.
NUMERIC: dict[str, tuple[tuple[str, str], ...]] = {
    "bf16": (
        ("requantise", "requantise-w3"),
        ("requantise", "requantise-w5"),
        ("requantise", "requantise-w4-head"),
        ("noise", "noise-0.3-one-layer"),
        ("noise", "noise-0.05-all-layers"),
        ("bit_flips", "bit-flips-1-exponent-seed0"),
        ("kernel_regression", "regression-kv-e5m2"),
    ),
    "fp16": (("requantise", "requantise-w4"), ("noise", "noise-0.1-all-layers")),
    "w8a8": (("kernel_regression", "isa-no-vnni"),),
}
#: Doses of the other kinds.
DOSES: dict[str, tuple[float, ...]] = {
    "http_errors": (0.03, 0.2, 0.5, 1.0),
    "latency": (200.0, 700.0, 1500.0, 5000.0),
    "slow": (1.3, 1.7, 3.0, 8.0),
    "kv_pressure": (0.7, 0.9, 0.97),
    "trace_fields_missing": (0.1, 1.0),
}
WITHOUT_DOSE = ("crash", "hang", "telemetry_loss", "wrong_fingerprint", "raise")


def draw_wider(number: int) -> tuple[Spec, float]:
    """The spec of world ``number`` at one request per second, and its load as a share of capacity."""
    rng = stream(SEED, "wider worlds", number)
    zones = ("a", "b", "c", "d")[: int(rng.integers(1, 5))]
    kernels = _kernels(rng, zones)
    faults = [_fault(rng, f"fault-{i}", kernels) for i in range(int(rng.choice([0, 1, 1, 2, 3])))]
    spec = {
        "description": f"Wider random world {number}.",
        "pool": {"kernels": kernels, "home": _homes(rng, kernels)},
        "contract": SERVING_POOL,
        "horizon_s": HORIZON_S,
        "workload": _workload(rng),
        "gateway": _gateway(rng),
        "telemetry": _telemetry(rng),
        "faults": faults,
        "changes": _changes(rng, kernels),
    }
    return spec, float(rng.uniform(0.2, 1.3))


def _kernels(rng: np.random.Generator, zones: tuple[str, ...]) -> list[Spec]:
    found: list[Spec] = []
    most = int(rng.choice([8, 32, 64, 64]))  # of all kernels: a simulated pool has one value
    for number in range(int(rng.integers(1, 6))):
        replicas = int(rng.choice([1, 2, 3, 4, 6, 10]))
        profile = str(rng.choice(PROFILES, p=SHARES)) if number else str(rng.choice(HEALTHY))
        one: Spec = {
            "name": f"k{number}-{profile}",
            "profile": f"{LIBRARY}profiles/{profile}.yaml",
            "replicas": replicas,
            "zones": [zones[i % len(zones)] for i in range(replicas)],
            "role": "serving",
            "limits": {"max_sequences": most, "kv_blocks": int(rng.choice([1024, 4096, 4096]))},
        }
        if rng.random() < 0.2:
            one["capacity_rps"] = float(np.round(10.0 ** rng.uniform(-0.5, 1.5), 2))
        if number and rng.random() < 0.1:
            one["stage"] = "canary"
        found.append(one)
    able = [one for one in found if one["name"].partition("-")[2] in HEALTHY and "stage" not in one]
    able[int(rng.integers(len(able)))]["role"] = "known_good"
    return found


def _homes(rng: np.random.Generator, kernels: list[Spec]) -> list[Spec]:
    """A home for every slice, on kernels that are healthy and active."""
    able = [one for one in kernels if one["name"].partition("-")[2] in HEALTHY and "stage" not in one]
    among = max(1, len(able) - int(rng.integers(0, 3)))
    return [{"slice": one, "kernel": able[int(rng.integers(among))]["name"]} for one in SLICES]


def _workload(rng: np.random.Generator) -> Spec:
    mix = slice_mix(rng, 1.0)
    prompt = float(np.round(2.0 ** rng.uniform(6.0, 11.5)))
    output = float(np.round(2.0 ** rng.uniform(3.0, 9.0)))
    spec: Spec = {
        "rate_rps": 1.0,
        "slice_mix": mix,
        "prompt_tokens": lengths(rng, prompt, 4096),
        "output_tokens": lengths(rng, output, 1024),
        **_arrivals(rng),
    }
    if rng.random() < 0.3:
        spec["drift"] = {"prompt_factor": _factor(rng), "output_factor": _factor(rng)}
    if rng.random() < 0.3:
        spec["session_share"] = 0.5
    return spec


def _arrivals(rng: np.random.Generator) -> Spec:
    laws: tuple[Spec, ...] = (
        {"arrivals": "poisson"},
        {"arrivals": "gamma", "gamma": {"gap_cv": float(np.round(rng.uniform(0.3, 3.5), 1))}},
        {
            "arrivals": "diurnal",
            "diurnal": {"period_s": float(rng.choice([60.0, 240.0])), "amplitude_ratio": 0.6},
        },
        {
            "arrivals": "surge",
            "surge": {"at_s": 200.0, "duration_s": 60.0, "factor": float(rng.choice([1.5, 3.0]))},
        },
    )
    return laws[int(rng.integers(len(laws)))]


def _factor(rng: np.random.Generator) -> float:
    return float(np.round(2.0 ** rng.uniform(-1.0, 1.0), 2))


def _gateway(rng: np.random.Generator) -> Spec:
    return {
        "timeout_s": float(rng.choice([10.0, 30.0, 60.0])),
        "max_attempts": int(rng.integers(1, 4)),
        "queue_limit": int(rng.choice([16, 64, 256])),
        "sticky": bool(rng.random() < 0.3),
    }


def _telemetry(rng: np.random.Generator) -> Spec:
    return {
        "scrape_interval_s": float(rng.choice([1.0, 3.0, 15.0])),
        "scrape_delay_s": float(rng.choice([0.2, 1.0, 3.0])),
        "scrape_loss_ratio": float(rng.choice([0.0, 0.05, 0.3])),
        "probes_per_s": float(rng.choice([0.1, 0.5, 2.0])),
        "repeat_noise": float(rng.choice([0.0, 0.0, 0.2])),
    }


def _fault(rng: np.random.Generator, name: str, kernels: list[Spec]) -> Spec:
    kernel = kernels[int(rng.integers(len(kernels)))]
    fault: Spec = {"name": name, "onset_s": float(rng.integers(60, 240))}
    conditions = NUMERIC.get(kernel["name"].partition("-")[2], ())
    if conditions and rng.random() < 0.4:
        fault["kind"], fault["condition"] = conditions[int(rng.integers(len(conditions)))]
        fault["target"] = _of_kernel(rng, kernel)
    else:
        fault["kind"] = kind = str(rng.choice([*DOSES, *WITHOUT_DOSE]))
        fault["target"] = target(rng, kernel)
        if kind in DOSES:
            fault["dose"] = float(rng.choice(DOSES[kind]))
    return fault | _course(rng, fault)


def _of_kernel(rng: np.random.Generator, kernel: Spec) -> Spec:
    """The kernel, half of it, or one replica: a measured condition belongs to one profile."""
    targets: tuple[Spec, ...] = (
        {},
        {"replica_ratio": 0.5},
        {"replica": int(rng.integers(kernel["replicas"]))},
    )
    return {"kernel": kernel["name"], **targets[int(rng.integers(len(targets)))]}


def _course(rng: np.random.Generator, fault: Spec) -> Spec:
    """Its course over time: permanent, temporary, intermittent, slow."""
    rise = {"rise_s": float(rng.choice([30.0, 120.0]))}
    turns = {
        "period_s": float(rng.choice([15.0, 45.0, 150.0])),
        "duty_ratio": float(rng.choice([0.2, 0.5, 0.8])),
    }
    courses: list[dict[str, Any]] = [
        {},
        {"duration_s": float(rng.choice([10.0, 60.0, 150.0]))},
        {"shape": "intermittent", "intermittent": turns},
    ]
    if fault["kind"] in DOSES:
        courses += [{"shape": "ramp", "ramp": rise}, {"shape": "slow_onset", "slow_onset": rise}]
    return courses[int(rng.integers(len(courses)))]


def _changes(rng: np.random.Generator, kernels: list[Spec]) -> list[Spec]:
    kernel = kernels[int(rng.integers(len(kernels)))]
    at_s = float(rng.integers(50, 350))
    changes: list[Spec] = [
        {"kind": "scale_up", "kernel": kernel["name"], "replicas": 1, "cold_start_s": 30.0},
        {"kind": "rolling_restart", "kernel": kernel["name"], "step_s": 30.0, "cold_start_s": 20.0},
        {"kind": "cache_flush"},
        {"kind": "surge", "duration_s": 45.0, "factor": 2.0},
        {"kind": "lost_scrapes", "duration_s": 90.0, "ratio": 0.9},
    ]
    if kernel["replicas"] > 1:
        changes.append({"kind": "scale_down", "kernel": kernel["name"], "replicas": 1})
    if rng.random() < 0.5:
        return []
    return [changes[int(rng.integers(len(changes)))] | {"at_s": at_s}]
