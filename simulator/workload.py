"""The workload as a stream of ``Arrivals``: one seed, one named random stream per kind of number.

Numbers are drawn in blocks of a fixed size, so the stream is the same whoever asks for it in whatever
pieces; adding or removing a kind of number (a fault's, a session's) moves none of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.arrivals import GapProcess, LengthLaw, RateProfile, TraceProcess
from contracts.azure_trace import Trace
from contracts.streams import stream
from simulator.engine_records import Arrivals

BLOCK = 4096


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
        if not np.isclose(self.slice_share.sum(), 1.0) or (self.slice_share < 0.0).any():
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
        self._block = self._draw()
        self._used = 0

    def until(self, end_s: float) -> Arrivals:
        """The arrivals up to and with ``end_s`` that no earlier call has returned."""
        pieces: list[Arrivals] = []
        while self._block.arrived_s[-1] <= end_s:
            pieces.append(_cut(self._block, self._used, len(self._block)))
            self._block, self._used = self._draw(), 0
        stop = max(int(np.searchsorted(self._block.arrived_s, end_s, side="right")), self._used)
        pieces.append(_cut(self._block, self._used, stop))
        self._used = stop
        return pieces[0] if len(pieces) == 1 else _joined(pieces)

    def _draw(self) -> Arrivals:
        """The next ``BLOCK`` requests with all their random numbers."""
        spec, rng = self._spec, self._rng
        slices = np.searchsorted(self._share_edges, rng["slices"].random(BLOCK), side="right")
        prompt_tokens = self._lengths(spec.prompt_tokens, slices)
        output_tokens = self._lengths(spec.output_tokens, slices)
        if self._replay is None:
            counts = self._gaps.take(BLOCK)
        else:
            counts, row = self._replay.take(BLOCK)
            prompt_tokens, output_tokens = self._recorded(row)
        arrived_s = spec.profile.clock_s(counts)
        return Arrivals(
            arrived_s=arrived_s,
            slice=slices,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            session=self._sessions(slices, arrived_s),
            prompt=self._prompts(slices),
            uniforms=rng["routing"].random((BLOCK, 4)),
        )

    def _lengths(self, laws: tuple[LengthLaw, ...], slices: NDArray[np.int64]) -> NDArray[np.int64]:
        normal = self._rng["lengths"].standard_normal(BLOCK)
        if len(laws) == 1:
            return laws[0].from_normal(normal)
        tokens = np.empty(BLOCK, np.int64)
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

    def _sessions(self, slices: NDArray[np.int64], arrived_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """Session of each request, -1 for none; a session stays within its slice and is replaced with age."""
        spec = self._spec
        if spec.session_ratio == 0.0:
            return np.full(BLOCK, -1, np.int64)
        u = self._rng["sessions"].random((BLOCK, 2))
        many = spec.slice_share.shape[0]
        place = (u[:, 1] * max(spec.sessions // many, 1)).astype(np.int64) * many + slices
        # Each place changes hands at its own phase, so that sessions do not all end at once.
        generation = (arrived_s / spec.session_life_s + place * 0.6180339887498949).astype(np.int64)
        size = max(spec.sessions // many, 1) * many
        return np.where(u[:, 0] < spec.session_ratio, place + size * generation, -1)

    def _prompts(self, slices: NDArray[np.int64]) -> NDArray[np.int64]:
        offsets = self._spec.prompt_offsets
        counts = np.diff(offsets)
        at = (self._rng["prompts"].random(BLOCK) * counts[slices]).astype(np.int64)
        return np.asarray(self._spec.prompt_ids[offsets[slices] + at], np.int64)


def _cut(block: Arrivals, start: int, stop: int) -> Arrivals:
    return Arrivals(
        arrived_s=block.arrived_s[start:stop],
        slice=block.slice[start:stop],
        prompt_tokens=block.prompt_tokens[start:stop],
        output_tokens=block.output_tokens[start:stop],
        session=block.session[start:stop],
        prompt=block.prompt[start:stop],
        uniforms=block.uniforms[start:stop],
    )


def _joined(pieces: list[Arrivals]) -> Arrivals:
    return Arrivals(
        arrived_s=np.concatenate([piece.arrived_s for piece in pieces]),
        slice=np.concatenate([piece.slice for piece in pieces]),
        prompt_tokens=np.concatenate([piece.prompt_tokens for piece in pieces]),
        output_tokens=np.concatenate([piece.output_tokens for piece in pieces]),
        session=np.concatenate([piece.session for piece in pieces]),
        prompt=np.concatenate([piece.prompt for piece in pieces]),
        uniforms=np.concatenate([piece.uniforms for piece in pieces]),
    )
