"""The workload as a stream of ``RequestArrivals``: one seed, one named random stream per kind of number.

Numbers are drawn in blocks of a fixed size, so the stream does not depend on how it is read. Adding or
removing a kind of number (a fault's, a session's) changes none of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from contracts.rng import stream
from contracts.workload.arrivals import GapProcess, LengthLaw, RateProfile, TraceProcess, constant_rate
from contracts.workload.azure_trace import Trace
from simulator.engine.layout import ARRIVAL, UNIFORM_UNIT
from simulator.engine.requests import RequestArrivals
from simulator.engine.spec import EngineSpec
from simulator.engine.validate import require, require_index, require_tokens

BLOCK = 4096
#: Tolerance within which shares must sum to 1.
_SHARE_SLACK = 1e-5
_NO_SESSIONS = np.empty((0, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDrift:
    """Token counts that change linearly over the first ``over_s`` and then stay constant."""

    prompt_factor: float
    """Factor on the drawn token counts from ``over_s`` on."""
    output_factor: float
    over_s: float

    def of(
        self, tokens: NDArray[np.int64], at_s: NDArray[np.float64], law: LengthLaw, factor: float
    ) -> NDArray[np.int64]:
        """``tokens`` [>= n] of requests that arrive at ``at_s`` [>= n], clipped by ``law``; int64 [n]."""
        n = min(tokens.size, at_s.size)
        multiple = 1.0 + (factor - 1.0) * np.minimum(at_s[:n] / self.over_s, 1.0)
        return np.clip((tokens[:n] * multiple).astype(np.int64), law.low, law.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """The arrivals of one fleet. S slices."""

    profile: RateProfile
    """Rate over time: constant, diurnal, with surges multiplied in."""
    slice_share: NDArray[np.float64]
    """[S], sums to 1."""
    prompt_tokens: tuple[LengthLaw, ...]
    """One distribution for all slices, or one each."""
    output_tokens: tuple[LengthLaw, ...]
    """Likewise."""
    prompt_ids: NDArray[np.int64]
    """[n], indices of traffic prompts on the last axis of ``EngineSpec.quality``, grouped by slice."""
    prompt_offsets: NDArray[np.int64]
    """[S + 1], where each slice's group begins and ends."""
    gap_cv: float = 1.0
    """Coefficient of variation of the gaps; 1 is Poisson."""
    trace: Trace | None = None
    """Its rows set the gaps (time scaled to the profile) and the token counts; repeated when it ends."""
    session_ratio: float = 0.0
    """Share of requests that belong to a session."""
    sessions: int = 256
    """Alive at once per fleet."""
    session_life_s: float = 120.0
    """Then a session is replaced by a new one."""
    drift: LengthDrift | None = None
    """Of the token counts, clipped by the first distributions; None: no drift."""

    def __post_init__(self) -> None:
        slices = self.slice_share.shape[0]
        if abs(float(self.slice_share.sum()) - 1.0) > _SHARE_SLACK or (self.slice_share < 0.0).any():
            raise ValueError(f"slice_share: expected shares that sum to 1, got {self.slice_share.tolist()}")
        if self.prompt_offsets.shape != (slices + 1,) or (np.diff(self.prompt_offsets) < 1).any():
            raise ValueError(f"prompt_offsets: expected at least one prompt for each of {slices} slices")
        for name in ("prompt_tokens", "output_tokens"):
            if len(getattr(self, name)) not in {1, slices}:
                raise ValueError(f"{name}: expected one law, or one per slice ({slices})")
        if not 0.0 <= self.session_ratio <= 1.0:
            raise ValueError(f"session_ratio: expected a ratio in 0..1, got {self.session_ratio}")


def check_workload(engine: EngineSpec, workload: WorkloadSpec) -> None:
    """Raise ``ValueError`` for a workload that can draw a request that the engine cannot serve."""
    slices = workload.slice_share.shape[0]
    require(slices == engine.slices, "slice_share", f"{engine.slices} slices", slices)
    require_index(workload.prompt_ids, engine.quality.shape[2], "prompt_ids")
    longest_prompt = max(law.high for law in workload.prompt_tokens)
    require_tokens(engine, longest_prompt + max(law.high for law in workload.output_tokens))


