"""Observations to be judged: numbers per slice and column, from a profile's samples or from logs."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.assess.samples import SPLITS, KernelSamples
from contracts.metrics.columns import domain_of
from contracts.metrics.statistical import REFUSAL_JUDGE, AnswerJudge, JsonJudge

Floats = NDArray[np.float64]

#: Split that takes every prompt.
ALL_SPLITS = "all"
#: Condition of what was logged in service.
LOGGED = "logged"

#: Judges that a log line may name, and the column that their paired difference fills.
JUDGES: tuple[tuple[str, str, AnswerJudge], ...] = (
    ("refusal", "refusal_difference", REFUSAL_JUDGE),
    ("json", "parse_difference", JsonJudge()),
)
CALIBRATION_COLUMN = "ece_gap"
#: Evidence for the assumptions A1 to A3, which no clause judges.
EVIDENCE_COLUMNS = frozenset({"lost_mass", "advantage", "score_norm"})
#: A value of a profile that is outside its range by at most this much was rounded.
_BEYOND_RANGE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedColumn:
    """Observations of one slice and column.

    A calibration row is (reference confidence, reference correct, candidate confidence, correct).
    """

    slice: str
    column: str
    values: Floats  # [n] in the column's unit; calibration rows are [n, 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableValues:
    """Prompts of one slice and column whose value is no number, or none that the column can have."""

    slice: str
    column: str
    count: int
    prompts: int  # of so many


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePart:
    """One file that observations came from."""

    sha256: str  # hex
    condition: str
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All observations of one evaluation, and where they came from."""

    sha256: str  # hex, of the file; of several, of the samples, or of all logs together
    condition: str  # "logged" for a log
    split: str  # of the prompts
    columns: tuple[ObservedColumn, ...]
    several: tuple[EvidencePart, ...] = ()  # the files where there are several
    unreadable: tuple[UnreadableValues, ...] = ()  # what is missing in ``columns``

    @property
    def parts(self) -> tuple[EvidencePart, ...]:
        """The files, one or several."""
        return self.several or (EvidencePart(sha256=self.sha256, condition=self.condition, split=self.split),)

    @property
    def slices(self) -> tuple[str, ...]:
        """Slices in order of appearance."""
        return tuple(dict.fromkeys(entry.slice for entry in self.columns))

    @property
    def column_names(self) -> tuple[str, ...]:
        """Columns in order of appearance."""
        return tuple(dict.fromkeys(entry.column for entry in self.columns))

    def unreadable_in(self, column: str, slices: Container[str] | None) -> int:
        """How many prompts of these slices (of all when None) have no readable value of ``column``."""
        return sum(
            entry.count
            for entry in self.unreadable
            if entry.column == column and (slices is None or entry.slice in slices)
        )

    def values(self, column: str, slice_name: str | None) -> Floats | None:
        """Observations of one slice (of all slices together when None); None where there are none."""
        found = [
            entry.values
            for entry in self.columns
            if entry.column == column and slice_name in (None, entry.slice)
        ]
        return np.concatenate(found) if found else None


def from_samples(samples: KernelSamples, sha256: str, condition: str, split: str) -> Observations:
    """One observation per prompt of ``split`` (``all``: every prompt), the mean over its repeats.

    With two or more repeats the range of mean KL over them becomes the column ``determinism_window``.
    A column of a slice with numbers and others is kept with how many were none, or none that it can have.
    Raises KeyError for an unknown condition, ValueError for an unknown split.
    """
    if split not in (*SPLITS, ALL_SPLITS):
        raise ValueError(f"split must be one of {', '.join((*SPLITS, ALL_SPLITS))}, got {split!r}")
    splits = SPLITS if split == ALL_SPLITS else (split,)
    entries: list[ObservedColumn] = []
    unreadable: list[UnreadableValues] = []
    for name in samples.slices:
        rows = np.sort(np.concatenate([samples.rows(each, name) for each in splits]))
        columns = {column: samples.prompt_values(column, condition, rows) for column in samples.metric_names}
        columns["determinism_window"] = _windows(samples, condition, rows)
        for column, values in columns.items():
            _keep(entries, unreadable, (name, column), values)
    return Observations(
        sha256=sha256,
        condition=condition,
        split=split,
        columns=tuple(entries),
        unreadable=tuple(unreadable),
    )


def _keep(
    entries: list[ObservedColumn],
    unreadable: list[UnreadableValues],
    place: tuple[str, str],
    values: Floats,
) -> None:
    """Store the values of one slice and column; one without any number was not measured."""
    slice_name, column = place
    domain = domain_of(column)
    readable = (values >= domain.low - _BEYOND_RANGE) & (values <= domain.high + _BEYOND_RANGE)
    if np.isnan(values).all():
        return
    if readable.any():
        entries.append(ObservedColumn(slice=slice_name, column=column, values=values[readable]))
    if not readable.all():
        lost = int((~readable).sum())
        unreadable.append(UnreadableValues(slice=slice_name, column=column, count=lost, prompts=values.size))


def _windows(samples: KernelSamples, condition: str, rows: NDArray[np.int64]) -> Floats:
    column = "kl_mean@full_vocab"
    if samples.values.shape[2] < 2 or column not in samples.metric_names:
        return np.full(rows.size, np.nan)
    block = samples.values[samples.condition(condition), rows, :, samples.metric_names.index(column)]
    return np.asarray(block.max(axis=1) - block.min(axis=1))
