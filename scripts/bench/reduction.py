"""Time that reducing on a GPU saves ``selvage kld``: ``selvage bench reduction``.

Two sides of ``POSITIONS`` rows over ``VOCABULARY`` tokens, float32, lie on the device, as a reference and the
scores of a model do. In alternating rounds they are reduced to the columns of ``selvage kld`` there, and one
side alone is copied to the host, the least cost of reducing on the host. Times are wall time to the end of
the device's work, ms. If torch sees no GPU the figures say so and are null.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

POSITIONS, VOCABULARY, ROUNDS = 512, 128_256, 9
NO_GPU = "none: torch sees no GPU here"


def run() -> dict[str, object]:
    """Flat figures of the first GPU, by the names of ``gpu`` without their prefix."""
    return {name.removeprefix("gpu_"): value for name, value in gpu().items()}


def gpu() -> dict[str, object]:
    """``gpu_reduced_ms`` and ``gpu_copied_ms``, medians of rounds; ``gpu_times_*`` the copy's relative time;
    all null without a GPU.
    """
    import torch

    if not torch.cuda.is_available():
        found: dict[str, object] = dict.fromkeys(
            ("reduced_ms", "copied_ms", "times_median", "times_min", "times_max")
        )
        return {"gpu_device": NO_GPU} | {f"gpu_{name}": value for name, value in found.items()}
    figures = measured("cuda", POSITIONS, VOCABULARY, torch.cuda.synchronize)
    return {"gpu_device": torch.cuda.get_device_name()} | {f"gpu_{k}": v for k, v in figures.items()}


def measured(
    device: str, positions: int, vocabulary: int, until_done: Callable[[], object]
) -> dict[str, object]:
    """Both ways on ``device``; ``until_done`` waits for the work begun there."""
    import torch

    from live.kld.inside.reduce import reduced

    chance = torch.Generator(device).manual_seed(0)
    drawn: dict[str, Any] = {"device": device, "generator": chance}
    reference = torch.randn(positions, vocabulary, **drawn)
    scores = reference + 0.1 * torch.randn(positions, vocabulary, **drawn)
    targets = torch.randint(vocabulary, (positions,), **drawn)
    ways: dict[str, Callable[[], object]] = {
        "reduced_ms": lambda: reduced(reference, scores, targets),
        "copied_ms": scores.cpu,
    }
    took_ms: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name in ways if number % 2 else reversed(ways):
            until_done()
            began_at_s = time.perf_counter()
            ways[name]()
            until_done()
            took_ms[name].append(1e3 * (time.perf_counter() - began_at_s))
    kept = {name: np.array(each[1:]) for name, each in took_ms.items()}  # the first round warms up
    times = kept["copied_ms"] / kept["reduced_ms"]
    medians: dict[str, object] = {name: float(np.median(each)) for name, each in kept.items()}
    spread = {"median": float(np.median(times)), "min": float(times.min()), "max": float(times.max())}
    return medians | {f"times_{name}": value for name, value in spread.items()}
