"""Measures and timelines of an episode are unchanged by a round trip through JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.measures import measure_episode, measures_of, measures_plain
from contracts.scoring.quality import healthy_quality
from contracts.scoring.timeline import timeline, timeline_of, timeline_plain, unknown_health
from tests.support.fleets.episodes import broken_record, quiet_record, step_fault


def records() -> list[EpisodeRecord]:
    """One record with an incident, one without."""
    return [replace(broken_record(60, 20), incident=step_fault(20.0, 60)), quiet_record(60)]


@pytest.mark.parametrize("record", records(), ids=["incident", "quiet"])
def test_measures_survive_json(record: EpisodeRecord) -> None:
    """Unknown values are null in JSON, and unknown again afterwards."""
    measures = measure_episode(record, healthy_quality(record))
    text = json.dumps(measures_plain(measures), allow_nan=False)
    assert repr(measures_of(json.loads(text))) == repr(measures)  # NaN is no NaN's equal


@pytest.mark.parametrize("record", records(), ids=["incident", "quiet"])
def test_timelines_survive_json(record: EpisodeRecord) -> None:
    """Every number of the lines, unknown ones included."""
    line = timeline(record, unknown_health(record), "p")
    back = timeline_of(json.loads(json.dumps(timeline_plain(line), allow_nan=False)))
    assert (back.policy, back.kernels) == (line.policy, line.kernels)
    for name in ("at_s", "weights", "health", "quality", "onset_at_s", "recovered_at_s"):
        np.testing.assert_array_equal(getattr(back, name), getattr(line, name))


@pytest.mark.parametrize(
    "change", [{"at_s": [1.0]}, {"weights": [1.0]}, {"quality": "none"}, {"kernels": ["a"]}, {"health": None}]
)
def test_invalid_timelines_are_refused(change: dict[str, object]) -> None:
    """Lines of unequal length, and values that are not numbers."""
    record = quiet_record(5)
    plain = timeline_plain(timeline(record, unknown_health(record), "p"))
    with pytest.raises((TypeError, ValueError)):
        timeline_of(plain | change)


def test_incomplete_measures_are_refused() -> None:
    """A field is missing."""
    with pytest.raises(ValueError, match="service"):
        measures_of({"scenario": "a"})
