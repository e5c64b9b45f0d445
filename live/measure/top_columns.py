"""The columns that a list of the most probable tokens allows, of the kernel, of the reference or of both.

Tokens that not both lists hold join the rest: one more coarsening, so divergences stay lower bounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.metrics import COLUMN_NAMES, top_k_columns
from live.measure.backend import FullScores, Scores, TopScores

Floats = NDArray[np.float64]


def top_values(reference: NDArray[np.float32] | TopScores, scores: Scores) -> Floats:
    """Values float64 [columns] of one prompt; NaN where the lists cannot tell."""
    values = dict.fromkeys(COLUMN_NAMES, float("nan"))
    shared = shared_tokens(reference, scores)
    values["kl_mean@top_k"], values["tv_mean@top_k"] = top_k_columns(*shared)
    values["top1_flip@top_k"] = float((preferred(reference) != preferred(scores)).mean())
    return np.array(list(values.values()))


def shared_tokens(reference: NDArray[np.float32] | TopScores, scores: Scores) -> tuple[Floats, Floats]:
    """Log-probabilities [positions, k] of the same tokens by both; minus infinity where one lacks it."""
    if not isinstance(reference, TopScores):
        assert isinstance(scores, TopScores)  # the caller has a list on one side at least
        return np.take_along_axis(reference.astype(np.float64), scores.token_ids, axis=1), scores.log_probs
    if isinstance(scores, FullScores):
        mine = np.take_along_axis(scores.log_probs.astype(np.float64), reference.token_ids, axis=1)
        return reference.log_probs, mine
    same = scores.token_ids[:, :, None] == reference.token_ids[:, None, :]
    found = same.any(axis=2)
    theirs = np.take_along_axis(reference.log_probs, same.argmax(axis=2), axis=1)
    return np.where(found, theirs, -np.inf), np.where(found, scores.log_probs, -np.inf)


def preferred(scores: NDArray[np.float32] | Scores) -> NDArray[np.int64]:
    """Most probable token of each position, int64 [positions]."""
    if isinstance(scores, TopScores):
        return np.asarray(scores.token_ids[np.arange(len(scores.token_ids)), scores.log_probs.argmax(axis=1)])
    rows = scores.log_probs if isinstance(scores, FullScores) else scores
    return np.asarray(rows.argmax(axis=1))
