"""Random scenarios for training: workload, pool size, faults, doses, shapes and telemetry, by named streams.

An episode depends only on (seed, fleet, episode). Measurements are not altered: a numeric fault is a
condition of the kernel's profile, and only free doses are drawn from a range. A *family* describes an
episode's faults without numbers (kind, kernel, condition, shape and target of each fault). A hash of its name
decides whether the family is held out, so a policy is never trained on any episode of a held-out family,
whatever the seed. Families of reserved conditions are held out as well, because the held-out suite consists
of them. (A ramp up to a dose passes the smaller measured doses of its kind on the way, reserved or not.)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.documents.scenario import Change, ScheduledFault
from contracts.documents.workload import DiurnalArrivals, GammaArrivals, TokenLengths, Workload
from contracts.rng import stream
from faults.schedule import expand
from simulator.env.base import Base
from simulator.env.random_faults import Rng, between, draw_faults, log_between
from simulator.env.space import EpisodeSpace, Split, is_held_out
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.disturbances import compile_changes, compile_faults, compile_surges
from simulator.world.engine_setup import kv_tokens
from simulator.world.traffic import compile_workload

#: Attempts to draw an episode of the wanted split.
_MOST_DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEpisode:
    """One drawn episode."""

    scenario: CompiledScenario
    family: tuple[str, ...] = field(default=())
    """Names of its faults without numbers, sorted; empty for an episode without faults."""
    held_out: bool = False


def draw_episode(
    base: Base, space: EpisodeSpace, seed: int, fleet: int, episode: int, split: Split = "all"
) -> DrawnEpisode:
    """The episode number ``episode`` of ``fleet``; equal arguments give equal episodes.

    Raises ValueError if no family of the wanted split can be drawn.
    """
    for attempt in range(_MOST_DRAWS):
        rng = stream(seed, "randomise-faults", fleet, episode, attempt)
        faults, family = draw_faults(base, space, rng)
        held_out = any(is_held_out(name, space.held_out_ratio, space.reserved) for name in family)
        if split == "all" or held_out == (split == "held_out"):
            scenario = _compiled(base, space, faults, seed, fleet, episode)
            return DrawnEpisode(scenario=scenario, family=family, held_out=held_out)
    raise ValueError(f"split: expected one that some family belongs to, got {split!r} with {space}")


def _compiled(
    base: Base, space: EpisodeSpace, faults: tuple[ScheduledFault, ...], seed: int, fleet: int, episode: int
) -> CompiledScenario:
    work_rng, pool_rng, seen_rng, change_rng, token_rng = (
        stream(seed, f"randomise-{name}", fleet, episode)
        for name in ("workload", "pool", "telemetry", "changes", "tokens")
    )
    work = base.spec.workload.model_copy(update=_workload(base, space, work_rng))
    spec = base.spec.model_copy(
        update={
            "faults": faults,
            "changes": _changes(base, space, change_rng),
            "workload": _with_tokens(work, space, token_rng),
        }
    )
    seen = base.spec.telemetry.model_copy(
        update={
            "scrape_interval_s": between(seen_rng, space.scrape_interval_s),
            "scrape_loss_ratio": between(seen_rng, space.scrape_loss_ratio),
        }
    )
    whole = base.compiled
    plans = compile_faults(spec, whole.layout, base.pool, whole.tables, base.file)
    surges = compile_surges(spec)
    return replace(
        whole,
        workload=compile_workload(
            spec, whole.layout, whole.prompts, surges, kv_tokens(whole.engine), base.file
        ),
        telemetry=seen,
        absent=_absent(whole, space, pool_rng),
        plans=plans,
        fault_changes=expand(plans, spec.horizon_s),
        changes=compile_changes(spec, whole.layout, base.pool, base.file),
        surges=surges,
    )


# ---------------------------------------------------------------- workload, pool, changes


def _workload(base: Base, space: EpisodeSpace, rng: Rng) -> dict[str, Any]:
    """Rate, arrival process, slice mix and sessions; the controller is told none of them."""
    work = base.spec.workload
    shares = rng.dirichlet([20.0 * entry.share + 1e-3 for entry in work.slice_mix])
    mix = tuple(
        entry.model_copy(update={"share": float(share)})
        for entry, share in zip(work.slice_mix, shares, strict=True)
    )
    drawn: dict[str, Any] = {
        "rate_rps": work.rate_rps * between(rng, space.rate_ratio),
        "slice_mix": mix,
        "session_share": float(rng.random()) * 0.6,
    }
    if work.trace_uri is not None:
        return drawn
    kind = ("poisson", "gamma", "diurnal")[int(rng.integers(3))]
    gap_cv, wave, phase = 1.0 + rng.random(), 0.3 * rng.random(), rng.random()
    period_s = base.spec.horizon_s
    return drawn | {
        "arrivals": kind,
        "gamma": GammaArrivals(gap_cv=gap_cv),
        "diurnal": DiurnalArrivals(amplitude_ratio=wave, period_s=period_s, phase_s=phase * period_s),
        "surge": None,
    }


def _with_tokens(work: Workload, space: EpisodeSpace, rng: Rng) -> Workload:
    """``work`` with other prompt and answer lengths than declared; with longer answers the rate is lower."""
    prompts, answers = (log_between(rng, bounds) for bounds in (space.prompt_factor, space.answer_factor))
    if work.trace_uri is not None:
        return work
    longer = {
        "prompt_tokens": _times(work.prompt_tokens, prompts),
        "output_tokens": _times(work.output_tokens, answers),
        "rate_rps": work.rate_rps / answers,
    }
    return work.model_copy(update=longer)


def _times(lengths: TokenLengths, factor: float) -> TokenLengths:
    return lengths.model_copy(update={"mean": lengths.mean * factor})


def _absent(whole: CompiledScenario, space: EpisodeSpace, rng: Rng) -> NDArray[np.bool_]:
    """Bool [R]: replicas that this fleet lacks; the first of every kernel stays."""
    owner = whole.layout.replica_kernel
    first = np.concatenate([[True], owner[1:] != owner[:-1]])
    return np.asarray(whole.absent | ((rng.random(owner.size) < space.away_share) & ~first))


def _changes(base: Base, space: EpisodeSpace, rng: Rng) -> tuple[Change, ...]:
    horizon_s, happens = base.spec.horizon_s, rng.random() < space.change_share
    at_s, place = float(rng.random()) * 0.6 * horizon_s, int(rng.integers(len(base.pool.kernels)))
    which, size = int(rng.integers(4)), float(rng.random())
    kernel = base.pool.kernels[place].entry.name
    changes = (
        Change(kind="rolling_restart", at_s=at_s, kernel=kernel, cold_start_s=5.0 + 20.0 * size),
        Change(kind="cache_flush", at_s=at_s, kernel=kernel),
        Change(kind="surge", at_s=at_s, duration_s=30.0 + 60.0 * size, factor=1.2 + 0.6 * size),
        Change(kind="lost_scrapes", at_s=at_s, kernel=kernel, duration_s=20.0 + 60.0 * size, ratio=1.0),
    )
    return (changes[which],) if happens else ()
