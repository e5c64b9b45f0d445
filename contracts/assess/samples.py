"""The samples file: values per condition, prompt, repeat and column, as npz without pickle.

::

    condition_names  str [A]            "healthy", then one name per fault and dose
    prompt_ids       int64 [N]          unique
    prompt_slice     str [N]
    prompt_split     str [N]            certify | probe | traffic
    metric_names     str [M]            "<column>@<estimator>", e.g. "kl_mean@full_vocab"
    values           float64 [A, N, R, M]   R repeats; NaN: not measured; never infinite

A prompt id stands once, so that no prompt is in two splits: thresholds (certify), detection (probe)
and ground truth (traffic) share no samples. A file that breaks any of this is refused with a
DocumentError that says what was found. Writing goes through a temporary file.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.errors import DocumentError, refusal
from contracts.loading.files import write_pinned
from contracts.loading.untrusted import arrays_of
from contracts.regular_files import ARCHIVE_BYTES, read_regular

SPLITS: tuple[str, ...] = ("certify", "probe", "traffic")

_TEXTS = ("condition_names", "prompt_slice", "prompt_split", "metric_names")
_ARRAYS = (*_TEXTS, "prompt_ids", "values")
_MOST_NAMES = 1 << 20  # an archive with more of one kind is no samples file


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSamples:
    """One kernel's measured values; axes as in the module's table."""

    condition_names: tuple[str, ...]  # [A]
    prompt_ids: NDArray[np.int64]  # [N] unique
    prompt_slice: tuple[str, ...]  # [N]
    prompt_split: tuple[str, ...]  # [N] each one of ``SPLITS``
    metric_names: tuple[str, ...]  # [M]
    values: NDArray[np.float64]  # [A, N, R, M] in the unit of each column, NaN where not measured

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise ValueError("; ".join(f"{path}: expected {want}, got {got}" for path, want, got in problems))

    def rows(self, split: str, slice_name: str | None = None) -> NDArray[np.int64]:
        """Indices of the prompts of ``split`` (and of one slice), in file order, int64."""
        return _rows(self.prompt_split, self.prompt_slice, split, slice_name).copy()

    def condition(self, name: str) -> int:
        """Index of condition ``name``; KeyError lists the conditions."""
        if name not in self.condition_names:
            raise KeyError(f"no condition {name!r}; measured: {', '.join(self.condition_names)}")
        return self.condition_names.index(name)

    def prompt_values(self, column: str, condition: str, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """One value per prompt of ``rows``, the mean over its repeats, float64 [n]; NaN: not measured."""
        if column not in self.metric_names:
            return np.full(rows.size, np.nan)
        block = self.values[self.condition(condition), rows, :, self.metric_names.index(column)]
        return np.asarray(block.mean(axis=1))

    @property
    def slices(self) -> tuple[str, ...]:
        """Slices in the order of their first prompt."""
        return tuple(dict.fromkeys(self.prompt_slice))


@lru_cache(maxsize=256)
def _rows(
    splits: tuple[str, ...], slices: tuple[str, ...], split: str, slice_name: str | None
) -> NDArray[np.int64]:
    places = zip(splits, slices, strict=True)
    wanted = [at for at, (place, name) in enumerate(places) if place == split and slice_name in (None, name)]
    return np.array(wanted, dtype=np.int64)


def save_samples(path: Path, samples: KernelSamples) -> str:
    """Write ``samples`` to ``path`` at once or not at all; returns the file's sha256 (hex)."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        condition_names=np.array(samples.condition_names, dtype=np.str_),
        prompt_ids=samples.prompt_ids,
        prompt_slice=np.array(samples.prompt_slice, dtype=np.str_),
        prompt_split=np.array(samples.prompt_split, dtype=np.str_),
        metric_names=np.array(samples.metric_names, dtype=np.str_),
        values=samples.values,
    )
    return write_pinned(path, buffer.getvalue())


