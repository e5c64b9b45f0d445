"""Small contracts and samples for tests, built in code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from contracts.assess.observations import Observations, ObservedColumn
from contracts.assess.samples import KernelSamples, save_samples
from contracts.documents.contract import KernelContract
from contracts.loading.loader import load_text
from tests.support.documents.documents_written import envelope

CLAUSE = """
    - id: {id}
      family: {family}
      metric: {metric}
      estimator: {estimator}
      threshold: {threshold}
      budget: {budget}
      level: {level}
      remediation: probe again
      reason: made for a test
"""


def contract(*clauses: dict[str, Any], slices: tuple[str, ...] = ("code", "prose")) -> KernelContract:
    """A contract of the given clauses; the last slice is the default one."""
    plain = {"family": "N", "estimator": "full_vocab", "budget": 0, "level": "L2"}
    lines = [CLAUSE.format(**(plain | {"id": f"c{i}"} | clause)) for i, clause in enumerate(clauses)]
    extra = [str(clause.get("extra", "")) for clause in clauses]
    body = "".join(line.rstrip() + "\n" + more for line, more in zip(lines, extra, strict=True))
    named = "".join(f"    - {{name: {name}, default: {name == slices[-1]}}}\n" for name in slices)
    text = f"""
apiVersion: selvage.dev/v1alpha1
kind: KernelContract
metadata: {{name: made}}
spec:
  description: made for a test
  slices:
{named.replace("True", "true").replace("False", "false")}  clauses:
{body}  escalation: {{guard_threshold: 0.5, fallback_threshold: 2.0, when_uncertified: shed}}
"""
    document = load_text(text, "made.yaml")
    assert isinstance(document, KernelContract)
    return document


def observed(**columns: Any) -> Observations:
    """Observations on slice "code" (``kl=...`` fills kl_mean@full_vocab) and the same on "prose"."""
    names = {"kl": "kl_mean@full_vocab", "flip": "top1_flip@full_vocab", "top5": "top5_overlap@full_vocab"}
    entries = [
        ObservedColumn(slice=place, column=names.get(key, key), values=np.asarray(values, dtype=np.float64))
        for key, values in columns.items()
        for place in ("code", "prose")
    ]
    return Observations(sha256="00", condition="healthy", split="certify", columns=tuple(entries))


def kernel_samples(scale: float = 1e-4, prompts: int = 64, seed: int = 0) -> KernelSamples:
    """Healthy log-normal drifts on two slices and three splits, with a fault ten times as far out.

    Columns agree with each other to first order: d is drawn, the rest follow from the bound chain.
    """
    rng = np.random.default_rng(seed)
    slices, splits = ("code", "prose"), ("certify", "probe", "traffic")
    cells = [(place, split) for place in slices for split in splits for _ in range(prompts)]
    count = len(cells)
    kl = scale * rng.lognormal(sigma=0.5, size=count)
    columns = {
        "kl_mean@full_vocab": kl,
        "kl_max@full_vocab": 3 * kl,
        "tv_mean@full_vocab": 0.5 * np.sqrt(kl),
        "tv_max@full_vocab": np.sqrt(kl),
        "linf_mean@full_vocab": 4 * np.sqrt(kl),
        "linf_max@full_vocab": 8 * np.sqrt(kl),
        "abs_log_w@full_vocab": np.sqrt(kl),
        "w_log_w@full_vocab": kl,
        "token_prob_error@full_vocab": 1 + np.sqrt(kl),
        "top1_flip@full_vocab": rng.binomial(63, 0.01, size=count) / 63,
        "kl_mean@top_k": 0.8 * kl,
    }
    healthy = np.stack(list(columns.values()), axis=-1)[:, None, :].repeat(2, axis=1)
    return KernelSamples(
        condition_names=("healthy", "requantise-w4"),
        prompt_ids=np.arange(count),
        prompt_slice=tuple(place for place, _ in cells),
        prompt_split=tuple(split for _, split in cells),
        metric_names=tuple(columns),
        values=np.stack([healthy, 10 * healthy]),
    )


def profile_files(folder: Path, samples: KernelSamples, **fingerprint: str) -> Path:
    """A profile document in ``folder`` whose samples are ``samples``; returns its path."""
    sha256 = save_samples(folder / "kernel.npz", samples)
    spec = MEASURED | {
        "fingerprint": {"engine": "vllm", "engine_version": "1", "dtype": "bfloat16"} | fingerprint,
        "conditions": [_condition(name) for name in samples.condition_names],
        "samples": {"uri": "kernel.npz", "sha256": sha256},
    }
    path = folder / "kernel.yaml"
    path.write_text(json.dumps(envelope("KernelProfile", "bf16", spec)))  # JSON is YAML without aliases
    return path


#: Fields of a profile that no test reads.
MEASURED: dict[str, object] = {
    "kernel": "bf16",
    "reference": {"name": "ref", "engine": "torch", "dtype": "float32"},
    "step_time": {
        "base_ms": 1.0,
        "per_prefill_token_ms": 0.1,
        "per_decode_sequence_ms": 0.1,
        "per_context_token_ms": 0.001,
        "relative_error": 0.1,
        "measured_points": 9,
    },
    "memory": {"weights_bytes": 1, "kv_bytes_per_token": 1, "peak_rss_bytes": 1},
    "prompts": {"uri": "prompts.jsonl", "sha256": "0" * 64},
    "provenance": {
        "command": "made for a test",
        "versions": [],
        "hardware": "none",
        "model_sha256": "0" * 64,
        "seed": 0,
        "date": "2026-01-01",
    },
}


def _condition(name: str) -> dict[str, object]:
    measure = {
        "slice": "code",
        "metric": "kl_mean",
        "estimator": "full_vocab",
        "mean": 1e-4,
        "p50": 1e-4,
        "p95": 2e-4,
        "p99": 2e-4,
        "max": 3e-4,
        "n": 64,
    }
    return {
        "name": name,
        "fault": "none" if name == "healthy" else "requantise",
        "verified": True,
        "restored_bit_exact": True,
        "measures": [measure],
    }
