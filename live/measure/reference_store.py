"""Reference log-probabilities kept between runs: measured once for all kernels of one checkpoint.

A folder with one file per reference, named by what it depends on: weights or server, prompts and versions.

What a profile refers to is small enough to ship (``golden_bytes``). Over the full vocabulary the reference
takes hundreds of megabytes, so that file keeps what a probe needs: for every position the log-probability of
the golden next token and the ten most probable tokens. The full rows are pinned by sha256 in the profile's
notes and come again from the same weights, prompts and versions.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import refusal
from contracts.loading.files import write_pinned
from contracts.loading.untrusted import MALFORMED, arrays_of
from contracts.metrics.numeric import top_tokens
from contracts.regular_files import ARCHIVE_BYTES, read_regular
from live.measure.backend import TopScores
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.checkpoint import checkpoint_sha256
from live.measure.prompts import Prompt, dump_prompts
from live.measure.reference import (
    AnyReference,
    OnPrompt,
    ReferenceScores,
    TopReference,
    measure_reference,
    measure_top_reference,
    open_reference,
    reference_versions,
)


def stored_reference(
    store: Path, model: Path, prompts: Sequence[Prompt], *, device_map: str, on_prompt: OnPrompt
) -> ReferenceScores:
    """The reference for the weights in ``model``: read from ``store``, or else measured and stored there."""
    versions = reference_versions()
    key = _key(prompts, checkpoint_sha256(model), *(f"{name} {text}" for name, text in versions))
    path = store / f"{key}.f32"
    if path.is_file():
        return open_reference(path, prompts, versions)
    store.mkdir(parents=True, exist_ok=True)
    return measure_reference(model, prompts, path, device_map=device_map, on_prompt=on_prompt)


def stored_top_reference(
    store: Path,
    backend: OpenaiBackend,
    prompts: Sequence[Prompt],
    *,
    on_prompt: OnPrompt,
    identity: tuple[str, ...] = (),
) -> TopReference:
    """The same for a reference server. It is stored under the server's address, model and fingerprint.

    With ``identity``, it is stored under that instead: then the server is asked once, whatever becomes of it.
    """
    path = store / f"{_key(prompts, *(identity or backend.identity()))}.npz"
    if path.is_file():
        return _read(path, prompts)
    store.mkdir(parents=True, exist_ok=True)
    measured = measure_top_reference(backend, prompts, on_prompt=on_prompt)
    write_pinned(path, _content(measured))
    return measured


def _key(prompts: Sequence[Prompt], *parts: str) -> str:
    text = "\n".join([*parts, dump_prompts(prompts)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _content(reference: TopReference) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        lengths=np.array([len(one.golden) for one in reference.scores]),
        token_ids=np.concatenate([one.token_ids for one in reference.scores]),
        log_probs=np.concatenate([one.log_probs for one in reference.scores]),
        golden=np.concatenate([one.golden for one in reference.scores]),
        told=np.array([reference.sha256, reference.engine, reference.dtype]),
        versions=np.array(reference.versions),
    )
    return buffer.getvalue()


def _read(path: Path, prompts: Sequence[Prompt]) -> TopReference:
    """The reference in ``path``; DocumentError if it is none for ``prompts``."""
    content = read_regular(path, ARCHIVE_BYTES)
    try:
        kept: dict[str, NDArray[Any]] = dict(arrays_of(content))
        _refuse_misfit(kept)
        if kept["lengths"].tolist() != [one.positions for one in prompts]:
            raise ValueError("positions of other prompts")
        ends = np.cumsum(kept["lengths"])[:-1]
        parts = zip(*(np.split(kept[name], ends) for name in _KINDS), strict=True)
        scores = tuple(TopScores(token_ids=a, log_probs=b, golden=c) for a, b, c in parts)
        sha256, engine, dtype = (str(word) for word in kept["told"])
        versions = tuple((str(name), str(text)) for name, text in kept["versions"])
    except MALFORMED as error:
        raise refusal(path, "a stored reference", str(error), "delete it to measure again") from None
    found = TopReference(scores=scores, sha256=sha256, versions=versions)
    return replace(found, engine=engine, dtype=dtype)


#: Types and axes of the arrays that are stored per position.
_KINDS = {"token_ids": ("i", 2), "log_probs": ("f", 2), "golden": ("f", 1)}


def _refuse_misfit(kept: Mapping[str, NDArray[Any]]) -> None:
    """ValueError if arrays have other types or shapes that do not fit each other."""
    lengths = kept["lengths"]
    if lengths.dtype.kind != "i" or lengths.ndim != 1 or (lengths < 0).any():
        raise ValueError("lengths: expected counts of positions")
    for name, (kind, axes) in _KINDS.items():
        found = kept[name]
        if found.dtype.kind != kind or found.ndim != axes or len(found) != int(lengths.sum()):
            raise ValueError(f"{name}: expected {axes} axes of type {kind!r}, {int(lengths.sum())} positions")
    if kept["token_ids"].shape != kept["log_probs"].shape:
        raise ValueError("token_ids and log_probs: expected the same shape")


TOP_TOKENS = 10


def golden_bytes(prompts: Sequence[Prompt], reference: AnyReference) -> bytes:
    """The content of the file that ships, an ``.npz`` read with ``allow_pickle=False``.

    ``prompt_ids`` int64 [N], ``starts`` int64 [N + 1] (rows of prompt i are ``starts[i]`` to
    ``starts[i + 1]``), ``token_log_probs`` float32 [P], ``top_ids`` int32 [P, 10], ``top_log_probs`` float32
    [P, 10], most probable first.
    """
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
    """For one prompt: golden log-probabilities [P], ids and log-probabilities of the top tokens [P, 10]."""
    if isinstance(scores, TopScores):
        ids = scores.token_ids[:, :TOP_TOKENS].astype(np.int32)
        return scores.golden.astype(np.float32), ids, scores.log_probs[:, :TOP_TOKENS].astype(np.float32)
    top = top_tokens(scores.astype(np.float64), TOP_TOKENS)
    golden = np.take_along_axis(scores, np.array(prompt.token_ids[1:])[:, None], axis=1)[:, 0]
    return golden, top.astype(np.int32), np.take_along_axis(scores, top, axis=1)
