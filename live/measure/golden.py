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
from pathlib import Path

import numpy as np

from contracts.loading.files import write_pinned
from contracts.metrics.numeric import top_tokens
from live.measure.prompts import Prompt
from live.measure.reference import ReferenceScores

TOP_TOKENS = 10


def save_golden(path: Path, prompts: Sequence[Prompt], reference: ReferenceScores) -> str:
    """Write the file at once or not at all; returns its sha256 (hex). Equal scores give equal bytes."""
    golden, ids, values = [], [], []
    for index, prompt in enumerate(prompts):
        rows = reference.of(index)
        top = top_tokens(rows.astype(np.float64), TOP_TOKENS)
        golden.append(np.take_along_axis(rows, np.array(prompt.token_ids[1:])[:, None], axis=1)[:, 0])
        ids.append(top.astype(np.int32))
        values.append(np.take_along_axis(rows, top, axis=1))
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        prompt_ids=np.array([prompt.id for prompt in prompts], dtype=np.int64),
        starts=reference.starts,
        token_log_probs=np.concatenate(golden),
        top_ids=np.concatenate(ids),
        top_log_probs=np.concatenate(values),
    )
    return write_pinned(path, buffer.getvalue())
