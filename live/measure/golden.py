"""The reference log-probabilities that a profile refers to, small enough to ship.

Over the full vocabulary they take hundreds of megabytes, so the file keeps what a probe needs: for every
position the log-probability of the golden next token and the ten most probable tokens. The full rows are
pinned by sha256 in the profile's notes and come again from the same weights, prompts and versions.

An ``.npz`` read with ``allow_pickle=False``: ``prompt_ids`` int64 [N], ``starts`` int64 [N + 1] (rows of
prompt i are ``starts[i]`` to ``starts[i + 1]``), ``token_log_probs`` float32 [P], ``top_ids`` int32 [P, 10],
``top_log_probs`` float32 [P, 10], most probable first.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.metrics.numeric import top_tokens
from live.measure.backend import TopScores
from live.measure.prompts import Prompt
from live.measure.reference import AnyReference

TOP_TOKENS = 10


def golden_bytes(prompts: Sequence[Prompt], reference: AnyReference) -> bytes:
    """The content of the file."""
    rows = [_golden_rows(reference.of(index), prompt) for index, prompt in enumerate(prompts)]
    golden, ids, values = zip(*rows, strict=True)
    starts = np.concatenate([[0], np.cumsum([len(own) for own in golden])]).astype(np.int64)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        prompt_ids=np.array([prompt.id for prompt in prompts], dtype=np.int64),
        starts=starts,
        token_log_probs=np.concatenate(golden),
        top_ids=np.concatenate(ids),
        top_log_probs=np.concatenate(values),
    )
    return buffer.getvalue()


def _golden_rows(
    scores: NDArray[np.float32] | TopScores, prompt: Prompt
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """Of one prompt: golden log-probabilities [P], ids and log-probabilities of the top tokens [P, 10]."""
    if isinstance(scores, TopScores):
        ids = scores.token_ids[:, :TOP_TOKENS].astype(np.int32)
        return scores.golden.astype(np.float32), ids, scores.log_probs[:, :TOP_TOKENS].astype(np.float32)
    top = top_tokens(scores.astype(np.float64), TOP_TOKENS)
    golden = np.take_along_axis(scores, np.array(prompt.token_ids[1:])[:, None], axis=1)[:, 0]
    return golden, top.astype(np.int32), np.take_along_axis(scores, top, axis=1)
