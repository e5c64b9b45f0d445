"""Scores of back ends whose whole vocabulary a test compares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from live.measure.backend import FullScores, Scores


def full_rows(scores: Scores) -> NDArray[np.float32]:
    """The full-vocabulary array of ``scores``."""
    assert isinstance(scores, FullScores), "the server returns a top-k"
    return scores.log_probs