class _Draws(NamedTuple):
    """The random numbers of at least n requests."""

    arrived_at_s: NDArray[np.float64]  # [>= n], not decreasing
    of_slice: NDArray[np.float64]  # [n] in [0, 1)
    prompt_tokens: NDArray[np.int64]  # [>= n]
    output_tokens: NDArray[np.int64]  # [n]
    of_session: NDArray[np.float64]  # [n, 2] in [0, 1): whether in a session, and in which; or empty
    of_prompt: NDArray[np.float64]  # [n] in [0, 1)
    routing: NDArray[np.float64]  # [n, 4] in [0, 1)


class _Choices(NamedTuple):
    """The sets from which the random numbers choose. S slices."""

    share_edges: NDArray[np.float64]  # [S - 1], cumulative shares
    prompt_ids: NDArray[np.int64]  # [n], as in ``WorkloadSpec``
    prompt_offsets: NDArray[np.int64]  # [S + 1]
    session_ratio: float
    session_places: int  # concurrent sessions of a slice
    session_life_s: float


class WorkloadStream:
    """The arrivals of one fleet, in order, drawn on demand."""

    def __init__(self, spec: WorkloadSpec, seed: int) -> None:
        self._spec = spec
        self._rng = {
            name: stream(seed, name)
            for name in ("arrivals", "slices", "lengths", "sessions", "prompts", "routing")
        }
        self._gaps = GapProcess(self._rng["arrivals"], gap_cv=spec.gap_cv)
        self._replay = TraceProcess(spec.trace) if spec.trace is not None else None
        self._share_edges = np.cumsum(spec.slice_share)[:-1]
        self._choices = _Choices(
            share_edges=self._share_edges,
            prompt_ids=spec.prompt_ids,
            prompt_offsets=spec.prompt_offsets,
            session_ratio=spec.session_ratio,
            session_places=max(spec.sessions // spec.slice_share.shape[0], 1),
            session_life_s=spec.session_life_s,
        )
        self._rest = np.empty(0, ARRIVAL)

    def until(self, end_at_s: float) -> RequestArrivals:
        """The arrivals up to and including ``end_at_s`` that no earlier call has returned."""
        pieces = [self._rest]
        while not pieces[-1].size or pieces[-1]["arrived_at_s"][-1] <= end_at_s:
            pieces.append(np.empty(BLOCK, ARRIVAL))
            self.draw(pieces[-1])
        records = np.concatenate(pieces)
        count = int(np.searchsorted(records["arrived_at_s"], end_at_s, side="right"))
        self._rest = records[count:]
        return _unpacked(records[:count])

    def draw(self, block: NDArray[np.void], enough_s: float = np.inf) -> NDArray[np.void]:
        """The next ``BLOCK`` requests, with all their random numbers, as records ``ARRIVAL`` [BLOCK].

        They are written to ``block``; the part up to the first request after ``enough_s`` is returned, and no
        later requests may be drawn after that. Not to be mixed with ``until``.
        """
        spec, rng = self._spec, self._rng
        counts, row = (self._gaps.take(BLOCK), None) if self._replay is None else self._replay.take(BLOCK)
        arrived_at_s = spec.profile.clock_s(counts)
        size = min(int(np.searchsorted(arrived_at_s, enough_s, side="right")) + 1, BLOCK)
        of_slice = rng["slices"].random(size)
        prompt_tokens = self._lengths(spec.prompt_tokens, of_slice, BLOCK)
        output_tokens = self._lengths(spec.output_tokens, of_slice, size)
        if row is not None:
            prompt_tokens, output_tokens = self._recorded(row)
        drift = spec.drift
        if drift is not None:
            prompt_tokens = drift.of(prompt_tokens, arrived_at_s, spec.prompt_tokens[0], drift.prompt_factor)
            output_tokens = drift.of(output_tokens, arrived_at_s, spec.output_tokens[0], drift.output_factor)
        session = rng["sessions"].random((size, 2)) if spec.session_ratio > 0.0 else _NO_SESSIONS
        draws = _Draws(
            arrived_at_s=arrived_at_s,
            of_slice=of_slice,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            of_session=session,
            of_prompt=rng["prompts"].random(size),
            routing=rng["routing"].random((size, 4)),
        )
        _pack(block[:size], draws, self._choices)
        return block[:size]

    def _lengths(
        self, laws: tuple[LengthLaw, ...], of_slice: NDArray[np.float64], drawn: int
    ) -> NDArray[np.int64]:
        """Token counts of the first ``len(of_slice)`` of ``drawn`` requests."""
        normal = self._rng["lengths"].standard_normal(drawn)[: len(of_slice)]
        if len(laws) == 1:
            return laws[0].from_normal(normal)
        slices = np.searchsorted(self._share_edges, of_slice, side="right")
        tokens = np.empty(len(of_slice), np.int64)
        for s, law in enumerate(laws):
            chosen = slices == s
            tokens[chosen] = law.from_normal(normal[chosen])
        return tokens

    def _recorded(self, row: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Token counts of the trace, clipped by the first distributions, so that every request fits."""
        trace, spec = self._spec.trace, self._spec
        assert trace is not None
        prompt, output = spec.prompt_tokens[0], spec.output_tokens[0]
        return (
            np.clip(trace.prompt_tokens[row], prompt.low, prompt.high),
            np.clip(trace.output_tokens[row], output.low, output.high),
        )


@compiled
def _pack(block, draws, choices):
    """Turn uniforms into what they choose.

    A session stays within its slice and is replaced after its life; each place has its own phase, so that
    sessions do not all end at once. -1 is no session.
    """
    for j in range(block.shape[0]):
        request = block[j]
        part = 0
        for edge in choices.share_edges:
            part += edge <= draws.of_slice[j]
        request.slice = part
        request.arrived_at_s = draws.arrived_at_s[j]
        request.prompt_tokens = draws.prompt_tokens[j]
        request.output_tokens = draws.output_tokens[j]
        request.session = -1
        if choices.session_ratio > 0.0 and draws.of_session[j, 0] < choices.session_ratio:
            request.session = _session(draws.of_session[j, 1], part, draws.arrived_at_s[j], choices)
        first, stop = choices.prompt_offsets[part], choices.prompt_offsets[part + 1]
        request.prompt = choices.prompt_ids[first + int(draws.of_prompt[j] * (stop - first))]
        request.u_kernel = int(draws.routing[j, 0] * UNIFORM_UNIT)
        request.u_first = int(draws.routing[j, 1] * UNIFORM_UNIT)
        request.u_second = int(draws.routing[j, 2] * UNIFORM_UNIT)
        request.u_error = int(draws.routing[j, 3] * UNIFORM_UNIT)


@compiled
def _session(u, part, at_s, choices):
    """The session that ``u`` chooses among those of slice ``part`` that exist at ``at_s``."""
    slices = choices.share_edges.shape[0] + 1
    place = int(u * choices.session_places) * slices + part
    generation = int(at_s / choices.session_life_s + place * 0.6180339887498949)
    return place + choices.session_places * slices * generation


def _unpacked(records: NDArray[np.void]) -> RequestArrivals:
    names = ("u_kernel", "u_first", "u_second", "u_error")
    return RequestArrivals(
        arrived_at_s=records["arrived_at_s"].copy(),
        slice=records["slice"].astype(np.int64),
        prompt_tokens=records["prompt_tokens"].astype(np.int64),
        output_tokens=records["output_tokens"].astype(np.int64),
        session=records["session"].astype(np.int64),
        prompt=records["prompt"].astype(np.int64),
        uniforms=np.stack([records[name] / UNIFORM_UNIT for name in names], axis=1),
    )


def warm() -> None:
    """Compile this module's functions before work is forked."""
    law = (LengthLaw(mean=1.0),)
    spec = WorkloadSpec(
        profile=constant_rate(1.0),
        slice_share=np.ones(1),
        prompt_tokens=law,
        output_tokens=law,
        prompt_ids=np.zeros(1, np.int64),
        prompt_offsets=np.arange(2),
    )
    WorkloadStream(spec, 0).until(0.0)
