"""Settings of a controller: ``ControllerSetup`` with the policy, the detector, options and shield limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.compiled.meta import CompiledMeta
from contracts.documents.route import HANG_TIMEOUTS, HeldAgainst, ShieldSettings
from controller.detect.bounds import BoundsPlan
from controller.detect.certified_drift import DriftPlan
from controller.detect.detector import Detector
from controller.detect.window import WindowDetector
from controller.fleet import FleetSetup
from controller.ports import Policy

#: The defaults of a ``RoutePolicy`` document.
_UNSAID = ShieldSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldLimits:
    """``ShieldSettings`` of a RoutePolicy in the shield's terms; the defaults are the document's."""

    #: Largest voluntary change of one row in one tick, as half the L1 distance, 0..1.
    max_move_ratio: float = _UNSAID.max_weight_move_per_tick
    min_dwell_s: float = _UNSAID.min_dwell_s  # from the start of one voluntary move to the start of the next
    canary_most_ratio: float = (
        _UNSAID.new_kernel_traffic_ratio
    )  # a canary's weight on a slice is at most this
    canary_least_ratio: float = _UNSAID.new_kernel_least_ratio  # and at least this
    #: Load over capacity above which traffic overflows and is then shed. A replica keeps its objectives up to
    #: 1.09 to 1.13 times capacity (``selvage bench capacity``), and the estimate of it lies some 4 % low
    #: (``selvage bench learned``).
    max_load_ratio: float = _UNSAID.max_load_ratio
    #: Load over capacity up to which a kernel is filled while others have headroom: the planned load may be
    #: off by 5 %, and a queue that grows at full capacity stays for minutes.
    comfortable_load_ratio: float = 0.9
    #: Load over capacity up to which a kernel keeps what it has, so that small changes of load move nothing.
    kept_load_ratio: float = 0.95
    #: Share of a slice that a policy may shed although there is headroom.
    max_shed_ratio: float = _UNSAID.max_shed_ratio
    min_ready_replicas: int = _UNSAID.min_ready_replicas  # a kernel with fewer in rotation counts as gone

    @classmethod
    def of(cls, settings: ShieldSettings) -> ShieldLimits:
        """The limits that the ``settings`` of a RoutePolicy ask for."""
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
class CapacityOptions:
    """How fast capacity is estimated and how far the estimate is trusted; each value with its reason."""

    #: Weight of the declared mean request, in requests: one scrape of a busy fleet outweighs it.
    prior_requests: float = 20.0
    #: Memory of the mean request, in requests: a mean over so many is known to 2.5 %.
    memory_requests: float = 2000.0
    #: Memory of the engine's speed, in scrapes of a replica: a minute at the usual interval.
    memory_scrapes: float = 12.0
    #: Standard deviation of the log of one scrape's step time over the model's: batches vary within a scrape.
    scrape_noise: float = 0.1
    #: Mean number of decoding sequences for which a scrape has half its weight: below it, a few prompts that
    #: arrive together dominate the step times.
    few_sequences: float = 4.0
    #: Relative error that remains after any number of scrapes: the model is linear, engines are not quite.
    floor: float = 0.03
    #: Quantile of the standard normal at the lower limit: one-sided 95 %.
    quantile: float = 1.645
    #: Time constant, in s, with which the estimate of an idle engine loses its weight.
    forget_s: float = 1800.0
    #: Time without counters, in s, after which the declared request is used; a dozen scrapes at the usual
    #: interval.
    patience_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningOptions:
    """When the load that moves are planned against is replaced by a newer estimate; each with its reason."""

    #: Longest averaging time of the mean load: long enough to be known to 2 % at 20 requests per second.
    steady_s: float = 120.0
    #: Time constant of the variance of counts: some hundred seconds give a variance to 10 %.
    spread_s: float = 300.0
    #: Standard deviations by which the fast estimate exceeds the planned load by chance once per slice and
    #: day.
    surge_sigmas: float = 4.0
    #: Standard deviations for the mean load, which changes more slowly and is compared as often.
    drift_sigmas: float = 3.0
    #: Standard deviations where the mean load is above the planned one: an overfull kernel makes requests
    #: late, an underfull one does not.
    worse_sigmas: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMoveOptions:
    """How the controller's own moves are watched and when they are taken back; each with its reason."""

    #: Share of harmless moves that are taken back by mistake: ``own_moves_blocks.chance_of``.
    error: float = 0.01
    #: Length of one observation: answers of one second share a queue and are not independent; one scrape, or
    #: one flush of the gateway's statistics where that takes longer.
    block_s: float = 5.0
    #: Blocks before a move that it is compared with: at least so many once they exist, at most twice as many.
    past_blocks: int = 24
    #: Comparisons of one move among which the error is divided: a return in four steps takes 150 s.
    most_looks: float = 30.0
    #: Time without a change of the row or evidence against the move after which it is no longer watched.
    settle_s: float = 60.0
    #: Time for which a row that was taken back is held; it doubles each further time ...
    hold_s: float = 120.0
    #: ... up to so many doublings (a day and a half), so that a policy cannot repeat a harmful move for ever.
    doublings: int = 10
    #: Relative gain of a kernel's load by one move that explains late answers there.
    gain_ratio: float = 0.05
    #: Estimated over certified (or usual) capacity below which a kernel is slow, which no move explains.
    slow_ratio: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Settings of the controller itself; each value with its reason."""

    #: Whether single replicas are quarantined; off in the policy configuration "fixed bare".
    quarantine: bool = True
    #: Whether the shield runs; off in policy configurations that must show a policy without it.
    shield: bool = True
    limits: ShieldLimits = field(default_factory=ShieldLimits)
    #: Failed answers in a row after which a replica counts as failing (Envoy's own default is 5).
    failing_after: int = 5
    #: A replica that holds requests and makes no engine step for so long is hung, whatever its peers do.
    hung_after_s: float = 30.0
    #: ... or already after ``hung_least_s``, if the average peer gave so many answers meanwhile: if both
    #: answered at the same rate, none out of twenty would have a probability of 2e-9.
    hung_answers: float = 20.0
    hung_least_s: float = 10.0
    #: Shortest time in quarantine, multiplied by the number of quarantines (as Envoy backs off).
    readmit_after_s: float = 60.0
    #: At most one replica of a kernel is re-admitted in so many seconds.
    readmit_every_s: float = 30.0
    #: Time without telemetry after which the held table is replaced by the known-good kernel for every slice.
    degrade_after_s: float = 300.0
    #: Load over capacity above which late answers are no evidence against a kernel, until one window after
    #: the overload: moving its traffic would not cure it.
    overload_ratio: float = 1.0
    #: Backlog in seconds of work above which the same holds: a burst. At least half of the tightest latency
    #: objective (``perceive.estimate``), because a shorter wait makes no request late.
    behind_s: float = 1.0
    #: Time constant of the smoothed rates.
    smoothing_s: float = 10.0
    #: How capacity is estimated.
    capacity: CapacityOptions = field(default_factory=CapacityOptions)
    #: When the load that moves are planned against changes.
    planning: PlanningOptions = field(default_factory=PlanningOptions)
    #: How the controller's own moves are watched.
    own_moves: OwnMoveOptions = field(default_factory=OwnMoveOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSetup:
    """Everything that ``tick`` needs beside the state and the telemetry: fleet, policy, detector, options."""

    fleet: FleetSetup
    policy: Policy
    options: ControllerOptions = field(default_factory=ControllerOptions)
    detector: Detector = field(default_factory=WindowDetector)
    meta: CompiledMeta | None = None  # the meta-contract of the policy (None: the policy is not supervised)
    baseline: Policy | None = None  # the policy that drives after a demotion
    watch_only: bool = False  # violations of the meta-contract are counted, but never demote
    #: Probes in a row without an answer in time after which a replica that holds requests and makes no step
    #: counts as hung, and its open streams are reset (0: probes are not considered and no stream is reset).
    hang_timeouts: int = HANG_TIMEOUTS
    #: What step times are compared with: the certified ones or, where those were measured on another machine,
    #: the usual ones of the replica (``perceive.usual_speed``). Off: clauses on step times stay unknown.
    own_clocks: HeldAgainst = "certified"

    def __post_init__(self) -> None:
        if self.meta is not None and self.baseline is None:
            raise ValueError(
                "baseline: expected the policy that a demoted one hands over to, got None; "
                f"the meta-contract {self.meta.name!r} names {self.meta.baseline!r}"
            )

    @property
    def drift(self) -> DriftPlan | None:
        """How the detector compares probes with certified values (None: it does not)."""
        plan: DriftPlan | None = getattr(self.detector, "drift", None)
        return plan

    @property
    def bounds(self) -> BoundsPlan | None:
        """How the detector compares probes with values seen while healthy (None: it does not)."""
        plan: BoundsPlan | None = getattr(self.detector, "bounds", None)
        return plan

    @property
    def layout(self) -> FleetLayout:
        """Names of the array axes."""
        return self.fleet.layout

    @property
    def contract(self) -> CompiledContract:
        """The contract as arrays."""
        return self.fleet.contract
