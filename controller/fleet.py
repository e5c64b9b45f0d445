"""``FleetSetup``: the fixed facts of a fleet: layout, contract, capacities, homes, stages, certificates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.certified import CertifiedValues
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.compiled.steady_state import EngineModel
from contracts.documents.pool import PoolKernel
from contracts.telemetry import SampleRates

USUAL_RATES = SampleRates(probes_per_s=1.0, scrape_interval_s=5.0)


class Stage(IntEnum):
    """Admission stage of a kernel: shadow takes no user traffic, canary a bounded share."""

    SHADOW = 0
    CANARY = 1
    ACTIVE = 2


def stages_of(kernels: Iterable[PoolKernel]) -> NDArray[np.int64]:
    """int64 [K], the ``Stage`` of each entry of a pool."""
    return np.array([int(Stage[kernel.stage.upper()]) for kernel in kernels], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSetup:
    """Fixed facts of one fleet layout; all fleets of a batch share them."""

    layout: FleetLayout
    contract: CompiledContract
    #: float64 [K], declared capacity of one replica in requests per second: a prior, not the truth.
    capacity_rps: NDArray[np.float64]
    home: NDArray[np.int64]  # [S], the kernel that serves a slice while everything is healthy
    tick_s: float = 1.0  # length of a control tick
    rates: SampleRates = USUAL_RATES  # of one replica; they turn a budget per month into one per sample
    #: float64 [K, S], total variation to the reference of a healthy kernel on a slice, as measured when it
    #: was certified (None: not measured); for policies that plan with measured profiles.
    quality_loss: NDArray[np.float64] | None = None
    stage: NDArray[np.int64] | None = None  # [K], a ``Stage`` each (None: all active)
    #: float64 [K, S, n, M], probe values of each kernel on a slice's probe prompts when it was certified
    #: (NaN: fewer prompts, or not measured; None: of no kernel).
    certified_observations: NDArray[np.float64] | None = None
    engine: EngineModel | None = None  # certified engines (None: ``capacity_rps`` is all that is known)
    certified: CertifiedValues | None = None  # of the golden prompts when each kernel was certified

    def __post_init__(self) -> None:
        self._check_kernels()
        self._check_slices()
        if not self.tick_s > 0.0:
            raise ValueError(f"tick_s: expected a number > 0, got {self.tick_s}")

    def _check_kernels(self) -> None:
        kernels, _, _ = self.layout.shape
        if self.capacity_rps.shape != (kernels,):
            raise ValueError(f"capacity_rps: expected shape ({kernels},), got {self.capacity_rps.shape}")
        if not bool(np.all(self.capacity_rps > 0.0)):
            raise ValueError(f"capacity_rps: expected numbers > 0, got {self.capacity_rps.tolist()}")
        if self.stage is not None and self.stage.shape != (kernels,):
            raise ValueError(f"stage: expected shape ({kernels},), got {self.stage.shape}")

    def _check_slices(self) -> None:
        kernels, slices, _ = self.layout.shape
        if self.home.shape != (slices,) or not bool(np.all((self.home >= 0) & (self.home < kernels))):
            raise ValueError(
                f"home: expected {slices} kernel indices below {kernels}, got {self.home.tolist()}"
            )
        if self.contract.slices != self.layout.slices:
            raise ValueError(
                f"contract slices: expected {self.layout.slices}, got {self.contract.slices}; "
                "compile the contract for this layout"
            )
        certified = self.certified_observations
        if certified is not None and certified.shape[:2] != (kernels, slices):
            raise ValueError(
                f"certified_observations: expected ({kernels}, {slices}, ...), got {certified.shape}"
            )
        if self.quality_loss is not None and self.quality_loss.shape != (kernels, slices):
            raise ValueError(f"quality_loss: expected ({kernels}, {slices}), got {self.quality_loss.shape}")
