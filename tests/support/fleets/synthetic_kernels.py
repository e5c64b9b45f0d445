"""Fictitious kernels for tests: profiles and samples in the shipped format, numbers made up.

Nothing here was measured; shipped profiles are. The drift ladder only has the right order, so that
tests need no engine.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from tests.support.documents.documents_written import envelope, write_yaml

SLICES = ("code", "prose", "json", "numbers", "long")
#: One value per prompt and metric; order of the samples' last axis.
COLUMNS = (
    "kl_mean@full_vocab", "kl_max@full_vocab", "tv_mean@full_vocab", "tv_max@full_vocab",
    "linf_mean@full_vocab", "linf_max@full_vocab", "l2_mean@full_vocab", "top1_flip@full_vocab",
    "top5_overlap@full_vocab", "top10_overlap@full_vocab", "abs_log_w@full_vocab",
    "w_log_w@full_vocab", "abs_log_w@sampled", "token_prob_error@sampled", "kl_mean@top_k",
    "tv_mean@top_k",
)  # fmt: skip
PROMPTS_PER_SLICE = 24
SPLITS = ("certify", "probe", "traffic")

#: name -> (fault kind, dose setting, mean KL in nats, step-time factor); fictitious.
CONDITIONS: dict[str, tuple[str, float, float, float]] = {
    "healthy": ("none", 0.0, 0.0, 1.0),
    "requantise-w8": ("requantise", 8.0, 1.4e-4, 1.0),
    "requantise-w6": ("requantise", 6.0, 9e-4, 1.0),
    "requantise-w4": ("requantise", 4.0, 1.8e-2, 1.0),
    "requantise-w3": ("requantise", 3.0, 1.2e-1, 1.0),
    "noise-10": ("noise", 0.1, 2.1e-4, 1.0),
    "noise-30": ("noise", 0.3, 1.2e-3, 1.0),
    "bit-flips": ("bit_flips", 1.0, 3.3e-2, 1.0),
    "regression": ("kernel_regression", 1.0, 6e-3, 1.0),
    "slow-2": ("slow", 2.0, 0.0, 2.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticKernel:
    """A made-up kernel: mean KL to the reference when healthy, and its step time."""

    name: str
    drift_kl: float
    base_ms: float = 4.0
    role: str = "candidate"
    replicas: int = 3
    slices: tuple[str, ...] = SLICES


KERNELS = (
    SyntheticKernel(name="fp32", drift_kl=1e-7, base_ms=6.0, role="known_good"),
    SyntheticKernel(name="bf16", drift_kl=6e-5, role="serving"),
    SyntheticKernel(name="int8", drift_kl=4e-4, base_ms=3.0, role="serving"),
)


def sample_values(kernel: SyntheticKernel, seed: int) -> NDArray[np.float64]:
    """Values ``[conditions, prompts, repeats, metrics]``; repeats are equal, as measured engines are."""
    rng = stream(seed, "synthetic", "prompts")
    prompts = PROMPTS_PER_SLICE * len(kernel.slices) * len(SPLITS)
    spread = rng.lognormal(-0.08, 0.4, prompts)
    doses = np.array([dose for _, _, dose, _ in CONDITIONS.values()])
    kl = (kernel.drift_kl + doses)[:, None] * spread[None, :]
    tv = np.minimum(1.0, 0.6 * np.sqrt(kl / 2.0))
    linf = np.sqrt(2.0 * kl) * 2.5
    flips = np.minimum(1.0, 1.4 * tv)
    columns = [kl, 4 * kl, tv, np.minimum(1.0, 3 * tv), linf, 3 * linf, 4 * linf, flips]
    columns += [1 - 0.5 * flips, 1 - 0.4 * flips, 1.3 * tv, kl, 1.3 * tv, 1 + 1.3 * tv, 0.8 * kl, 0.8 * tv]
    values = np.stack(columns, axis=-1)[:, :, None, :]
    return np.ascontiguousarray(np.repeat(values, 2, axis=2))


def write_samples(path: Path, kernel: SyntheticKernel, seed: int = 1) -> str:
    """Write the ``.npz`` of one kernel and return its sha256."""
    count = PROMPTS_PER_SLICE * len(SPLITS)
    with path.open("wb") as file:
        np.savez(
            file,
            condition_names=np.array(list(CONDITIONS)),
            prompt_ids=np.arange(count * len(kernel.slices), dtype=np.int64),
            prompt_slice=np.repeat(np.array(kernel.slices), count),
            prompt_split=np.tile(np.repeat(np.array(SPLITS), PROMPTS_PER_SLICE), len(kernel.slices)),
            metric_names=np.array(COLUMNS),
            values=sample_values(kernel, seed),
        )
    return _digest(path)


def _measure(slice_name: str, column: str, values: NDArray[np.float64]) -> dict[str, object]:
    metric, estimator = column.split("@")
    quantiles = {f"p{q}": float(np.percentile(values, q)) for q in (50, 95, 99)}
    return {
        "slice": slice_name,
        "metric": metric,
        "estimator": estimator,
        "split": "certify",
        "mean": float(values.mean()),
        **quantiles,
        "max": float(values.max()),
        "n": int(values.size),
    }


def _conditions(kernel: SyntheticKernel, seed: int) -> list[dict[str, object]]:
    values = sample_values(kernel, seed)[:, :, 0, :]
    rows = []
    for index, (name, (fault, setting, _, step)) in enumerate(CONDITIONS.items()):
        measures = []
        for place, slice_name in enumerate(kernel.slices):
            first = place * PROMPTS_PER_SLICE * len(SPLITS)
            certify = values[index, first : first + PROMPTS_PER_SLICE]
            measures += [_measure(slice_name, COLUMNS[m], certify[:, m]) for m in (0, 2, 7)]
        rows.append(
            {
                "name": name,
                "fault": fault,
                "dose_setting": setting,
                "verified": True,
                "restored_bit_exact": True,
                "step_time_factor": step,
                "measures": measures,
            }
        )
    return rows


def write_prompts(folder: Path, slices: tuple[str, ...] = SLICES) -> Path:
    """Write the fictitious golden prompts, the long ones four times as long, and return their path."""
    count = PROMPTS_PER_SLICE * len(SPLITS)
    path = folder / "prompts.jsonl"
    lines = []
    for number in range(count * len(slices)):
        name = slices[number // count]
        split = SPLITS[number % count // PROMPTS_PER_SLICE]
        tokens = [0] * (256 if name == "long" else 64)
        lines.append({"id": number, "slice": name, "split": split, "token_ids": tokens})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def profile_document(kernel: SyntheticKernel, samples: Path, seed: int = 1) -> dict[str, object]:
    """The ``KernelProfile`` document of a synthetic kernel with samples at ``samples``."""
    digest, prompts = _digest(samples), write_prompts(samples.parent, kernel.slices)
    fingerprint = {
        "engine": "synthetic",
        "engine_version": "0",
        "dtype": kernel.name,
        "quantization": "none",
        "kv_cache_dtype": "auto",
        "attention_backend": "none",
        "compile_mode": "eager",
        "hardware": "none",
        "isa": "none",
    }
    spec: dict[str, object] = {
        "kernel": kernel.name,
        "fingerprint": fingerprint,
        "reference": {"name": "synthetic-reference"},
        "step_time": {
            "base_ms": kernel.base_ms,
            "per_prefill_token_ms": 0.02,
            "per_decode_sequence_ms": 0.15,
            "per_context_token_ms": 0.0002,
            "relative_error": 0.05,
            "measured_points": 40,
        },
        "memory": {"weights_bytes": 7_340_032, "kv_bytes_per_token": 4096, "peak_rss_bytes": 300_000_000},
        "conditions": _conditions(kernel, seed),
        "samples": {"uri": samples.name, "sha256": digest, "format": "npz"},
        "prompts": {"uri": prompts.name, "sha256": _digest(prompts)},
        "provenance": {
            "command": "tests only, fictitious",
            "versions": [{"name": "numpy", "version": "2"}],
            "hardware": "none",
            "model_sha256": "0" * 64,
            "seed": seed,
            "date": "2026-01-01",
        },
        "not_measured": ["refusal_rate_gap", "parseability_gap"],
    }
    return envelope("KernelProfile", kernel.name, spec)


def write_profile(folder: Path, kernel: SyntheticKernel, seed: int = 1) -> Path:
    """Write one kernel's samples and profile into ``folder`` and return the profile's path."""
    samples = folder / f"{kernel.name}.npz"
    write_samples(samples, kernel, seed)
    return write_yaml(folder / f"{kernel.name}.yaml", profile_document(kernel, samples, seed))
