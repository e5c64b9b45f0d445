"""The source of the reference's log-probabilities: the weights, a stored file, or another server.

Whole rows are kept in a file of float32 numbers, so that a server on the same machine can read them by path
and sha256. A reference server without the plug-in gives only its most probable tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contracts.errors import MeasurementError, refusal
from contracts.loading.files import written
from live.kld.server import KldServer, PluginOffer, connect, rows_fit
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt, dump_prompts
from live.measure.reference import AnyReference, OnPrompt, ReferenceScores, open_reference
from live.measure.reference_store import stored_reference, stored_top_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePlan:
    """The reference: an endpoint, a file, or (neither given) float32 transformers on ``model``."""

    store: Path
    model: Path
    endpoint: Endpoint | None = None
    token: str = ""
    """Of the reference server's plug-in."""
    file: Path | None = None
    half: bool = False
    """Transfer rows of a reference server as float16: half the bytes, an error up to 5e-4 of each value."""


def reference_for(plan: ReferencePlan, prompts: Sequence[Prompt], on_prompt: OnPrompt) -> AnyReference:
    """The reference's scores of ``prompts``, from the store if they are there."""
    if plan.endpoint is not None:
        return _of_server(plan, plan.endpoint, prompts, on_prompt)
    if plan.file is not None:
        return _checked(open_reference(plan.file.resolve(), prompts, ()), plan.file)
    store = plan.store.resolve()
    return stored_reference(store, plan.model, prompts, device_map="", on_prompt=on_prompt)


def _of_server(
    plan: ReferencePlan, endpoint: Endpoint, prompts: Sequence[Prompt], on_prompt: OnPrompt
) -> AnyReference:
    backend = OpenaiBackend(endpoint)
    with connect(endpoint, plan.token) as server:
        offer, _ = server.offer()
        if offer is None or not rows_fit(prompts, offer.vocabulary):
            return stored_top_reference(plan.store, backend, prompts, on_prompt=on_prompt)
        kind = "f2" if plan.half else "f4"
        text = "\n".join([*backend.identity(), kind, dump_prompts(prompts)])
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        path = plan.store.resolve() / f"{name}.f32"
        if not path.is_file():
            _fetch(server, offer, prompts, kind, path, on_prompt)
    return open_reference(path, prompts, ())


def _fetch(
    server: KldServer,
    offer: PluginOffer,
    prompts: Sequence[Prompt],
    kind: str,
    path: Path,
    on_prompt: OnPrompt,
) -> None:
    """Write whole rows of every prompt to ``path``, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path) as file:
        for prompt in prompts:
            rows = server.rows(prompt, offer.vocabulary, kind)
            if not np.isfinite(rows.max(axis=1)).all():
                raise MeasurementError(
                    f"prompt {prompt.id}: the reference's log-probabilities are no numbers"
                )
            file.write(np.ascontiguousarray(rows, dtype="<f4").tobytes())
            on_prompt()


def _checked(found: ReferenceScores, file: Path) -> ReferenceScores:
    """Check that a user's file holds distributions: a sample of its rows must add up to 1."""
    with np.errstate(all="ignore"):  # rows that are no distributions may hold any number
        sample = found.rows[:: max(1, len(found.rows) // 64)].astype(np.float64)
        sums = np.exp(sample).sum(axis=1)
    if not np.allclose(sums, 1.0, atol=1e-3):
        step = "give the file that was stored for these very prompts and this vocabulary"
        raise refusal(str(file), "rows of log-probabilities that add up to 1", f"{sums.max():.3g}", step)
    return found
