"""Measurements of one kernel: its profile, its samples, and the lengths of its pinned prompts.

Loading is cached by file path and modification time, because an experiment compiles many scenarios over one
pool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from contracts.assess.samples import KernelSamples, load_samples
from contracts.compiled.build import request_delay_s, served_step_s
from contracts.documents import FileRef
from contracts.documents.pool import PoolKernel
from contracts.documents.profile import KernelProfile
from contracts.errors import DocumentError, refusal
from contracts.loading.loader import load_as, read_text
from contracts.loading.profiles import check_profile, why_untimed
from contracts.loading.untrusted import json_of
from contracts.loading.uris import read_pinned, resolve_uri
from contracts.loading.yaml_positions import parse
from contracts.regular_files import TEXT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """A pool entry with its measurements."""

    entry: PoolKernel
    path: str
    """Of the profile's file."""
    profile: KernelProfile
    samples: KernelSamples

    @property
    def step_model(self) -> NDArray[np.float64]:
        """Coefficients of a step as served, seconds, float64 [4]; DocumentError if none was measured."""
        step = self.profile.spec.step_time
        if step is None:
            raise profile_refusal(
                self.path,
                "spec.step_time",
                "step times of every kernel of a pool",
                *why_untimed(self.profile),
            )
        return served_step_s(step, self.profile.spec.serving)

    @property
    def request_delay_s(self) -> float:
        """Delay in s that serving adds to every request."""
        return request_delay_s(self.profile.spec.serving)

    def fault_of(self, condition: str) -> str:
        """Fault kind of a measured condition."""
        return next(c.fault for c in self.profile.spec.conditions if c.name == condition)

    def step_time_factor(self, condition: str) -> float:
        """Measured slow-down of the engine step under ``condition``."""
        return next(c.step_time_factor for c in self.profile.spec.conditions if c.name == condition)

    @property
    def prompt_tokens(self) -> Mapping[int, int]:
        """Length of every golden prompt by its id, in tokens."""
        pinned = self.profile.spec.prompts
        return prompt_tokens(pinned, self.path, _stamp(resolve_uri(pinned.uri, self.path)))


def measured_kernel(entry: PoolKernel, pool_file: str) -> MeasuredKernel:
    """``entry`` of the pool in ``pool_file`` with its profile and samples."""
    path = resolve_uri(entry.profile, pool_file).absolute()
    profile, samples = _profile(str(path), _stamp(path))
    check_profile(entry, profile, path)
    return MeasuredKernel(entry=entry, path=str(path), profile=profile, samples=samples)


def _stamp(path: Path) -> int:
    """Modification time, so that a rewritten file is read again; a missing file fails in the loader."""
    return path.stat().st_mtime_ns if path.is_file() else 0


@lru_cache(maxsize=64)
def _profile(path: str, stamp: int) -> tuple[KernelProfile, KernelSamples]:
    del stamp  # part of the cache key only
    profile = load_as(KernelProfile, path)
    samples = load_samples(resolve_uri(profile.spec.samples.uri, path), profile.spec.samples.sha256)
    return profile, samples


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
    return refusal(file, expected, actual, "measure the profile again", line=line)


def profile_refusal(file: Path | str, path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    """An error for the field at dotted ``path`` of ``file``, with its line where the file has one."""
    return refusal(file, expected, actual, next_step, path=path, line=_line_of(str(file), path))


def _line_of(file: str, path: str) -> int:
    """Line of ``path`` in the YAML at ``file``; 0 if unknown."""
    steps = tuple(int(step) if step.isdigit() else step for step in re.split(r"[.\[\]]+", path) if step)
    try:
        written = parse(read_text(file), file)
    except DocumentError:
        return 0
    # An experiment compiles derived documents, so the field may be missing in the file.
    return written.line_of(steps) if steps[:2] in written.lines else 0
