"""Harm by hand: paired differences to a policy that never moves, limits, and the worst scenario."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.scoring.measures import EpisodeMeasures, measure_episode
from contracts.scoring.quality import healthy_quality
from scripts.e5.report.tables import harm_table
from scripts.e5.scores.harm import harm
from scripts.e5.scores.results import Episodes
from tests.support.fleets.episodes import quiet_record

SCENARIOS = ("calm", "crowd")


def episode(useful: float, exposed: int = 0) -> EpisodeMeasures:
    """An episode with ``useful`` of 200 tokens per row and slice, and ``exposed`` answers in all of 4000."""
    record = quiet_record()
    record.useful_tokens[:] = useful
    record.exposed[:exposed, 0] = 1
    return measure_episode(record, healthy_quality(record))


def episodes(policies: tuple[str, ...]) -> Episodes:
    """Two seeds; all but ``fixed-bare`` lose 10 and 12 points in ``crowd`` and gain one in ``calm``."""
    cells = {}
    for seed in (0, 1):
        for policy in policies:
            still = policy == "fixed-bare"
            cells[policy, "calm", seed] = episode(196.0 if still else 198.0)
            cells[policy, "crowd", seed] = episode(180.0 if still else 160.0 - 4.0 * seed, 0 if still else 20)
    return Episodes(
        policies=policies,
        sweep=(),
        scenarios=SCENARIOS,
        groups={"control": SCENARIOS},
        slices=("code", "prose"),
        seeds=(0, 1),
        cells=cells,
    )


def test_harm_is_the_paired_difference_in_points() -> None:
    """Means are those of the differences, limits are on the harmful side, and the worst is named."""
    found = harm(episodes(("fixed-bare", "mover")))
    assert found["note"] == ""
    assert set(found["policies"]) == {"mover"}
    row = found["policies"]["mover"]
    crowd = row["scenarios"]["crowd"]
    assert crowd["useful_ratio"]["mean"] == pytest.approx(-11.0)
    assert crowd["useful_ratio"]["limit"] < -11.0
    assert crowd["failed_or_exposed_ratio"] == {"mean": 0.5, "limit": 0.5, "n": 2}
    assert row["scenarios"]["calm"]["useful_ratio"]["mean"] == pytest.approx(1.0)
    assert row["worst"]["useful_ratio"]["scenario"] == "crowd"


def test_without_fixed_bare_the_section_gives_the_reason() -> None:
    """Without ``fixed-bare`` no harm is measured: a note replaces the numbers."""
    found = harm(episodes(("mover",)))
    assert found["policies"] == {}
    assert "fixed-bare is not among" in found["note"]


def test_the_table_begins_with_the_worst_scenario() -> None:
    """Rows are sorted from harm to none; only worse values have a tone."""
    found: dict[str, Any] = harm(episodes(("fixed-bare", "mover")))
    table = harm_table(found, "useful_ratio", -1.0)
    assert [row[0].text for row in table.rows] == ["crowd", "calm"]
    assert [row[1].tone for row in table.rows] == ["bad", ""]
    assert table.rows[0][1].note.startswith("at least -")
