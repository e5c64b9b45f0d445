"""What a controller is set up with: its policy and detector, its own options, the limits of its shield."""

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

#: What a ``RoutePolicy`` asks for that says nothing.
_UNSAID = ShieldSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldLimits:
    """``ShieldSettings`` as the shield computes with them; the defaults are the document's."""

    #: Most of a row, as half L1, that moves in one tick of the policy's own will.
    max_move_ratio: float = _UNSAID.max_weight_move_per_tick
    min_dwell_s: float = _UNSAID.min_dwell_s  # from the begin of one such move to the begin of the next
    canary_most_ratio: float = (
        _UNSAID.new_kernel_traffic_ratio
    )  # a canary's weight on a slice is at most this
    canary_least_ratio: float = _UNSAID.new_kernel_least_ratio  # and at least this
    #: Load over capacity above which traffic overflows and is then shed. A replica keeps its objectives up to
    #: 1.09 to 1.13 times capacity (``selvage bench capacity``), and the estimate of it lies some 4 % low
    #: (``selvage bench learned``).
    max_load_ratio: float = _UNSAID.max_load_ratio
    #: Load over capacity up to which a kernel is filled while others have room below theirs: what is planned
    #: against may be 5 % off, and a queue that has grown at the brim stays for minutes.
    comfortable_load_ratio: float = 0.9
    #: Up to here a kernel keeps what it has, so that a wobble of the load moves nothing.
    kept_load_ratio: float = 0.95
    #: Share of a slice that a policy may shed although there is headroom.
    max_shed_ratio: float = _UNSAID.max_shed_ratio
    min_ready_replicas: int = _UNSAID.min_ready_replicas  # a kernel with fewer in rotation counts as gone

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
class CapacityOptions:
    """How fast capacity is learned and how far it is trusted, each with its reason."""

    #: Requests that the declared mean request is worth: one scrape of a busy fleet outweighs it.
    prior_requests: float = 20.0
    #: Requests after which an old one no longer counts: the mean of so many is known to 2.5 %.
    memory_requests: float = 2000.0
    #: The same in scrapes of a replica: a minute at the usual interval.
    memory_scrapes: float = 12.0
    #: Standard deviation of the log of one scrape's step time over the model's: batches vary within a scrape.
    scrape_noise: float = 0.1
    #: Sequences that decode on average for which a scrape counts half: where fewer do, a few prompts that
    #: come at once make its steps.
    few_sequences: float = 4.0
    #: What no number of scrapes takes away: the model is linear, engines are not quite.
    floor: float = 0.03
    #: Quantile of the standard normal at the lower limit: one-sided 95 %.
    quantile: float = 1.645
    #: Time constant after which what was learned of an engine that is now idle counts little.
    forget_s: float = 1800.0
    #: After so long without counters the declared request is believed; a dozen scrapes at the usual interval.
    patience_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningOptions:
    """When a load that is planned against gives way to a newer one, each with its reason."""

    #: Time that a mean stands on at most: long enough to be known to 2 % at 20 requests per second.
    steady_s: float = 120.0
    #: Time constant of the spread of counts: some hundred seconds tell a variance to 10 %.
    spread_s: float = 300.0
    #: Standard deviations by which a fast estimate differs by chance once in a day and slice.
    surge_sigmas: float = 4.0
    #: The same of a mean, which moves more slowly and is looked at as often.
    drift_sigmas: float = 3.0
    #: The same where the mean says that more has to be done: too full is late, too empty is not.
    worse_sigmas: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMoveOptions:
    """How a move of ours is watched and when it is taken back, each with its reason."""

    #: Share of moves that are taken back although nothing got worse: ``own_moves_blocks.chance_of``.
    error: float = 0.01
    #: Answers of so long are one observation, because answers of one second share a queue; one scrape, or a
    #: flush of the gateway's statistics where that takes longer.
    block_s: float = 5.0
    #: Blocks before a move that it is compared with: at least so many once they came, at most twice.
    past_blocks: int = 24
    #: Looks at one move that the error is shared by: a return in four steps takes 150 s.
    most_looks: float = 30.0
    #: Without a change or evidence for so long a move has proved itself; a switch has settled then.
    settle_s: float = 60.0
    #: A row that was taken back stays so long, twice as long each further time ...
    hold_s: float = 120.0
    #: ... up to so many doublings, a day and a half: whoever wants what does not work comes to rest.
    doublings: int = 10
    #: Load that a kernel gains by one change, over its load then, that explains late answers.
    gain_ratio: float = 0.05
    #: Capacity over that at certified or usual speed below which a kernel is slow, which no move explains.
    slow_ratio: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Settings of the controller itself, each with its reason."""

    #: Use the second lever (single replicas); off in the configuration "fixed bare".
    quarantine: bool = True
    #: Let allowed tables through only; off for configurations that must show a bare policy.
    shield: bool = True
    limits: ShieldLimits = field(default_factory=ShieldLimits)
    #: Failed answers in a row before a replica is failing (Envoy's own default is 5).
    failing_after: int = 5
    #: Requests held and no engine step for so long means hung, whatever its peers do meanwhile.
    hung_after_s: float = 30.0
    #: So many answers of the average peer in the meantime mean hung as well, after ``hung_least_s``; if both
    #: answered alike, none out of twenty has a chance of 2e-9.
    hung_answers: float = 20.0
    hung_least_s: float = 10.0
    #: Least time in quarantine, times the number of quarantines (as Envoy backs off).
    readmit_after_s: float = 60.0
    #: At most one replica of a kernel is re-admitted in so many seconds.
    readmit_every_s: float = 30.0
    #: Silence after which the held table gives way to the known-good baseline.
    degrade_after_s: float = 300.0
    #: Load over capacity above which late answers are no evidence against a kernel, from then to one window
    #: after: moving its traffic would not cure it.
    overload_ratio: float = 1.0
    #: The same while a kernel is so far behind what it was offered, by what it carries: a burst. At least
    #: half of the tightest objective (``perceive.estimate``): a shorter wait makes nobody late.
    behind_s: float = 1.0
    #: Time constant of the smoothed rates.
    smoothing_s: float = 10.0
    #: How capacity is learned.
    capacity: CapacityOptions = field(default_factory=CapacityOptions)
    #: When load that is planned against changes.
    planning: PlanningOptions = field(default_factory=PlanningOptions)
    #: How moves of ours are watched.
    own_moves: OwnMoveOptions = field(default_factory=OwnMoveOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSetup:
    """Everything ``tick`` needs beside the state and the telemetry."""

    fleet: FleetSetup
    policy: Policy
    options: ControllerOptions = field(default_factory=ControllerOptions)
    detector: Detector = field(default_factory=WindowDetector)
    meta: CompiledMeta | None = None  # what the policy must keep (None: nobody watches it)
    baseline: Policy | None = None  # who drives when it does not
    watch_only: bool = False  # violations are counted, and nobody is demoted
    #: Probes in a row without an answer in time after which a replica that holds requests and makes no step
    #: counts as hung, and its open streams are to be reset (0: probes are not asked, no stream is reset).
    hang_timeouts: int = HANG_TIMEOUTS
    #: What step times are held against: the certified ones, or where those are another machine's, what is
    #: usual of a replica (``perceive.usual_speed``). Off: clauses on step times are unknown.
    own_clocks: HeldAgainst = "certified"

    def __post_init__(self) -> None:
        if self.meta is not None and self.baseline is None:
            raise ValueError(
                "baseline: expected the policy that a demoted one hands over to, got None; "
                f"the meta-contract {self.meta.name!r} names {self.meta.baseline!r}"
            )

    @property
    def drift(self) -> DriftPlan | None:
        """How probes are compared with certified values, as the detector wants it (None: they are not)."""
        plan: DriftPlan | None = getattr(self.detector, "drift", None)
        return plan

    @property
    def bounds(self) -> BoundsPlan | None:
        """How probes are compared with what was seen in health, likewise (None: they are not)."""
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
