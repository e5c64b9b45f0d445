"""The engine's side on a runner that handles prompts as vLLM's does: chunked, interleaved, preempted."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.metrics.numeric import log_normalise
from contracts.rng import stream
from live.kld.inside.orders import COLUMNS, CheckedFiles
from live.kld.positions import from_rows
from live.measure.prompts import Prompt

pytestmark = pytest.mark.needs("torch")
VOCABULARY = 30
TABLE = log_normalise(stream(11, "worker").normal(size=(VOCABULARY, VOCABULARY))).astype(np.float32)
SKEWED = log_normalise(TABLE + 0.2 * stream(12, "worker").normal(size=TABLE.shape)).astype(np.float32)


@dataclass
class Request:
    """A runner's record of a request."""

    prompt_token_ids: list[int]
    num_computed_tokens: int = 0


class Sampler:
    """Counts the engine's own calls."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def gather_logprobs(self, scores: Any, count: int, targets: Any) -> tuple[list[int], int]:
        """Engine's own work on the rows."""
        self.seen.append([int(t) for t in targets])
        return self.seen[-1], count


@dataclass
class Runner:
    """A model runner of a bigram model; ``order`` shuffles the prompts without notice."""

    requests: dict[str, Request] = field(default_factory=dict)
    num_prompt_logprobs: dict[str, int] = field(default_factory=dict)
    sampler: Sampler = field(default_factory=Sampler)
    backwards: bool = False

    def add(self, name: str, ids: Iterable[int]) -> None:
        """Add a request for the log-probabilities of its prompt."""
        self.requests[name] = Request(list(ids))
        self.num_prompt_logprobs[name] = 0

    def _get_prompt_logprobs_dict(self, hidden_states: Any, scheduled: dict[str, int]) -> dict[str, Any]:
        import torch

        done: dict[str, Any] = {}
        names = list(self.num_prompt_logprobs)
        for name in reversed(names) if self.backwards else names:
            request = self.requests[name]
            ids, start = request.prompt_token_ids, request.num_computed_tokens
            count = min(scheduled.get(name, 0), len(ids) - start - 1)
            if count > 0:
                scores = torch.tensor(SKEWED[ids[start : start + count]])
                targets = torch.tensor(ids[start + 1 : start + 1 + count])
                done[name] = self.sampler.gather_logprobs(scores, 0, targets)
        return done

    def step(self, **scheduled: int) -> dict[str, Any]:
        """One engine step that computes this many tokens of each request."""
        done = self._get_prompt_logprobs_dict(None, scheduled)
        for name, count in scheduled.items():
            self.requests[name].num_computed_tokens += count
        return done


@dataclass
class Asked:
    """Two prompts of ours with their reference file, and the engine's names for them."""

    desk: Any
    runner: Runner
    jobs: dict[str, dict[str, Any]]
    names: list[str]


NAMES = ["selvage-kld-" + digit * 32 for digit in "ab"]
IDS = [[1, 5, 9, 2, 7, 3], [4, 4, 8, 1]]


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """Orders for both prompts are taken; nothing is computed yet."""
    import hashlib

    from live.kld.inside.worker import Desk

    rows = np.concatenate([TABLE[ids[:-1]] for ids in IDS])
    path = tmp_path / "reference.f32"
    path.write_bytes(rows.tobytes())
    file = CheckedFiles(tmp_path.resolve()).checked(str(path), hashlib.sha256(rows.tobytes()).hexdigest())
    orders = [
        {"kind": "reduce", "token_ids": ids, "vocabulary": VOCABULARY, "first_row": first, **file}
        for ids, first in zip(IDS, (0, 5), strict=True)
    ]
    runner = Runner()
    asked = Asked(Desk(runner), runner, dict(zip(NAMES, orders, strict=True)), [f"{n}-x" for n in NAMES])
    assert asked.desk.unfit() == ""
    assert asked.desk.expect(asked.jobs) == ""
    return asked


def numbers(answer: dict[str, str]) -> np.ndarray:
    """float64 [positions, columns] of an answer."""
    assert "error" not in answer, answer
    return np.frombuffer(base64.b64decode(answer["values"]), dtype="<f8").reshape(-1, len(COLUMNS))


