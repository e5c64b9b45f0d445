"""Measured values of every position of a prompt, from whole rows or from the most probable tokens.

KL is KL(reference || server) in nats, as llama.cpp's; a position is the distribution of one next token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.errors import MeasurementError
from contracts.metrics import numeric, top_k_columns
from live.kld.inside.orders import COLUMNS
from live.measure.backend import TopScores, preferred, shared_tokens
from live.measure.prompts import Prompt

Floats = NDArray[np.float64]

#: Columns of ``PromptPositions``: those of a server's answer, and an upper bound on total variation.
POSITION_COLUMNS = (*COLUMNS, "tv_most")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPositions:
    """One prompt's positions. values: float64 [positions, columns of ``POSITION_COLUMNS``], NaN: unknown.

    exact: over the whole vocabulary. Otherwise kl and reverse_kl are lower bounds, and total variation lies
    between tv and tv_most.
    """

    prompt: Prompt
    values: Floats  # [positions, columns of ``POSITION_COLUMNS``], NaN: unknown
    exact: bool

    def column(self, name: str) -> Floats:
        """float64 [positions]."""
        return np.asarray(self.values[:, POSITION_COLUMNS.index(name)])


def from_reduced(prompt: Prompt, values: Floats) -> PromptPositions:
    """Positions as a server reduced them, [positions, COLUMNS]; MeasurementError for NaN scores."""
    broken = int(np.isnan(values[:, COLUMNS.index("candidate_logp")]).sum())
    if broken:
        raise MeasurementError(
            f"prompt {prompt.id}: at {broken} of {len(values)} positions the server's log-probabilities are"
            " no numbers; the server is broken, not merely far from its reference"
        )
    most = values[:, COLUMNS.index("tv"), None]
    return PromptPositions(prompt=prompt, values=np.concatenate([values, most], axis=1), exact=True)


def from_rows(
    prompt: Prompt, reference: NDArray[np.floating], candidate: NDArray[np.floating]
) -> PromptPositions:
    """Positions from both kernels' rows over the whole vocabulary, [positions, V] each."""
    try:
        base, mine = numeric.log_normalise(reference), numeric.log_normalise(candidate)
    except ValueError as error:
        raise MeasurementError(f"prompt {prompt.id}: {error}") from None
    own = np.array(prompt.token_ids[1:])[:, None]
    found = {
        "kl": numeric.kl(base, mine),
        "reverse_kl": numeric.kl(mine, base),
        "tv": numeric.tv(base, mine),
        "same_top": numeric.top1_overlap(base, mine),
        "reference_logp": np.take_along_axis(base, own, axis=1)[:, 0],
        "candidate_logp": np.take_along_axis(mine, own, axis=1)[:, 0],
        "linf": numeric.logit_linf(base, mine),
        "l2": numeric.logit_l2(base, mine),
        "abs_log_w": numeric.abs_log_w(base, mine),
        "token_prob_error": numeric.token_prob_error(base, mine),
    }
    return from_reduced(prompt, np.stack([found[name] for name in COLUMNS], axis=1))


def from_top(
    prompt: Prompt, reference: NDArray[np.float32] | TopScores, candidate: TopScores
) -> PromptPositions:
    """Positions from the server's most probable tokens; all other tokens form one rest bucket.

    The server returns the prompt's own token whatever its rank, so its probability is exact. The preferred
    token is exact too. Only the sum of the rest is known, so KL has no upper bound.
    """
    base, mine = shared_tokens(reference, candidate)
    pairs = [top_k_columns(base[i : i + 1], mine[i : i + 1]) for i in range(len(base))]
    backwards = [top_k_columns(mine[i : i + 1], base[i : i + 1]) for i in range(len(base))]
    apart = 0.5 * np.abs(np.exp(base) - np.exp(mine)).sum(axis=1)
    rests = [np.maximum(0.0, 1.0 - np.exp(side).sum(axis=1)) for side in (base, mine)]
    values = np.full((len(base), len(POSITION_COLUMNS)), np.nan)
    known = {
        "kl": [kl for kl, _ in pairs],
        "reverse_kl": [kl for kl, _ in backwards],
        "tv": [tv for _, tv in pairs],
        "tv_most": np.minimum(1.0, apart + 0.5 * (rests[0] + rests[1])),
        "same_top": preferred(reference) == preferred(candidate),
        "reference_logp": _own(reference, prompt),
        "candidate_logp": candidate.golden,
    }
    for name, column in known.items():
        values[:, POSITION_COLUMNS.index(name)] = column
    return PromptPositions(prompt=prompt, values=values, exact=False)


def _own(reference: NDArray[np.float32] | TopScores, prompt: Prompt) -> Floats:
    """The reference's log-probability of the prompt's own tokens, [positions]."""
    if isinstance(reference, TopScores):
        return reference.golden
    own = np.array(prompt.token_ids[1:])[:, None]
    return np.take_along_axis(reference.astype(np.float64), own, axis=1)[:, 0]
