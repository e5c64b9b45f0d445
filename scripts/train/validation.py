"""Quality of a policy on drawn episodes, in E5's own measures: for tuning and choosing, never as a result.

``measured_rows`` runs a configuration with its own detector and levers, as E5 does, on episodes of the
training split. ``RewardRecipe.objective`` combines it into one number, the same for tuned baselines and
learned policies:

    objective = 1 - mean reward + violating * v + false_switch * f            (lower is better)

reward: the environment's per tick (``contracts.scoring.reward``); v: mean over slices and ticks of the
weight on kernels whose true state breaks the contract there (share of their replicas in rotation); f: false
switches, rows and quarantines as E5 counts them, per slice and tick. So a false switch costs as much as
``false_switch / violating`` seconds of a slice on a violating kernel.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.loading.shipped import E5_BASE
from contracts.loading.uris import resolve_uri
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import breaking, breaking_ratio, measure_incident, onset_row
from contracts.scoring.measures import failed_ratio
from contracts.scoring.quality import loss_per_slice, slice_quality
from contracts.scoring.reward import capacity_of, goodput_of, quality_of, reward_of
from contracts.scoring.switch_law import half_l1
from contracts.scoring.switches import measure_switches
from contracts.units import SECONDS_PER_MONTH
from policies.train.recipe import RewardRecipe
from scripts.e5.configurations import INFORMED, Configuration, parse_configuration
from simulator.drive import ControllerDriver
from simulator.env.base import Base, load_base
from simulator.env.core import fleet_seed
from simulator.env.randomise import DrawnEpisode, draw_episode
from simulator.env.space import EpisodeSpace, Split
from simulator.fleet import FleetSimulation
from simulator.truth.scenario import incident_of

Floats = NDArray[np.float64]

_HOURS_PER_MONTH = SECONDS_PER_MONTH / 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSet:
    """The episodes: ``fleets`` of each of ``rounds`` draws; the base scenarios take turns, draw by draw.

    seed: of the draws; episode number e of fleet f is the environment's of that seed, fleet and number.
    """

    scenarios: tuple[str | Path, ...] = (E5_BASE,)
    seed: int = 0
    fleets: int = 32
    rounds: int = 1
    horizon_s: float = 600.0
    split: Split = "train"
    space: EpisodeSpace = field(default_factory=EpisodeSpace)

    @property
    def env_steps(self) -> int:
        """Control ticks of all episodes together, at one tick per second."""
        return self.fleets * self.rounds * round(self.horizon_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One draw: the base and the episodes of its fleets."""

    base: Base
    episodes: tuple[DrawnEpisode, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationScore:
    """Means over episodes. reward: per tick; violating: see the module; quality_loss, failed: of E5, from the
    fault's onset; false_switches: per slice-month; mttr_s: restricted mean over incidents, to the horizon;
    recovered: share of incidents; moved: table weight moved per slice and hour.
    """

    reward: float
    violating: float
    false_switches: float
    quality_loss: float
    failed: float
    mttr_s: float
    recovered: float
    moved: float
    objective: float
    episodes: int

    def plain(self) -> dict[str, float]:
        """As numbers by name."""
        return asdict(self)


def draw(episodes: EpisodeSet) -> tuple[Drawn, ...]:
    """The episodes; equal arguments give equal ones."""
    bases = [load_base(_path(uri), episodes.horizon_s) for uri in episodes.scenarios]
    drawn = []
    for number in range(episodes.rounds):
        base = bases[number % len(bases)]
        mine = tuple(
            draw_episode(base, episodes.space, episodes.seed, fleet, number, episodes.split)
            for fleet in range(episodes.fleets)
        )
        seeds = tuple(fleet_seed(episodes.seed, fleet, number) for fleet in range(episodes.fleets))
        drawn.append(Drawn(base=base, episodes=mine, seeds=seeds))
    return tuple(drawn)


def measured_rows(configuration: Configuration | str, part: Drawn, weights: RewardRecipe) -> list[Row]:
    """The row of every episode of ``part`` under ``configuration``."""
    chosen = parse_configuration(configuration) if isinstance(configuration, str) else configuration
    work = part.base.compiled.capacity_rps.min() / part.base.compiled.capacity_rps
    return [_measured(record, work, weights) for record in records(chosen, part)]


def records(configuration: Configuration, drawn: Drawn) -> list[EpisodeRecord]:
    """One record per episode of ``drawn`` under ``configuration``."""
    if configuration.policy == INFORMED:
        # Notices belong to one episode, so each runs alone.
        return [
            _run(configuration, drawn.base, (episode,), (seed,))[0]
            for episode, seed in zip(drawn.episodes, drawn.seeds, strict=True)
        ]
    return _run(configuration, drawn.base, drawn.episodes, drawn.seeds)


def _run(
    configuration: Configuration, base: Base, episodes: tuple[DrawnEpisode, ...], seeds: tuple[int, ...]
) -> list[EpisodeRecord]:
    alone = episodes[0].scenario if configuration.policy == INFORMED else base.compiled
    driver = ControllerDriver(configuration.setup(alone), name=configuration.name)
    each = [episode.scenario for episode in episodes]
    found = FleetSimulation(base.compiled, driver, list(seeds), each=each).run()
    return [
        replace(record, incident=incident_of(scenario)) for record, scenario in zip(found, each, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One episode. mttr_s: nan without an incident; false: switches; slice_ticks: exposure."""

    reward: float
    violating: float
    false: int
    slice_ticks: int
    quality_loss: float
    failed: float
    mttr_s: float
    recovered: float
    moved: float
    slice_months: float


def _measured(record: EpisodeRecord, work: Floats, weights: RewardRecipe) -> Row:
    incident, switches = measure_incident(record), measure_switches(record)
    quality = slice_quality(record, onset_row(record) if record.incident is not None else 0)
    loss, offered = loss_per_slice(quality), quality.offered_tokens
    known = np.isfinite(loss) & (offered > 0)
    ticks, slices = record.table.shape[:2]
    return Row(
        reward=float(rewards(record, work, weights).mean()),
        violating=float(violating(record).mean()),
        false=switches.false_switches,
        slice_ticks=ticks * slices,
        quality_loss=float((loss[known] * offered[known]).sum() / max(offered[known].sum(), 1.0)),
        failed=failed_ratio(record),
        mttr_s=float("nan") if incident is None else incident.mttr_s,
        recovered=float("nan") if incident is None else float(incident.recovered),
        moved=switches.weight_moved,
        slice_months=switches.slice_months,
    )


def rewards(record: EpisodeRecord, work: Floats, weights: RewardRecipe) -> Floats:
    """The environment's reward of every tick, float64 [T]; work: [K], accelerator time of an answer."""
    answered = record.answered.sum(axis=1)
    ended = answered + record.failed.sum(axis=1) + record.shed.sum(axis=1)
    goodput = goodput_of(answered - record.slo_missed.sum(axis=1), ended)
    drift, tokens = record.excess_tv_tokens.sum(axis=1), record.answered_tokens.sum(axis=1)
    quality = quality_of(drift, tokens, weights.quality)
    used = (record.answered_by.sum(axis=2) * work[record.replica_kernel]).sum(axis=1)
    capacity = capacity_of(used, answered)
    moved = np.zeros(len(record.table))
    moved[1:] = half_l1(record.table[1:], record.table[:-1]).mean(axis=1)
    return np.asarray(reward_of(goodput, quality, moved, capacity, weights.move, weights.capacity))


def violating(record: EpisodeRecord) -> Floats:
    """Mean over slices of the weight on replicas that break the contract there, float64 [T]."""
    kernels = len(record.kernels)
    unhealthy = breaking_ratio(breaking(record), record.in_rotation, record.replica_kernel, kernels)
    share = np.zeros((len(record.table), len(record.slices)))
    for kernel in range(kernels):
        share += record.table[:, :, kernel] * unhealthy[:, kernel]
    return np.asarray(share.mean(axis=1))


def score_of(rows: list[Row], weights: RewardRecipe) -> ValidationScore:
    """ValidationScore of the episodes behind ``rows``, however they were divided."""

    def mean(name: str) -> float:
        values = np.array([getattr(row, name) for row in rows], dtype=np.float64)
        known = values[np.isfinite(values)]
        return float(known.mean()) if known.size else float("nan")

    false, months = sum(row.false for row in rows), sum(row.slice_months for row in rows)
    per_tick = false / sum(row.slice_ticks for row in rows)
    return ValidationScore(
        reward=mean("reward"),
        violating=mean("violating"),
        false_switches=false / months,
        quality_loss=mean("quality_loss"),
        failed=mean("failed"),
        mttr_s=mean("mttr_s"),
        recovered=mean("recovered"),
        moved=sum(row.moved for row in rows) / (months * _HOURS_PER_MONTH),
        objective=weights.objective(mean("reward"), mean("violating"), per_tick),
        episodes=len(rows),
    )


def _path(uri: str | Path) -> Path:
    return resolve_uri(str(uri), "selvage train")
