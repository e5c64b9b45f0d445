"""What a controller is set up with once: the fleet's fixed facts, the policy, and its own options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from contracts.certified import CertifiedValues
from contracts.compiled import CompiledContract
from contracts.compiled_meta import CompiledMeta
from contracts.detect.budget import SampleRates
from contracts.documents.pool import PoolKernel
from contracts.documents.route import ShieldSettings
from contracts.layout import FleetLayout
from controller.detectors import Detector, WindowDetector
from controller.paired import PairedPlan
from controller.ports import Policy

USUAL_RATES = SampleRates(probes_per_s=1.0, scrape_interval_s=5.0)


class Stage(IntEnum):
    """How far a kernel has been let in: shadow takes no user traffic, canary a bounded share."""

    SHADOW = 0
    CANARY = 1
    ACTIVE = 2


def stages_of(kernels: Iterable[PoolKernel]) -> NDArray[np.int64]:
    """int64 [K], the ``Stage`` of each entry of a pool."""
    return np.array([int(Stage[kernel.stage.upper()]) for kernel in kernels], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldLimits:
    """``ShieldSettings`` as the shield computes with them; the defaults are the document's.

    max_move_ratio: most of a row, as half L1, that moves in one tick of the policy's own will.
    min_dwell_s: time from the begin of one such move to the begin of the next.
    canary_most_ratio, canary_least_ratio: bounds of a canary's weight on a slice.
    max_load_ratio: load over capacity above which traffic is spilled and then shed.
    max_shed_ratio: share of a slice that a policy may shed although there is room.
    min_ready_replicas: a kernel with fewer in rotation counts as gone.
    """

    max_move_ratio: float = 0.25
    min_dwell_s: float = 30.0
    canary_most_ratio: float = 0.05
    canary_least_ratio: float = 0.01
    max_load_ratio: float = 1.25
    max_shed_ratio: float = 0.5
    min_ready_replicas: int = 1

    @classmethod
    def of(cls, settings: ShieldSettings) -> ShieldLimits:
        """Limits that a ``RoutePolicy`` asks for."""
        return cls(
            max_move_ratio=settings.max_weight_move_per_tick,
            min_dwell_s=settings.min_dwell_s,
            canary_most_ratio=settings.new_kernel_traffic_ratio,
            canary_least_ratio=settings.new_kernel_least_ratio,
            max_load_ratio=settings.max_load_ratio,
            max_shed_ratio=settings.max_shed_ratio,
            min_ready_replicas=settings.min_ready_replicas,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSetup:
    """Fixed facts of one fleet layout; all fleets of a batch share them.

    capacity_rps: float64 [K], requests per second that one replica of the kernel carries.
    home: int64 [S], kernel a slice is served by when all is well. tick_s: length of a control tick.
    rates: probes and scrapes of one replica, which turn a budget per month into one per sample.
    quality_loss: float64 [K, S], total variation to the reference of a healthy kernel on a slice, as measured
        when it was certified (None: not measured); for policies that plan with measured profiles.
    stage: int64 [K], a ``Stage`` each (None: all active).
    certified_units: float64 [K, S, n, M], probe values of each kernel on a slice's probe prompts when it was
        certified (NaN: fewer prompts, or not measured; None: of no kernel).
    certified: values of the golden prompts when each kernel was certified (None: not known).
    """

    layout: FleetLayout
    contract: CompiledContract
    capacity_rps: NDArray[np.float64]
    home: NDArray[np.int64]
    tick_s: float = 1.0
    rates: SampleRates = USUAL_RATES
    quality_loss: NDArray[np.float64] | None = None
    stage: NDArray[np.int64] | None = None
    certified_units: NDArray[np.float64] | None = None
    certified: CertifiedValues | None = None

    def __post_init__(self) -> None:
        kernels, slices, _ = self.layout.shape
        if self.quality_loss is not None and self.quality_loss.shape != (kernels, slices):
            raise ValueError(f"quality_loss: expected ({kernels}, {slices}), got {self.quality_loss.shape}")
        if self.capacity_rps.shape != (kernels,):
            raise ValueError(f"capacity_rps: expected shape ({kernels},), got {self.capacity_rps.shape}")
        if not bool(np.all(self.capacity_rps > 0.0)):
            raise ValueError(f"capacity_rps: expected numbers > 0, got {self.capacity_rps.tolist()}")
        if self.home.shape != (slices,) or not bool(np.all((self.home >= 0) & (self.home < kernels))):
            raise ValueError(
                f"home: expected {slices} kernel indices below {kernels}, got {self.home.tolist()}"
            )
        if self.contract.slices != self.layout.slices:
            raise ValueError(
                f"contract slices: expected {self.layout.slices}, got {self.contract.slices}; "
                "compile the contract for this layout"
            )
        if self.certified_units is not None and self.certified_units.shape[:2] != (kernels, slices):
            raise ValueError(
                f"certified_units: expected ({kernels}, {slices}, ...), got {self.certified_units.shape}"
            )
        if self.stage is not None and self.stage.shape != (kernels,):
            raise ValueError(f"stage: expected shape ({kernels},), got {self.stage.shape}")
        if not self.tick_s > 0.0:
            raise ValueError(f"tick_s: expected a number > 0, got {self.tick_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Settings of the controller itself, each with its reason.

    quarantine: use the second lever (single replicas); off in the arm "fixed bare".
    shield: let allowed tables through only; off for arms that must show a bare policy.
    limits: of the shield.
    failing_after: failed answers in a row before a replica is failing (Envoy's own default is 5).
    hung_after_s: requests running and none answered for so long means hung; longer than a healthy
        answer takes, because a replica with one long request answers nothing else.
    hung_answers: so many answers of the average sibling in the meantime mean hung as well, after
        ``hung_least_s``; if both answered alike, none out of twenty has a chance of 2e-9.
    readmit_after_s: least time in quarantine, times the number of quarantines (as Envoy backs off).
    readmit_every_s: at most one replica of a kernel is re-admitted in so many seconds.
    degrade_after_s: silence after which the held table gives way to the known-good baseline.
    overload_ratio: load over capacity above which late answers are no evidence against a kernel, from then
        to one window after: moving its traffic would not cure it.
    smoothing_s: time constant of the smoothed rates.
    """

    quarantine: bool = True
    shield: bool = True
    limits: ShieldLimits = field(default_factory=ShieldLimits)
    failing_after: int = 5
    hung_after_s: float = 30.0
    hung_answers: float = 20.0
    hung_least_s: float = 10.0
    readmit_after_s: float = 60.0
    readmit_every_s: float = 30.0
    degrade_after_s: float = 300.0
    overload_ratio: float = 1.0
    smoothing_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSetup:
    """Everything ``tick`` needs beside the state and the telemetry.

    meta: what the policy must keep (None: nobody watches it). baseline: who drives when it does not.
    watch_only: violations are counted, and nobody is demoted.
    """

    fleet: FleetSetup
    policy: Policy
    options: ControllerOptions = field(default_factory=ControllerOptions)
    detector: Detector = field(default_factory=WindowDetector)
    meta: CompiledMeta | None = None
    baseline: Policy | None = None
    watch_only: bool = False

    def __post_init__(self) -> None:
        if self.meta is not None and self.baseline is None:
            raise ValueError(
                "baseline: expected the policy that a demoted one hands over to, got None; "
                f"the meta-contract {self.meta.name!r} names {self.meta.baseline!r}"
            )

    @property
    def paired(self) -> PairedPlan | None:
        """How probes are compared with certified values, as the detector wants it (None: they are not)."""
        plan: PairedPlan | None = getattr(self.detector, "paired", None)
        return plan

    @property
    def layout(self) -> FleetLayout:
        """Names of the array axes."""
        return self.fleet.layout

    @property
    def contract(self) -> CompiledContract:
        """The contract as arrays."""
        return self.fleet.contract
