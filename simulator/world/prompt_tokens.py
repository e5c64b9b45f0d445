"""Lengths of the prompts that a profile pins: what a probe of each costs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from contracts.documents import FileRef
from contracts.errors import DocumentError, Problem
from contracts.loading.untrusted import json_of
from contracts.loading.uris import read_pinned, resolve_uri
from contracts.regular_files import TEXT_BYTES


@lru_cache(maxsize=16)
def prompt_tokens(pinned: FileRef, profile: str, stamp: int) -> Mapping[int, int]:
    """Lengths by id of the prompts that the file ``profile`` pins; DocumentError for any others."""
    del stamp  # part of the cache key only
    content, file = read_pinned(pinned, profile, TEXT_BYTES), resolve_uri(pinned.uri, profile)
    lengths: dict[int, int] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            name, tokens = _prompt(line, file, number)
            if name in lengths:
                raise _no_prompt(file, number, f"id {name} once more")
            lengths[name] = tokens
    return MappingProxyType(lengths)


def _prompt(line: bytes, file: Path, number: int) -> tuple[int, int]:
    """Id and number of tokens of the prompt in ``line``."""
    try:
        prompt = json_of(line)
        name, tokens = prompt["id"], prompt["token_ids"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_prompt(file, number, f"{type(error).__name__}: {error}") from None
    if type(name) is not int or not isinstance(tokens, list):
        raise _no_prompt(file, number, f"id {name!r:.40}, token_ids {type(tokens).__name__}")
    return name, len(tokens)


def _no_prompt(file: Path, line: int, actual: str) -> DocumentError:
    expected = "one JSON object per line with an id of its own and token_ids"
    return DocumentError([Problem(str(file), line, "", expected, actual, "measure the profile again")])
