"""The protocol between client and server: columns of an answer, limits of a request, allowed requests.

Bodies are checked before anything reaches the engine.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Version of the protocol between client and server.
PROTOCOL = 1
PREFIX = "/selvage/kld/"
TOKEN_HEADER = "x-selvage-kld-token"

#: Columns of an answer, float64 each. kl: KL(reference || server) in nats; reverse_kl: the reverse
#: direction; tv: total variation; same_top: 1 if both prefer the same token; reference_logp and
#: candidate_logp: log-probability of the prompt's own next token; linf and l2: distances of logits at
#: temperature 1; abs_log_w and token_prob_error: expectations over the server's own distribution.
COLUMNS = (
    "kl",
    "reverse_kl",
    "tv",
    "same_top",
    "reference_logp",
    "candidate_logp",
    "linf",
    "l2",
    "abs_log_w",
    "token_prob_error",
)

#: Limits of one request; a position is one next token of a prompt.
MOST_PROMPTS = 256
MOST_POSITIONS = 16_384
#: Most numbers in one answer of whole rows.
MOST_ROW_VALUES = 1 << 26
LONGEST_BODY = 4 << 20

_ROW_KINDS = ("f4", "f2")
_FLOAT_BYTES = 4


class OrderRefusedError(Exception):
    """A request that is not allowed or not valid; the message says why."""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits of the served model: tokens of a prompt, and size of the vocabulary."""

    tokens: int
    vocabulary: int


def prompts_of(body: dict[str, Any], limits: ModelLimits) -> list[list[int]]:
    """The prompts' token ids; OrderRefusedError if there are too many, none, or one of a wrong length."""
    prompts = body.get("prompts")
    if not isinstance(prompts, list) or not 1 <= len(prompts) <= MOST_PROMPTS:
        raise OrderRefusedError(f"prompts must be a list of 1 to {MOST_PROMPTS} lists of token ids")
    for ids in prompts:
        if not isinstance(ids, list) or not 2 <= len(ids) < limits.tokens:
            raise OrderRefusedError(f"a prompt must have 2 to {limits.tokens - 1} token ids")
        if any(type(token) is not int or not 0 <= token < limits.vocabulary for token in ids):
            raise OrderRefusedError(f"token ids must be integers from 0 to {limits.vocabulary - 1}")
    positions = sum(len(ids) - 1 for ids in prompts)
    if positions > MOST_POSITIONS:
        raise OrderRefusedError(f"{positions} positions in one request; at most {MOST_POSITIONS} are allowed")
    return prompts


def row_orders(body: dict[str, Any], limits: ModelLimits) -> list[dict[str, Any]]:
    """Orders for whole rows, one per prompt."""
    prompts, kind = prompts_of(body, limits), body.get("type", "f4")
    if kind not in _ROW_KINDS:
        raise OrderRefusedError(f"type must be one of {', '.join(_ROW_KINDS)}")
    values = sum(len(ids) - 1 for ids in prompts) * limits.vocabulary
    if values > MOST_ROW_VALUES:
        raise OrderRefusedError(f"{values} numbers in one answer; at most {MOST_ROW_VALUES} are allowed")
    return [{"kind": kind, "token_ids": ids} for ids in prompts]


def reduce_orders(body: dict[str, Any], limits: ModelLimits, files: CheckedFiles) -> list[dict[str, Any]]:
    """Orders for reduced numbers, one per prompt, with the checked file of the reference."""
    prompts, told = prompts_of(body, limits), body.get("reference")
    if not isinstance(told, dict) or not isinstance(told.get("path"), str):
        raise OrderRefusedError("reference must be an object with path, sha256, vocabulary and first_rows")
    if told.get("vocabulary") != limits.vocabulary:
        raise OrderRefusedError(
            f"the reference has {told.get('vocabulary')} tokens, the server {limits.vocabulary}"
        )
    first = told.get("first_rows")
    if not isinstance(first, list) or len(first) != len(prompts):
        raise OrderRefusedError("first_rows must hold one row number per prompt")
    if any(type(row) is not int or row < 0 for row in first):
        raise OrderRefusedError("first_rows must be integers >= 0")
    file = files.checked(told["path"], str(told.get("sha256")))
    return [
        {"kind": "reduce", "token_ids": ids, "vocabulary": limits.vocabulary, "first_row": row, **file}
        for ids, row in zip(prompts, first, strict=True)
    ]


class CheckedFiles:
    """Reference files below one folder; the hash of each file is computed once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int, int, int], str] = {}

    def checked(self, name: str, sha256: str) -> dict[str, Any]:
        """Path and identity of a file with the hash ``sha256``; OrderRefusedError for any other."""
        path = Path(name)
        try:
            path = path.resolve(strict=True)
            facts = path.stat()
        except (OSError, RuntimeError, ValueError):  # ValueError: a NUL or a lone surrogate in the name
            path = Path()
        if not path.is_relative_to(self._folder) or not path.is_file():
            raise OrderRefusedError("the reference is no file below this server's folder of references")
        key = (str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino)
        if facts.st_size == 0 or facts.st_size % _FLOAT_BYTES:
            raise OrderRefusedError("the reference holds no float32 numbers")
        if key not in self._known:
            with path.open("rb") as file:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        if self._known[key] != sha256:
            raise OrderRefusedError(f"the reference has sha256 {self._known[key]}, not {sha256:.64}")
        return {"path": key[0], "size": key[1], "mtime_ns": key[2], "inode": key[3]}


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``; OrderRefusedError if there is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise OrderRefusedError("the body must be a JSON object")
    return found
