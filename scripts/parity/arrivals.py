"""What both worlds are sent: a Poisson process with lengths around a mean, from a seed."""

from __future__ import annotations

import numpy as np

from contracts.rng import stream
from scripts.parity.replaying import RequestLoad

#: Prompt and answer of a request are at most so many times their mean, so that they fit small contexts.
_MOST_TIMES = 3.0


def drawn(rate_rps: float, seconds: float, seed: int, lengths: tuple[int, int, float]) -> RequestLoad:
    """Arrivals over ``seconds``, at least one; ``lengths``: mean prompt, mean answer, sigma of their logs.

    Lengths are log-normal with these means, cut at three times them; a sigma of 0 makes all alike.
    """
    rng = stream(seed, "parity", "arrivals")
    count = int(rate_rps * seconds + 10.0 * np.sqrt(rate_rps * seconds)) + 20
    at_s = np.cumsum(rng.exponential(1.0 / rate_rps, count))
    at_s = at_s[: max(1, int(np.searchsorted(at_s, seconds)))]
    prompt, answer, sigma = lengths
    sizes = stream(seed, "parity", "lengths")
    return RequestLoad(
        at_s=at_s,
        prompt_tokens=_lengths(sizes, prompt, sigma, len(at_s)),
        answer_tokens=_lengths(sizes, answer, sigma, len(at_s)),
    )


def _lengths(rng: np.random.Generator, mean: int, sigma: float, count: int) -> np.ndarray:
    law = mean * np.exp(sigma * rng.normal(size=count) - 0.5 * sigma * sigma)
    return np.clip(np.round(law), 2, max(2.0, _MOST_TIMES * mean)).astype(np.int64)
