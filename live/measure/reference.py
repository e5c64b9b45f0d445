"""The reference kernel: float32 transformers on the same weights, or a server of high precision. EDGE: torch.

Its log-probabilities are what every kernel is measured against. Over the full vocabulary they live in one
float32 file; profiles keep the file's sha256, and equal weights, prompts and versions give it again. A server
returns the most probable tokens alone, so what is measured against it are lower bounds (``top_k``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import MeasurementError, MissingPartError
from contracts.loading.files import written
from live.measure.backend import TopScores
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.prompts import Prompt

#: Called after every prompt.
OnPrompt = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceScores:
    """Reference log-probabilities of a prompt list.

    rows: float32 [sum of positions, V], memory-mapped; starts: int64 [prompts + 1]; sha256 of the file at
    ``path`` (None: the rows are in no file).
    """

    rows: NDArray[np.float32]  # [sum of positions, V], memory-mapped
    starts: NDArray[np.int64]  # [prompts + 1]
    sha256: str
    versions: tuple[tuple[str, str], ...]
    engine: str = "transformers"
    dtype: str = "float32"
    path: Path | None = None

    def of(self, index: int) -> NDArray[np.float32]:
        """float32 [positions, V] of the prompt at ``index`` of the list."""
        return np.asarray(self.rows[self.starts[index] : self.starts[index + 1]])


@dataclass(frozen=True, slots=True, kw_only=True)
class TopReference:
    """The most probable tokens of a reference server, per prompt of a list."""

    scores: tuple[TopScores, ...]
    sha256: str
    versions: tuple[tuple[str, str], ...]
    engine: str = "openai-endpoint"
    dtype: str = "unknown"

    def of(self, index: int) -> TopScores:
        """What the server returned for the prompt at ``index`` of the list."""
        return self.scores[index]


AnyReference = ReferenceScores | TopReference


def measure_reference(
    model: Path,
    prompts: Sequence[Prompt],
    path: Path,
    *,
    device_map: str = "",
    on_prompt: OnPrompt = lambda: None,
) -> ReferenceScores:
    """Score ``prompts`` with float32 transformers and keep the result in the file at ``path``.

    device_map: how the layers are spread over devices, as ``transformers`` names it (``auto``); empty: one.
    """
    torch, transformers = require_torch()
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    network = _network(torch, transformers, model, device_map)
    device = network.get_input_embeddings().weight.device
    with written(path) as file, torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt.token_ids], device=device)
            logits = network(input_ids=ids, use_cache=False).logits[0, :-1].double()
            file.write(torch.log_softmax(logits, dim=-1).float().cpu().numpy().tobytes())
            on_prompt()
    return open_reference(path, prompts, reference_versions())


def reference_versions() -> tuple[tuple[str, str], ...]:
    """Versions that the reference's numbers depend on."""
    torch, transformers = require_torch()
    return ("torch", str(torch.__version__)), ("transformers", str(transformers.__version__))


def open_reference(
    path: Path, prompts: Sequence[Prompt], versions: tuple[tuple[str, str], ...]
) -> ReferenceScores:
    """The reference in the file at ``path``; MeasurementError if it does not fit these prompts."""
    starts = np.concatenate([[0], np.cumsum([prompt.positions for prompt in prompts])]).astype(np.int64)
    size, positions = path.stat().st_size, int(starts[-1])
    if not size or size % (4 * positions):
        raise MeasurementError(f"{path}: {size} bytes are no whole rows of {positions} positions; delete it")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    rows = np.memmap(path, dtype="<f4", mode="r", shape=(positions, size // (4 * positions)))
    return ReferenceScores(rows=rows, starts=starts, sha256=digest, versions=versions, path=path)


def measure_top_reference(
    backend: OpenaiBackend, prompts: Sequence[Prompt], *, on_prompt: OnPrompt = lambda: None
) -> TopReference:
    """The most probable tokens of the server behind ``backend``, for every prompt.

    Raises MeasurementError if it does not return the prompt's own tokens, which probes are checked by.
    """
    found: list[TopScores] = []
    digest = hashlib.sha256()
    with backend.start(backend.kernels[0]) as session:
        for prompt, scores in zip(prompts, session.score(prompts), strict=True):
            if not isinstance(scores, TopScores) or np.isnan(scores.golden).any():
                raise MeasurementError(
                    f"prompt {prompt.id}: the reference server leaves out the prompt's own tokens"
                )
            digest.update(scores.token_ids.tobytes() + scores.log_probs.tobytes() + scores.golden.tobytes())
            found.append(scores)
            on_prompt()
        mark = session.facts.fingerprint
    return TopReference(
        scores=tuple(found),
        sha256=digest.hexdigest(),
        versions=(("reference-server", mark.engine_version),),
        engine=mark.engine,
        dtype=mark.dtype,
    )


def _network(torch: Any, transformers: Any, model: Path, device_map: str) -> Any:
    """The float32 model on one device, or spread over several."""
    load = transformers.AutoModelForCausalLM.from_pretrained
    with without_bars(transformers):
        if device_map:
            try:
                return load(str(model), dtype=torch.float32, device_map=device_map).eval()
            except (ImportError, ValueError) as error:
                raise MissingPartError(
                    f"--device-map {device_map}: {error}; pip install accelerate"
                ) from None
        network = load(str(model), dtype=torch.float32).eval()
    return network.to("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def without_bars(transformers: Any) -> Iterator[None]:
    """Context without the progress bars of ``transformers``; measuring commands show their own."""
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def require_torch() -> tuple[Any, Any]:
    """The torch and transformers modules; MissingPartError with a remedy if they are not installed."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingPartError(
            f"{error.name} is not installed, and the reference kernel needs it; run `make setup-test`"
            " or pip install 'selvage-fleet[torch]'"
        ) from None
    return torch, transformers
