"""Requests of one fleet in order of arrival, handed out in pieces."""

from __future__ import annotations

import numpy as np

from contracts.streams import stream
from simulator.engine_records import Arrivals
from simulator.world import CompiledScenario


class Traffic:
    """All arrivals of one fleet; ``due`` hands over what the next stretch needs."""

    def __init__(self, scenario: CompiledScenario, seed: int, piece_s: float) -> None:
        self._all = draw_arrivals(scenario, seed)
        self._piece_s, self._handed, self._until_s = piece_s, 0, 0.0

    def due(self, until_s: float) -> Arrivals | None:
        """The next piece, if those handed over so far do not reach to ``until_s``."""
        if until_s <= self._until_s:
            return None
        self._until_s = until_s + self._piece_s
        first, stop = self._handed, int(np.searchsorted(self._all.arrived_s, self._until_s, side="right"))
        self._handed = stop
        return cut(self._all, first, stop)


def cut(arrivals: Arrivals, first: int, stop: int) -> Arrivals:
    """Requests ``first`` to ``stop`` of ``arrivals``."""
    part = slice(first, stop)
    return Arrivals(
        arrived_s=arrivals.arrived_s[part],
        slice=arrivals.slice[part],
        prompt_tokens=arrivals.prompt_tokens[part],
        output_tokens=arrivals.output_tokens[part],
        session=arrivals.session[part],
        prompt=arrivals.prompt[part],
        uniforms=arrivals.uniforms[part],
    )


def draw_arrivals(scenario: CompiledScenario, seed: int) -> Arrivals:
    rng = stream(seed, "arrivals")
    n = rng.poisson(scenario.workload.rate_rps * scenario.horizon_s)
    shares = {e.slice: e.share for e in scenario.workload.slice_mix}
    p = np.array([shares.get(s, 0.0) for s in scenario.layout.slices])
    sl = rng.choice(len(p), n, p=p / p.sum())

    def lens(spec):
        return np.maximum(
            1,
            np.minimum(rng.lognormal(np.log(spec.mean) - spec.sigma**2 / 2, spec.sigma, n), spec.max_tokens),
        ).astype(np.int64)

    prompt = np.zeros(n, np.int64)
    for s in range(len(p)):
        mine = np.flatnonzero(sl == s)
        prompt[mine] = rng.choice(scenario.prompts.traffic_of(s), mine.size)
    return Arrivals(
        arrived_s=np.sort(rng.random(n) * scenario.horizon_s),
        slice=sl.astype(np.int64),
        prompt_tokens=lens(scenario.workload.prompt_tokens),
        output_tokens=lens(scenario.workload.output_tokens),
        session=np.full(n, -1, np.int64),
        prompt=prompt,
        uniforms=rng.random((n, 4)),
    )
