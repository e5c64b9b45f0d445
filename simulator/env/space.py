"""The space from which random episodes are drawn, and the families that no policy is trained on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from contracts.documents.scenario import ScheduledFault

Split = Literal["train", "held_out", "all"]
Range = tuple[float, float]

#: Measured conditions that no training episode uses; ``e5-heldout.yaml`` consists of them.
RESERVED = (
    "requantise-w5",
    "requantise-w4-head",
    "noise-0.05-all-layers",
    "noise-0.1-one-layer",
    "noise-0.3-one-layer",
    "regression-kv-e4m3",
    "bit-flips-1-exponent-seed2",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpace:
    """The space of episodes. Ranges are (low, high), drawn uniformly unless stated otherwise."""

    rate_ratio: Range = (0.6, 1.2)
    """Offered rate over the base scenario's, for answers of its length; longer answers lower the rate."""
    prompt_factor: Range = (0.5, 2.0)
    """Mean prompt over the declared one, which the controller is told; drawn log-uniformly."""
    answer_factor: Range = (0.5, 2.0)
    """Mean answer over the declared one; drawn log-uniformly."""
    calm_share: float = 0.15
    """Episodes without a fault."""
    second_share: float = 0.1
    """Episodes with a second fault."""
    change_share: float = 0.25
    """Episodes with an ordinary change."""
    away_share: float = 0.1
    """Chance of each replica except its kernel's first to be missing."""
    onset_ratio: Range = (0.1, 0.5)
    """Onset of the first fault over the horizon."""
    rise_s: Range = (30.0, 150.0)
    """Of ramps and slow onsets."""
    period_s: Range = (30.0, 120.0)
    """Of intermittent faults."""
    slow_factor: Range = (1.5, 8.0)
    """Dose, drawn log-uniformly."""
    latency_ms: Range = (200.0, 20000.0)
    """Dose, drawn log-uniformly."""
    surge_factor: Range = (1.3, 2.5)
    """Dose, drawn log-uniformly."""
    http_error_ratio: Range = (0.02, 0.8)
    """Dose."""
    kv_held_ratio: Range = (0.5, 0.995)
    """Dose."""
    trace_missing_ratio: Range = (0.05, 1.0)
    """Dose."""
    scrape_interval_s: Range = (1.0, 10.0)
    scrape_loss_ratio: Range = (0.0, 0.2)
    """Chance of a scrape to be lost."""
    held_out_ratio: float = 0.2
    """Share of families that are held out."""
    reserved: tuple[str, ...] = RESERVED
    """Conditions with families that are all held out."""

    def __post_init__(self) -> None:
        for name in ("calm_share", "second_share", "change_share", "away_share", "held_out_ratio"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}: expected a ratio in 0..1, got {getattr(self, name)}")


def family_of(fault: ScheduledFault) -> str:
    """Family of a scheduled fault: kind, kernel, condition, shape and target, without numbers."""
    target = fault.target
    kernel = target.kernel or (target.kernels or ("",))[0]
    where = "replica" if target.replica is not None else "zone" if target.zone else "kernel"
    where = "several" if target.kernels else where
    if fault.kind == "load_surge":
        kernel, where = "", "arrivals"
    return "|".join((fault.kind, kernel, fault.condition or "", fault.shape, where))


def is_held_out(name: str, ratio: float, reserved: tuple[str, ...] = ()) -> bool:
    """Whether the fault family ``name`` is held out: it has a reserved condition, or its name's
    hash says so.
    """
    if name.split("|")[2] in reserved:
        return True
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") < ratio * 2.0**64
