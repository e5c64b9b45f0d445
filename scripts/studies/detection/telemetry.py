"""Detectors on telemetry of the simulated fleet: observations correlated through queues.

A fault-free fleet of four measured replicas runs at a load where queues form. Two streams per replica: the
share of a scrape's requests over the histogram edge that about one in ten passes, and KV use at each
scrape. The null is the healthy law itself at its mean. Thresholds for ARL0 of 500 scrapes are
calibrated on some fleets, as if scrapes were independent and on blocks, and alarms are counted on others.
After an alarm a stream begins anew one block later: an alarm stands while its queue does, and a mean run
length is the time to the first one. Limits are bootstrapped over fleets, whose replicas share queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.documents.scenario import Scenario
from contracts.jit import compiled
from contracts.loading.loader import document_sha256, load_text
from contracts.rng import stream
from contracts.telemetry import LATENCY_FAMILIES, FleetTelemetry
from contracts.units import MS_PER_S
from controller.detect.calibration.calibrate import block_threshold, calibrated_threshold
from controller.detect.calibration.laws import Empirical
from controller.detect.streams.eprocess import Betting
from controller.detect.streams.protocol import Floats, log_threshold, reaches
from controller.ports import RoutingPlan
from scripts.studies.detection.cases import SEED
from scripts.studies.detection.measured import LIBRARY_FOLDER, shipped
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

ARL0 = 500.0
BLOCK = 200
FLEETS, HORIZON_S, RATE_RPS = 32, 6000.0, 42.0
_RESAMPLES = 1000
REPLICAS = 4
WARM_S = 300.0
#: Index of the family on which ``dependence`` is measured.
TTFT = LATENCY_FAMILIES.index("ttft_ms")
#: Of a fleet with one slice, and with three of which one has few requests.
ALONE = "[{slice: code, share: 1.0}]"
STICKY = "{timeout_s: 30.0, max_attempts: 2, queue_limit: 128, sticky: true}"
MIX = "[{slice: code, share: 0.6}, {slice: json, share: 0.3}, {slice: long_context, share: 0.1}]"
SCENARIO = """
apiVersion: selvage.dev/v1alpha1
kind: Scenario
metadata: {{name: queues}}
spec:
  description: Four replicas of one kernel near their capacity, no fault.
  pool:
    kernels:
      - {{name: bf16, profile: ../profiles/bf16.yaml, replicas: {replicas}, role: serving}}
      - {{name: w8a8, profile: ../profiles/w8a8.yaml, replicas: 1, role: known_good}}
    home:
      - {{slice: code, kernel: bf16}}
      - {{slice: prose, kernel: bf16}}
      - {{slice: json, kernel: bf16}}
      - {{slice: numbers, kernel: bf16}}
      - {{slice: long_context, kernel: bf16}}
  contract: ../serving-pool.yaml
  horizon_s: {horizon_s}
  tick_s: 1.0
  workload:
    rate_rps: {rate_rps}
    arrivals: poisson
    session_share: {session_share}
    slice_mix: {slice_mix}
    prompt_tokens: {{distribution: lognormal, mean: 512.0, sigma: 0.7, max_tokens: 4096}}
    output_tokens: {{distribution: lognormal, mean: 256.0, sigma: 0.6, max_tokens: 1024}}
  gateway: {gateway}
  telemetry: {{scrape_interval_s: 5.0, scrape_delay_s: 0.5, probes_per_s: 0.0}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """One kind of stream. correlation: from one scrape to the next. *_arl: measured, with 95 % limits."""

    stream: str
    correlation: float
    independent_arl: float
    block_arl: float
    block_low: float
    block_high: float


@dataclass(slots=True)
class ScrapeWatcher:
    """A driver that leaves every slice at home and records scrapes.

    replicas: of the first kernel. Tick by tick, NaN where no scrape came: counts: float32 [B, R, E + 1], of
    the time to the first token; used: float64 [B, R], KV use.
    """

    scenario: CompiledScenario
    counts: list[NDArray[np.float32]] = field(default_factory=list)  # each [B, R, E + 1]
    used: list[Floats] = field(default_factory=list)  # each [B, R]
    last_ms: Floats = field(default_factory=lambda: np.zeros(0))  # [B, R]
    batch: int = 0
    replicas: int = REPLICAS

    @property
    def policy_id(self) -> str:
        """Name of a policy that moves nothing."""
        return "watch"

    @property
    def capacity_move(self) -> NDArray[np.bool_]:
        """Bool [B]: never."""
        return np.zeros(self.batch, dtype=np.bool_)

    def begin(self, batch: int) -> RoutingPlan:
        """Every slice at home."""
        self.batch = batch
        return self._plan()

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """Record new scrapes; nothing moves."""
        scraped = telemetry.scraped_at_ms[:, : self.replicas]
        before = self.last_ms if self.last_ms.size else np.full(scraped.shape, np.nan)
        fresh = np.isfinite(scraped) & ~(scraped <= before)
        self.last_ms = scraped
        if telemetry.now_ms[0] < WARM_S * MS_PER_S:
            return self._plan()
        self.note(telemetry, fresh)
        return self._plan()

    def note(self, telemetry: FleetTelemetry, fresh: NDArray[np.bool_]) -> None:
        """Record one tick; ``fresh`` bool [B, R]: replicas with a new scrape."""
        counts = telemetry.latency_le[:, : self.replicas, TTFT].astype(np.float32)
        counts[~fresh] = np.nan
        self.counts.append(counts)
        self.used.append(np.where(fresh, telemetry.kv_used_ratio[:, : self.replicas], np.nan))

    def _plan(self) -> RoutingPlan:
        kernels, slices, replicas = self.scenario.layout.shape
        table = np.zeros((self.batch, slices, kernels + 1))
        table[:, :, 0] = 1.0
        return RoutingPlan(
            table=table,
            in_rotation=np.ones((self.batch, replicas), dtype=np.bool_),
            version=np.zeros(self.batch, dtype=np.int64),
        )


def dependence() -> list[Dependence]:
    """Both kinds of stream; empty if the profiles are not shipped."""
    if shipped("bf16") is None or shipped("w8a8") is None:
        return []
    watcher = ScrapeWatcher(queues()[0])
    run_episodes(watcher.scenario, watcher, range(SEED, SEED + 2 * FLEETS), batch=2 * FLEETS)
    named = (("TTFT over an edge, share per scrape", _shares(watcher)), ("KV use per scrape", _used(watcher)))
    return [_measured(name, series) for name, series in named]


def queues(
    *, mixed: bool = False, replicas: int = REPLICAS, rate_rps: float = RATE_RPS
) -> tuple[CompiledScenario, str]:
    """The fleet whose queues are recorded, and the hash of its document; ``mixed``: slices and sessions."""
    text = SCENARIO.format(
        replicas=replicas,
        horizon_s=HORIZON_S,
        rate_rps=rate_rps,
        slice_mix=MIX if mixed else ALONE,
        session_share=0.3 if mixed else 0.0,
        gateway=STICKY if mixed else "{}",
    )
    file = str(LIBRARY_FOLDER / "suites" / "queues.yaml")
    document = load_text(text, file)
    assert isinstance(document, Scenario)
    return compile_scenario(document, file), document_sha256(document)


def _shares(watcher: ScrapeWatcher) -> list[Floats]:
    """One series per fleet and replica: share of the scrape's requests over the edge nearest to 10 %."""
    counts: NDArray[Any] = np.stack(watcher.counts, axis=2)  # [B, R, T, E + 1]
    total = np.nansum(counts, axis=(0, 1, 2))
    over = 1.0 - total / total[-1]
    edge = int(np.argmin(np.abs(np.log(np.maximum(over[:-1], 1e-12) / 0.1))))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 1.0 - counts[..., edge] / counts[..., -1]
    return list(_series(share))


def _used(watcher: ScrapeWatcher) -> list[Floats]:
    return list(_series(np.stack(watcher.used, axis=2)))


def _series(values: Floats) -> Iterator[Floats]:
    """Measured observations of [B, R, T], fleet by fleet and replica by replica."""
    for fleet in values:
        for replica in fleet:
            yield replica[np.isfinite(replica)]


def _measured(name: str, series: list[Floats]) -> Dependence:
    """Calibrate on the first half of the fleets, count alarms on the second."""
    half = len(series) // 2
    learned, fresh = np.concatenate(series[:half]), series[half:]
    detector = Betting(null_mean=float(learned.mean()))
    plain = calibrated_threshold(detector, Empirical(values=learned), ARL0, seed=SEED, runs=3000)
    blocked = block_threshold(detector, learned, ARL0, length=BLOCK, seed=SEED, runs=3000)
    fleets = [fresh[first : first + REPLICAS] for first in range(0, len(fresh), REPLICAS)]
    levels = (plain.threshold, blocked.threshold)
    runs = np.stack([alarms_of(detector, np.array([level]), fleets)[0] for level in levels])
    (plain_arl, block_arl), (low, high) = run_length(runs).tolist(), (float(x[1]) for x in fleet_limits(runs))
    return Dependence(
        stream=name,
        correlation=float(np.mean([np.corrcoef(one[:-1], one[1:])[0, 1] for one in fresh])),
        independent_arl=plain_arl,
        block_arl=block_arl,
        block_low=low,
        block_high=high,
    )


def alarms_of(detector: Betting, levels: Floats, fleets: list[list[Floats]]) -> NDArray[np.int64]:
    """Alarms at each of ``levels`` [L], ascending, and observations watched for them: int64 [L, fleets, 2].

    After an alarm a series is ignored for ``BLOCK`` scrapes and begins anew. Levels above the first one
    without an alarm are not tried: the counts of that one are repeated.
    """
    series = [one for fleet in fleets for one in fleet]
    owner = np.repeat(np.arange(len(fleets)), [len(fleet) for fleet in fleets])
    ends = np.cumsum([one.size for one in series])
    ratio = np.concatenate(series) / detector.null_mean
    bets, weights = np.array(detector.bets), np.array(detector.weights)
    found = np.zeros((levels.size, len(fleets), 2), dtype=np.int64)
    tested = log_threshold(levels)
    for place in range(levels.size):
        _count_alarms(found[place], ratio, ends, owner, bets, weights, tested[place : place + 1])
        if not found[place, :, 0].any():
            found[place:] = found[place]
            break
    return found


@compiled
def _count_alarms(found, ratio, ends, owner, bets, weights, threshold):
    """Count into ``found`` [fleets, 2] the alarms of ``streams.passes.bet`` on series that begin anew."""
    begin = 0
    for one in range(ends.size):
        memory, rest = np.zeros(bets.size), 0
        for n in range(begin, ends[one]):
            if rest > 0:
                rest -= 1
                continue
            found[owner[one], 1] += 1
            total = 0.0
            for g in range(bets.size):
                memory[g] = (memory[g] + 1.0) * (1.0 + bets[g] * (ratio[n] - 1.0))
                total += weights[g] * memory[g]
            if reaches(total, threshold[0]):
                found[owner[one], 0] += 1
                memory[:] = 0.0
                rest = BLOCK
        begin = ends[one]


def run_length(runs: NDArray[np.int64]) -> Floats:
    """Observations per alarm [...] of (alarms, observations) int64 [..., fleets, 2]; all if no alarm."""
    sums = runs.sum(axis=-2)
    return np.asarray(sums[..., 1] / np.maximum(sums[..., 0], 1))


def fleet_limits(runs: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """95 % limits [...] of the ``run_length`` of ``runs`` int64 [..., fleets, 2], resampling fleets."""
    fleets = runs.shape[-2]
    picked = stream(SEED, "telemetry_limits").integers(fleets, size=(_RESAMPLES, fleets))
    times = np.bincount((picked + fleets * np.arange(_RESAMPLES)[:, None]).ravel(), minlength=picked.size)
    sums = np.tensordot(times.reshape(picked.shape).astype(np.float64), runs, axes=(1, runs.ndim - 2))
    arls = sums[..., 1] / np.maximum(sums[..., 0], 1.0)
    low, high = np.quantile(arls, [0.025, 0.975], axis=0)
    return low, high