def expected(ids: list[int]) -> np.ndarray:
    """The same by numpy from the tables."""
    prompt = Prompt(id=0, slice="toy", split="probe", document="", token_ids=tuple(ids), text="")
    return from_rows(prompt, TABLE[ids[:-1]], SKEWED[ids[:-1]]).values[:, : len(COLUMNS)]


def test_rows_find_their_prompts_through_chunks_and_neighbours(asked: Asked) -> None:
    """Chunked prompts, a user's own request between them and a preempted one all give correct rows."""
    first, second = asked.names
    asked.runner.add(first, IDS[0])
    asked.runner.add("user-request", [3, 1, 2])
    asked.runner.add(second, IDS[1])
    asked.runner.step(**{first: 2, "user-request": 3})
    asked.runner.requests[first].num_computed_tokens = 0  # preempted: it begins anew
    asked.runner.step(**{first: 4, second: 4})
    asked.runner.step(**{first: 2})
    answers = asked.desk.take(NAMES)
    for name, ids in zip(NAMES, IDS, strict=True):
        assert numbers(answers[name]) == pytest.approx(expected(ids), rel=1e-6, abs=1e-9)


def test_the_engine_sees_nothing_of_it(asked: Asked) -> None:
    """The engine's own work gets the same rows and results, and is unchanged when no comparison waits."""
    asked.runner.add(asked.names[0], IDS[0])
    asked.runner.add(asked.names[1], IDS[1])
    done = asked.runner.step(**{asked.names[0]: 6, asked.names[1]: 4})
    assert done == {asked.names[0]: (IDS[0][1:], 0), asked.names[1]: (IDS[1][1:], 0)}
    asked.desk.take(NAMES[:1])
    assert "_get_prompt_logprobs_dict" in vars(asked.runner)
    asked.desk.take(NAMES[1:])
    assert "_get_prompt_logprobs_dict" not in vars(asked.runner)
    assert "gather_logprobs" not in vars(asked.runner.sampler)


def test_another_order_of_prompts_is_reported_and_breaks_nothing(asked: Asked) -> None:
    """Rows with another prompt's tokens are not taken for this one's; the engine continues."""
    asked.runner.backwards = True
    asked.runner.add(asked.names[0], IDS[0])
    asked.runner.add(asked.names[1], IDS[1])
    done = asked.runner.step(**{asked.names[0]: 6, asked.names[1]: 4})
    assert len(done) == 2
    answers = asked.desk.take(NAMES)
    assert all("another order" in each["error"] for each in answers.values())


def test_a_prompt_that_was_not_scored_is_an_error(asked: Asked) -> None:
    """Half a prompt gives no numbers."""
    asked.runner.add(asked.names[0], IDS[0])
    asked.runner.step(**{asked.names[0]: 3})
    assert asked.desk.take(NAMES)[NAMES[0]] == {"error": "3 of 5 positions were scored"}


def test_a_reference_that_changed_or_ends_early_is_refused(asked: Asked) -> None:
    """Before anything is computed."""
    order = asked.jobs[NAMES[0]]
    asked.desk.take(NAMES)
    assert "ends before" in asked.desk.expect({NAMES[0]: order | {"first_row": 7}})
    assert "changed" in asked.desk.expect({NAMES[0]: order | {"mtime_ns": 1}})
    assert asked.desk.take([NAMES[0]]) == {}


@pytest.mark.parametrize("kind", ["f4", "f2"])
def test_whole_rows_come_as_they_are(asked: Asked, kind: str) -> None:
    """float32 bit by bit; float16 rounded, and nothing else."""
    asked.desk.take(NAMES)
    assert asked.desk.expect({NAMES[0]: {"kind": kind, "token_ids": IDS[0]}}) == ""
    asked.runner.add(asked.names[0], IDS[0])
    asked.runner.step(**{asked.names[0]: 6})
    raw = base64.b64decode(asked.desk.take(NAMES)[NAMES[0]]["values"])
    wanted = SKEWED[IDS[0][:-1]].astype(f"<{kind}")
    assert np.array_equal(np.frombuffer(raw, dtype=f"<{kind}").reshape(wanted.shape), wanted)


def test_an_engine_that_cannot_be_watched_says_so() -> None:
    """Another model runner is named with the remedy, and left alone."""
    from live.kld.inside.worker import Desk

    assert "VLLM_USE_V2_MODEL_RUNNER=0" in Desk(object()).unfit()
