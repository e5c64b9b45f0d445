"""A fictitious world for tests, around ``fleets.synthetic_kernels``: contract, pool and scenario.

``write_world(folder)`` writes profiles, a contract and a scenario and returns the scenario's path.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.fleets.synthetic_kernels import KERNELS, SLICES, SyntheticKernel, write_profile


def _clause(
    name: str, family: str, metric: str, estimator: str, threshold: float, **more: object
) -> dict[str, object]:
    row: dict[str, object] = {
        "id": name,
        "family": family,
        "metric": metric,
        "estimator": estimator,
        "threshold": threshold,
        "budget": 0.0,
        "level": "L3",
        "remediation": "move traffic",
        "reason": "synthetic",
    }
    return row | more


def contract_document(name: str = "synthetic-contract", names: tuple[str, ...] = SLICES) -> dict[str, object]:
    """A contract that every healthy synthetic kernel keeps and ``requantise-w4`` breaks."""
    slo = {"latency_ms": 15000.0, "ttft_ms": 2000.0, "inter_token_ms": 80.0}
    slices = [{"name": s, "priority": 1 + i, "default": i == 0, "slo": slo} for i, s in enumerate(names)]
    clauses = [
        _clause("N-kl", "N", "kl_mean", "full_vocab", 2e-3, clip=0.2),
        _clause("N-tv", "N", "tv_mean", "full_vocab", 0.04, level="L2"),
        _clause("S-flip", "S", "top1_flip", "full_vocab", 0.06, level="L2", budget=0.05),
        _clause("R-fail", "R", "failure_rate", "none", 0.02, level="L2"),
        _clause("O-print", "O", "fingerprint_match", "none", 0.0, null_rate=0.0),
        _clause("O-trace", "O", "required_trace_fields", "none", 0.0, level="L1", budget=0.01),
    ]
    spec = {
        "description": "tests only",
        "temperature": 1.0,
        "slices": slices,
        "clauses": clauses,
        "escalation": {
            "guard_threshold": 1.0,
            "fallback_threshold": 2.0,
            "when_uncertified": "serve_known_good",
        },
        "detection": {
            "window_s": 60.0,
            "min_samples": 8,
            "alarm_confidence": 0.99,
            "false_switch_budget_per_slice_month": 1.0,
            "stale_after_s": 15.0,
            "ejection_cap_ratio": 0.5,
        },
        "on_controller_loss": "hold",
    }
    return envelope("KernelContract", name, spec)


def pool_spec(kernels: tuple[SyntheticKernel, ...] = KERNELS) -> dict[str, object]:
    """Pool spec over profiles beside the document; slices live in turn on the serving kernels."""
    serving = [kernel.name for kernel in kernels if kernel.role == "serving"] or [kernels[0].name]
    rows = [
        {
            "name": kernel.name,
            "profile": f"{kernel.name}.yaml",
            "replicas": kernel.replicas,
            "role": kernel.role,
            "zones": [f"z{i % 2}" for i in range(kernel.replicas)],
        }
        for kernel in kernels
    ]
    home = [{"slice": s, "kernel": serving[i % len(serving)]} for i, s in enumerate(kernels[0].slices)]
    return {"kernels": rows, "home": home}


def scenario_document(
    *,
    faults: list[dict[str, object]] | None = None,
    changes: list[dict[str, object]] | None = None,
    horizon_s: float = 60.0,
    rate_rps: float = 12.0,
    kernels: tuple[SyntheticKernel, ...] = KERNELS,
    **more: object,
) -> dict[str, object]:
    """A scenario over the synthetic pool with the given faults and changes."""
    spec: dict[str, object] = {
        "description": "tests only",
        "pool": pool_spec(kernels),
        "contract": "contract.yaml",
        "horizon_s": horizon_s,
        "tick_s": 1.0,
        "workload": {
            "rate_rps": rate_rps,
            "arrivals": "poisson",
            "slice_mix": [{"slice": s, "share": 1.0 / len(kernels[0].slices)} for s in kernels[0].slices],
            "prompt_tokens": {"distribution": "lognormal", "mean": 256.0, "sigma": 0.8},
            "output_tokens": {"distribution": "lognormal", "mean": 64.0, "sigma": 0.8},
            "session_share": 0.3,
        },
        "gateway": {"timeout_s": 20.0, "max_attempts": 2, "queue_limit": 200, "sticky": True},
        "telemetry": {
            "scrape_interval_s": 5.0,
            "scrape_delay_s": 0.5,
            "scrape_loss_ratio": 0.01,
            "probes_per_s": 1.0,
            "repeat_noise": 0.0,
        },
        "faults": faults or [],
        "changes": changes or [],
    }
    return envelope("Scenario", "synthetic", spec | more)


def write_world(folder: Path, document: dict[str, object] | None = None, seed: int = 1) -> Path:
    """Write profiles, contract and scenario into ``folder``; return the scenario's path."""
    for kernel in KERNELS:
        write_profile(folder, kernel, seed)
    write_yaml(folder / "contract.yaml", contract_document())
    return write_yaml(folder / "scenario.yaml", document or scenario_document())
