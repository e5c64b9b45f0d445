"""Logged decisions as transitions: observation, choice, and the outcome according to telemetry.

Every world writes the same record, so that incidents of a live fleet, of drills and of simulations can train
and evaluate policies together. A file is one ``.npz`` without pickle: the arrays and a JSON header.

``log_probability`` is the propensity: the logarithm of the probability with which the driving policy drew the
choices of a tick. It is NaN for a deterministic policy; then no re-weighting of the log can estimate the
reward of another policy.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text, write_pinned
from contracts.loading.untrusted import MALFORMED, arrays_of
from contracts.regular_files import ARCHIVE_BYTES, read_regular

FORMAT_VERSION = 1
#: Arrays of a file: numpy's kind of type, and axes.
_ARRAYS = {
    "observation": ("f", 2),
    "choice": ("i", 2),
    "reward": ("f", 1),
    "cost": ("f", 1),
    "log_probability": ("f", 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionHeader:
    """The origin of a log.

    world: "simulation", "live" or "cluster". episode: name, e.g. of scenario or drill. seed: of the
    simulation (-1 elsewhere). reward_source: "telemetry" (``policies.offline.observed``) or "truth".
    encoding_version: of observations (``controller.encoding.features``). meta_contract_sha256: of the
    meta-contract that supervised the policy (None: there was none, or it was not recorded yet).
    """

    world: str
    episode: str
    policy_id: str
    seed: int
    reward_source: str
    encoding_version: int
    contract_sha256: str
    tick_s: float
    meta_contract_sha256: str | None = None


_HEADER = TypeAdapter(TransitionHeader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """One episode of T ticks."""

    header: TransitionHeader
    observation: NDArray[np.float32]  # [T + 1, N], input of a learned policy
    choice: NDArray[np.int64]  # [T, S], the kernel requested to take most of each slice, or shed
    reward: NDArray[np.float64]  # [T]
    cost: NDArray[np.float64]  # [T]
    log_probability: NDArray[np.float64]  # [T], NaN where the policy was deterministic

    def __post_init__(self) -> None:
        ticks = len(self.choice)
        if len(self.observation) != ticks + 1:
            raise ValueError(f"observation: expected {ticks + 1} rows, got {len(self.observation)}")
        for name in ("reward", "cost", "log_probability"):
            if getattr(self, name).shape != (ticks,):
                raise ValueError(f"{name}: expected shape ({ticks},), got {getattr(self, name).shape}")
        for name in ("observation", "reward", "cost"):
            if not bool(np.isfinite(getattr(self, name)).all()):
                raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")

    @property
    def ticks(self) -> int:
        """Number of transitions, T."""
        return len(self.choice)

    @property
    def has_propensity(self) -> bool:
        """Whether every choice was drawn with a known probability."""
        return bool(np.isfinite(self.log_probability).all())


def save_transitions(path: Path, log: Transitions) -> str:
    """Write ``log`` atomically; returns the file's sha256."""
    header = json_text({"format": FORMAT_VERSION, **asdict(log.header)})
    arrays = {name: getattr(log, name) for name in _ARRAYS}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=np.frombuffer(header.encode(), dtype=np.uint8), **arrays)
    return write_pinned(path, buffer.getvalue())


def load_transitions(path: Path) -> Transitions:
    """Read a file of ``save_transitions``; DocumentError if it is not valid."""
    content = read_regular(path, ARCHIVE_BYTES)
    try:
        arrays: dict[str, NDArray[Any]] = dict(arrays_of(content, ("header", *_ARRAYS)))
        header = json.loads(arrays.pop("header").tobytes().decode())
        if header.pop("format") != FORMAT_VERSION:
            raise ValueError(f"expected format {FORMAT_VERSION}")
        _refuse_other_types(arrays)
        return Transitions(header=_HEADER.validate_json(json.dumps(header), strict=True), **arrays)
    except MALFORMED as error:
        raise _unreadable(path, error) from None


def _refuse_other_types(arrays: Mapping[str, NDArray[Any]]) -> None:
    """ValueError for an array with another type or number of axes than ``save_transitions`` writes."""
    for name, (kind, axes) in _ARRAYS.items():
        found = arrays[name]
        if not isinstance(found, np.ndarray) or found.dtype.kind != kind or found.ndim != axes:
            raise ValueError(f"{name}: expected {axes} axes of type {kind!r}")
    if (arrays["choice"] < 0).any():
        raise ValueError("choice: expected numbers of kernels, got a negative one")


def load_all(paths: Iterable[Path]) -> list[Transitions]:
    """Logs of several files, which must agree on encoding and shape."""
    named = [(str(path), load_transitions(path)) for path in paths]
    if not named:
        raise _refusal(
            "selvage offline", "one or more .npz files of transitions", "none", "record some first"
        )
    return agreeing(named)


def agreeing(named: Sequence[tuple[str, Transitions]]) -> list[Transitions]:
    """One or more logs with their origins; DocumentError unless they share encoding and shape."""
    first = named[0][1]
    for place, log in named:
        for what, expected, actual in (
            ("encoding version", first.header.encoding_version, log.header.encoding_version),
            ("observation size", first.observation.shape[1], log.observation.shape[1]),
            ("number of slices", first.choice.shape[1], log.choice.shape[1]),
        ):
            if expected != actual:
                raise _refusal(
                    place, f"{what} {expected}", str(actual), "give logs of one encoding and contract"
                )
    return [log for _, log in named]


def _unreadable(path: Path, error: Exception) -> DocumentError:
    actual = f"{type(error).__name__}: {error}"
    return _refusal(
        str(path), "a file of transitions", actual, "write it again with `selvage offline record`"
    )


def _refusal(file: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(file, expected, actual, next_step, path="transitions")