def load_samples(path: Path, sha256: str | None = None) -> KernelSamples:
    """Read and check a samples file; with ``sha256`` also that it is the very file a profile pinned."""
    content = read_regular(path, ARCHIVE_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise _refusal(
            path, "sha256", sha256, found, "the file is not the one measured: fetch or measure again"
        )
    arrays = _arrays(path, content)
    for name, array in arrays.items():
        _check_dtype(path, name, array)
    try:
        return KernelSamples(
            condition_names=_words(arrays["condition_names"]),
            prompt_ids=arrays["prompt_ids"].astype(np.int64),
            prompt_slice=_words(arrays["prompt_slice"]),
            prompt_split=_words(arrays["prompt_split"]),
            metric_names=_words(arrays["metric_names"]),
            values=arrays["values"].astype(np.float64),
        )
    except ValueError as error:
        raise _refusal(
            path, "", "a consistent samples file", str(error), "measure the profile again"
        ) from error


def _words(array: NDArray[np.generic]) -> tuple[str, ...]:
    return tuple(str(word) for word in array.ravel())


def _arrays(path: Path, content: bytes) -> dict[str, NDArray[np.generic]]:
    """The named arrays of the archive; sizes are checked before anything is unpacked."""
    try:
        return arrays_of(content, _ARRAYS)
    except ValueError as error:
        raise _refusal(
            path, "", "an npz archive of plain arrays", str(error), "measure the profile again"
        ) from error


def _check_dtype(path: Path, name: str, array: NDArray[np.generic]) -> None:
    """Unsigned ids are refused: the largest would come back negative."""
    wanted = {"values": ("f", "floats"), "prompt_ids": ("i", "signed integers")}.get(name, ("U", "text"))
    if array.dtype.kind not in wanted[0]:
        raise _refusal(path, name, f"an array of {wanted[1]}", str(array.dtype), "measure the profile again")
    if name != "values" and array.size > _MOST_NAMES:
        raise _refusal(path, name, f"at most {_MOST_NAMES} entries", f"{array.size}", "split the file")


def _refusal(path: Path, where: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(path, expected, actual, next_step, path=where)


def _problems(samples: KernelSamples) -> list[tuple[str, str, str]]:
    """What is wrong with ``samples``, as (array, expected, found)."""
    prompts = samples.prompt_ids.size
    found: list[tuple[str, str, str]] = []
    shape = samples.values.shape
    wanted = (len(samples.condition_names), prompts, len(samples.metric_names))
    if len(shape) != 4 or (shape[0], shape[1], shape[3]) != wanted or shape[2] < 1:
        found.append(("values", f"shape [{wanted[0]}, {prompts}, repeats >= 1, {wanted[2]}]", str(shape)))
    if np.isinf(samples.values).any():
        found.append(("values", "finite numbers or NaN (not measured)", "an infinite value"))
    entries = (("prompt_slice", samples.prompt_slice), ("prompt_split", samples.prompt_split))
    found += [
        (name, f"{prompts} entries, one per prompt", str(len(words)))
        for name, words in entries
        if len(words) != prompts
    ]
    return found + _name_problems(samples)


def _name_problems(samples: KernelSamples) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    if samples.prompt_ids.ndim != 1 or samples.prompt_ids.size == 0:
        found.append(("prompt_ids", "at least one prompt", f"shape {samples.prompt_ids.shape}"))
    unique, counts = np.unique(samples.prompt_ids, return_counts=True)
    if (counts > 1).any():
        twice = int(unique[counts > 1][0])
        found.append(("prompt_ids", "each prompt once, in one split", f"prompt {twice} more than once"))
    strangers = sorted(set(samples.prompt_split) - set(SPLITS))
    if strangers:
        found.append(("prompt_split", f"one of {', '.join(SPLITS)}", ", ".join(map(repr, strangers))))
    for name in _TEXTS:
        strange = [word for word in getattr(samples, name) if not (word and word.isprintable())]
        if strange:
            found.append((name, "printable names", ascii(strange[0])))
    for name in ("condition_names", "metric_names"):
        names = getattr(samples, name)
        if len(set(names)) != len(names) or not names:
            found.append((name, "unique names, at least one", ", ".join(names) or "none"))
    return found
