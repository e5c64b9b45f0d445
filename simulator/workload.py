"""The workload as a stream of ``Arrivals``: one seed, one named random stream per kind of number.

Numbers are drawn in blocks of a fixed size, so the stream is the same whoever asks for it in whatever
pieces; adding or removing a kind of number (a fault's, a session's) moves none of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.arrivals import GapProcess, LengthLaw, RateProfile, TraceProcess, constant_rate
from contracts.azure_trace import Trace
from contracts.streams import stream
from simulator.engine_dtypes import ARRIVAL, UNIT
from simulator.engine_records import Arrivals

BLOCK = 4096
#: Shares that sum to 1 within this are whole.
_SHARE_SLACK = 1e-5
_NO_SESSIONS = np.empty((0, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """What arrives at one fleet.

    profile: rate over time (constant, diurnal, with surges multiplied in). gap_cv: coefficient of
        variation of the gaps, 1 is Poisson. trace: if given, its rows set the gaps (time scaled to the
        profile) and the token counts; it is repeated when it ends.
    slice_share: float64 [S], sums to 1. prompt_tokens, output_tokens: one law for all slices or one each.
    prompt_ids: int64, indices of traffic prompts (last axis of ``EngineSpec.quality``) grouped by slice;
        prompt_offsets: int64 [S + 1], where each slice's group begins and ends.
    session_ratio: share of requests that belong to a session; sessions: alive at once per fleet;
        session_life_s: after it a session is replaced by a new one.
    """

    profile: RateProfile
    slice_share: NDArray[np.float64]
    prompt_tokens: tuple[LengthLaw, ...]
    output_tokens: tuple[LengthLaw, ...]
    prompt_ids: NDArray[np.int64]
    prompt_offsets: NDArray[np.int64]
    gap_cv: float = 1.0
    trace: Trace | None = None
    session_ratio: float = 0.0
    sessions: int = 256
    session_life_s: float = 120.0

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


class WorkloadStream:
    """The arrivals of one fleet, in order, as far as somebody asks."""

    def __init__(self, spec: WorkloadSpec, seed: int) -> None:
        self._spec = spec
        self._rng = {
            name: stream(seed, name)
            for name in ("arrivals", "slices", "lengths", "sessions", "prompts", "routing")
        }
        self._gaps = GapProcess(self._rng["arrivals"], gap_cv=spec.gap_cv)
        self._replay = TraceProcess(spec.trace) if spec.trace is not None else None
        self._share_edges = np.cumsum(spec.slice_share)[:-1]
        self._rest = np.empty(0, ARRIVAL)

    def until(self, end_s: float) -> Arrivals:
        """The arrivals up to and with ``end_s`` that no earlier call has returned."""
        pieces = [self._rest]
        while not pieces[-1].size or pieces[-1]["arrived"][-1] <= end_s:
            pieces.append(np.empty(BLOCK, ARRIVAL))
            self.draw(pieces[-1])
        records = np.concatenate(pieces)
        count = int(np.searchsorted(records["arrived"], end_s, side="right"))
        self._rest = records[count:]
        return _unpacked(records[:count])

    def draw(self, block: NDArray[np.void], enough_s: float = np.inf) -> NDArray[np.void]:
        """The next ``BLOCK`` requests, with all their random numbers, as records ``ARRIVAL`` [BLOCK].

        Written over ``block``; returned is its part up to the first request after ``enough_s``, behind which
        none may be asked for. Not to be mixed with ``until``.
        """
        spec, rng = self._spec, self._rng
        counts, row = (self._gaps.take(BLOCK), None) if self._replay is None else self._replay.take(BLOCK)
        arrived_s = spec.profile.clock_s(counts)
        size = min(int(np.searchsorted(arrived_s, enough_s, side="right")) + 1, BLOCK)
        of_slice = rng["slices"].random(size)
        prompt_tokens = self._lengths(spec.prompt_tokens, of_slice, BLOCK)
        output_tokens = self._lengths(spec.output_tokens, of_slice, size)
        if row is not None:
            prompt_tokens, output_tokens = self._recorded(row)
        session = rng["sessions"].random((size, 2)) if spec.session_ratio > 0.0 else _NO_SESSIONS
        _pack(
            block[:size], arrived_s, of_slice, prompt_tokens, output_tokens, session,
            rng["prompts"].random(size), rng["routing"].random((size, 4)), self._share_edges,
            spec.session_ratio, max(spec.sessions // spec.slice_share.shape[0], 1), spec.session_life_s,
            spec.prompt_ids, spec.prompt_offsets,
        )  # fmt: skip
        return block[:size]

    def _lengths(
        self, laws: tuple[LengthLaw, ...], of_slice: NDArray[np.float64], drawn: int
    ) -> NDArray[np.int64]:
        """Token counts of the first ``len(of_slice)`` of so many ``drawn`` requests."""
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
        """Token counts of the trace, clipped as the first laws say, so that every request fits."""
        trace, spec = self._spec.trace, self._spec
        assert trace is not None
        prompt, output = spec.prompt_tokens[0], spec.output_tokens[0]
        return (
            np.clip(trace.prompt_tokens[row], prompt.low, prompt.high),
            np.clip(trace.output_tokens[row], output.low, output.high),
        )


@njit(cache=True)
def _pack(  # type: ignore[no-untyped-def]  # pragma: no cover
    block, arrived_s, of_slice, prompt_tokens, output_tokens, of_session, of_prompt, routing, share_edges,
    session_ratio, places, life_s, prompt_ids, prompt_offsets,
):  # fmt: skip
    """Uniforms to what they choose.

    A session stays within its slice and is replaced with age; each place changes hands at its own phase, so
    that sessions do not all end at once. -1 is none.
    """
    slices = share_edges.shape[0] + 1
    for j in range(block.shape[0]):
        x = block[j]
        s = 0
        for edge in share_edges:
            s += edge <= of_slice[j]
        x.slice = s
        x.arrived = arrived_s[j]
        x.prompt_tokens = prompt_tokens[j]
        x.output_tokens = output_tokens[j]
        x.session = -1
        if session_ratio > 0.0 and of_session[j, 0] < session_ratio:
            place = int(of_session[j, 1] * places) * slices + s
            generation = int(arrived_s[j] / life_s + place * 0.6180339887498949)
            x.session = place + places * slices * generation
        first = prompt_offsets[s]
        x.prompt = prompt_ids[first + int(of_prompt[j] * (prompt_offsets[s + 1] - first))]
        x.u_kernel = int(routing[j, 0] * UNIT)
        x.u_first = int(routing[j, 1] * UNIT)
        x.u_second = int(routing[j, 2] * UNIT)
        x.u_error = int(routing[j, 3] * UNIT)


def _unpacked(records: NDArray[np.void]) -> Arrivals:
    names = ("u_kernel", "u_first", "u_second", "u_error")
    return Arrivals(
        arrived_s=records["arrived"].copy(),
        slice=records["slice"].astype(np.int64),
        prompt_tokens=records["prompt_tokens"].astype(np.int64),
        output_tokens=records["output_tokens"].astype(np.int64),
        session=records["session"].astype(np.int64),
        prompt=records["prompt"].astype(np.int64),
        uniforms=np.stack([records[name] / UNIT for name in names], axis=1),
    )


def warm() -> None:
    """Compile what this module compiles, so that no job pays for it after a fork."""
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
