"""The reference kernel: float32 Hugging Face transformers on the same weights. EDGE: torch.

Its log-probabilities over the full vocabulary are what every kernel is measured against. They live in
one float32 file for the time of a measurement; profiles keep the file's sha256, and equal weights,
prompts and versions give it again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import MissingPartError
from live.measure.prompts import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceScores:
    """Reference log-probabilities of a prompt list.

    rows: float32 [sum of positions, V], memory-mapped; starts: int64 [prompts + 1]; sha256 of the file.
    """

    rows: NDArray[np.float32]
    starts: NDArray[np.int64]
    sha256: str
    versions: tuple[tuple[str, str], ...]

    def of(self, index: int) -> NDArray[np.float32]:
        """float32 [positions, V] of the prompt at ``index`` of the list."""
        return np.asarray(self.rows[self.starts[index] : self.starts[index + 1]])


def measure_reference(model: Path, prompts: Sequence[Prompt], path: Path) -> ReferenceScores:
    """Score ``prompts`` with float32 transformers and keep the result in the file at ``path``."""
    torch, transformers = require_torch()
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    network = transformers.AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32).eval()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network.to(device)
    digest = hashlib.sha256()
    with path.open("wb") as file, torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt.token_ids], device=device)
            logits = network(input_ids=ids, use_cache=False).logits[0, :-1].double()
            content = torch.log_softmax(logits, dim=-1).float().cpu().numpy().tobytes()
            digest.update(content)
            file.write(content)
            width = int(logits.shape[1])
    starts = np.concatenate([[0], np.cumsum([prompt.positions for prompt in prompts])]).astype(np.int64)
    rows = np.memmap(path, dtype="<f4", mode="r", shape=(int(starts[-1]), width))
    versions = (("torch", str(torch.__version__)), ("transformers", str(transformers.__version__)))
    return ReferenceScores(rows=rows, starts=starts, sha256=digest.hexdigest(), versions=versions)


def require_torch() -> tuple[Any, Any]:
    """The torch and transformers modules, or MissingPartError with the remedy."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingPartError(
            f"{error.name} is not installed, and the reference kernel needs it; run `make setup-test`"
            " or pip install 'selvage-fleet[torch]'"
        ) from None
    return torch, transformers
