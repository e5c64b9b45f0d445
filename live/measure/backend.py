"""The interface of a measuring back end: start a kernel, score prompts, time steps, inject and undo.

``vllm_backend`` drives a real vLLM engine, ``torch_backend`` Hugging Face transformers, ``openai_backend`` a
running server that returns the top k log-probabilities only.

If the kernel's or the reference's scores are a list of the most probable tokens, only few columns can be
computed. Tokens that are not in both lists are added to the rest bucket. This coarsens the distributions
further, so divergences stay lower bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.documents.profile import Fingerprint
from contracts.documents.step_time import StepPoint
from contracts.metrics import COLUMN_NAMES, top_k_columns
from live.measure.kernels import EngineOption, FaultDose, Kernel, Variable
from live.measure.prompts import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class FullScores:
    """Log-probabilities over the whole vocabulary, float32 [positions, V]."""

    log_probs: NDArray[np.float32]  # [positions, V]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopScores:
    """The k most probable tokens as returned: ids int64 [positions, k], float64 log-probabilities.

    golden: float64 [positions], log-probability of the prompt's own next token; NaN where not returned.
    """

    token_ids: NDArray[np.int64]  # [positions, k]
    log_probs: NDArray[np.float64]  # [positions, k]
    golden: NDArray[np.float64]  # [positions], of the prompt's own next token; NaN where not returned


Scores = FullScores | TopScores


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The steps to time: every batch size with every context, ``decode_steps`` each.

    clock: ``cpu`` is process CPU time (right for single-threaded engines on a busy machine); ``wall`` is
    elapsed time (right on accelerators, and for slowed steps). The time of a kind of step is its median over
    ``rounds``, or with ``least`` its minimum, because other load only adds time.

    A running server is timed in blocks of ``rounds``. Blocks are added, from ``blocks`` up to
    ``most_blocks``, until every predicted step time has a relative half-width of at most
    ``wanted_half_width``; above ``most_half_width`` the times are refused. The first ``blocks`` are spread
    over ``least_seconds``, so that a drift of the server becomes visible. No request begins after
    ``most_seconds``.
    """

    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    contexts: tuple[int, ...] = (32, 128, 512)
    decode_steps: int = 8
    rounds: int = 3
    clock: str = "cpu"
    least: bool = False
    blocks: int = 4
    most_blocks: int = 12
    least_seconds: float = 0.0
    most_seconds: float = math.inf
    wanted_half_width: float = 0.15
    most_half_width: float = 0.5
    streams: tuple[int, ...] = ()  # numbers of concurrent streamed requests for the serving path; empty: none


def step_points(found: dict[tuple[int, int, int], list[float]], plan: StepPlan) -> list[StepPoint]:
    """One point per kind of step (prefill tokens, sequences, context) from its times in ms."""
    return [
        StepPoint(
            prefill_tokens=prefill,
            decode_sequences=decode,
            context_tokens=context,
            measured_ms=float(min(times) if plan.least else median(times)),
        )
        for (prefill, decode, context), times in sorted(found.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What the engine reports about itself; sizes in bytes, 0 if unknown."""

    fingerprint: Fingerprint
    weights_bytes: int
    kv_bytes_per_token: int
    vocabulary: int


class Session(Protocol):
    """One started kernel."""

    @property
    def facts(self) -> EngineFacts:
        """Fingerprint and sizes, read after the start."""

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """Scores of each prompt, in order; each prompt runs alone."""

    def time_steps(self, plan: StepPlan) -> list[StepPoint]:
        """Median time of each kind of step in the plan."""

    def canary(self) -> str:
        """Hash of fixed inputs through the kernels in use; "" if it cannot be computed."""

    def inject(self, dose: FaultDose) -> None:
        """Put the fault in force. Raises MeasurementError if the back end cannot."""

    def undo(self) -> None:
        """Undo every injected fault."""

    def peak_bytes(self) -> int:
        """Largest resident memory of the engine so far."""


class ServingBackend(Protocol):
    """Starts kernels of one checkpoint."""

    name: str
    kernels: tuple[Kernel, ...]

    def start(
        self,
        kernel: Kernel,
        *,
        environment: tuple[Variable, ...] = (),
        options: tuple[EngineOption, ...] = (),
    ) -> AbstractContextManager[Session]:
        """Start ``kernel``, with extra environment and options on top of its own; stops on exit."""


Floats = NDArray[np.float64]


def top_values(reference: NDArray[np.float32] | TopScores, scores: Scores) -> Floats:
    """Values float64 [columns] of one prompt; NaN for columns that the lists cannot provide."""
    values = dict.fromkeys(COLUMN_NAMES, float("nan"))
    shared = shared_tokens(reference, scores)
    values["kl_mean@top_k"], values["tv_mean@top_k"] = top_k_columns(*shared)
    values["top1_flip@top_k"] = float((preferred(reference) != preferred(scores)).mean())
    return np.array(list(values.values()))


def shared_tokens(reference: NDArray[np.float32] | TopScores, scores: Scores) -> tuple[Floats, Floats]:
    """Log-probabilities [positions, k] of the same tokens by both; minus infinity if one list lacks it."""
    if not isinstance(reference, TopScores):
        assert isinstance(scores, TopScores)  # callers pass a list on one side at least
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
