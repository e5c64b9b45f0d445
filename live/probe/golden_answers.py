"""Right greedy answers: requested from a trusted server once, and stored with what they depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.errors import MeasurementError, refusal
from contracts.loading.files import write_pinned
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import TEXT_BYTES, read_regular_text
from live.measure.endpoint import LOGPROBS_MODE
from live.probe.answers import GreedyAnswer, Line, Question, ask, fresh_nonce

_FORMAT = 1
#: How the answers are made. Servers do not state their mode; vLLM's default is ``raw_logprobs``:
#: log-probabilities before temperature and penalties.
SAMPLING: Mapping[str, object] = {"logprobs_mode": LOGPROBS_MODE, "temperature": 0.0, "top_p": 1.0}
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenAnswers:
    """Answers by ``key`` of the question, all made by ``SAMPLING``."""

    answers: Mapping[str, GreedyAnswer]

    def of(self, question: Question) -> GreedyAnswer:
        """The right answer; KeyError if the question was never asked."""
        return self.answers[key(question)]


def key(question: Question) -> str:
    """Identifies a question independent of its cache salt and its pattern."""
    text = f"{question.max_tokens} {' '.join(map(str, question.token_ids))}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def golden_answers(
    store: Path, line: Line, questions: Iterable[Question], identity: tuple[str, ...]
) -> GoldenAnswers:
    """The answers of the server at ``line``; from ``store`` if all are stored for ``identity``, which names
    the model as its server states it.

    Raises MeasurementError for an answer that does not end well, DocumentError for a damaged file.
    """
    wanted = {key(one): one for one in questions}
    digest = hashlib.sha256("\n".join([*identity, *sorted(wanted)]).encode()).hexdigest()[:32]
    path = store / f"answers-{digest}.json"
    if path.is_file():
        return _read(path, wanted, identity)
    found = {name: _asked(line, question) for name, question in wanted.items()}
    store.mkdir(parents=True, exist_ok=True)
    content = {
        "format": _FORMAT,
        "sampling": dict(SAMPLING),
        "identity": list(identity),
        "answers": {name: _plain(one) for name, one in found.items()},
    }
    write_pinned(path, json.dumps(content).encode())
    return GoldenAnswers(answers=found)


def right_answers(line: Line, questions: Iterable[Question]) -> GoldenAnswers:
    """The present answers of the server at ``line``, not stored; raises as ``golden_answers`` and
    httpx do.
    """
    found = {key(one): _asked(line, one) for one in questions}
    return GoldenAnswers(answers=found)


def _asked(line: Line, question: Question) -> GreedyAnswer:
    answer = ask(line, question, fresh_nonce(), _PATIENCE_S)
    if answer.broken:
        raise MeasurementError(f"{line.url}: the reference's answer did not end well")
    return answer


def _plain(answer: GreedyAnswer) -> dict[str, Any]:
    return {
        "token_ids": list(answer.token_ids),
        "rows": [[[token, value] for token, value in row.items()] for row in answer.rows],
        "stop_reason": answer.stop_reason,
    }


def _read(path: Path, wanted: Iterable[str], identity: tuple[str, ...]) -> GoldenAnswers:
    """The answers in ``path``; DocumentError if they are of another model or to other questions."""
    try:
        content = json_of(read_regular_text(path, TEXT_BYTES))
        if content["format"] != _FORMAT or content["sampling"] != dict(SAMPLING):
            raise ValueError("answers of another format or another way of sampling")
        if content["identity"] != list(identity):
            raise ValueError(f"answers of {content['identity']}, wanted are those of {list(identity)}")
        answers = {str(name): _answer(one) for name, one in content["answers"].items()}
        if answers.keys() != set(wanted):
            raise ValueError("answers to other questions")
    except MALFORMED as error:
        raise refusal(path, "stored answers", str(error)[:200], "delete it to ask again") from None
    return GoldenAnswers(answers=answers)


def _answer(plain: Mapping[str, Any]) -> GreedyAnswer:
    rows = tuple({int(token): float(value) for token, value in row} for row in plain["rows"])
    tokens = tuple(int(token) for token in plain["token_ids"])
    if len(rows) != len(tokens) or any(token not in row for token, row in zip(tokens, rows, strict=True)):
        raise ValueError("tokens and their log-probabilities do not fit")
    return GreedyAnswer(
        token_ids=tokens,
        rows=rows,
        stop_reason=str(plain["stop_reason"]),
        sound=True,
        named="",
        prompt_kept=None,
    )
