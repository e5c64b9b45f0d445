"""Plots and tables of the report: reproducible, self-contained, with unknown values marked."""

from __future__ import annotations

import math

import numpy as np

from contracts.scoring.timeline import timeline, trailing_quality
from scripts.e5.report.plots import INK, FrontPoint, front_svg, timeline_svg
from scripts.e5.report.sections import at_rest_section
from scripts.e5.report.tables import difference_table, number, policy_table
from tests.support.fleets.episodes import broken_record, move_at


def leaf(
    mean: float | None, low: float | None = None, high: float | None = None
) -> dict[str, float | int | None]:
    """A result of twenty seeds."""
    return {"mean": mean, "ci_low": low, "ci_high": high, "n": 20}


def test_a_timeline_shows_weights_health_and_quality_of_the_incident() -> None:
    """Weights sum to 1, quality falls with the fault and rises with the move, recovery is marked."""
    record = move_at(broken_record(), 70)
    record.excess_tv_tokens[50:70] = 100.0
    line = timeline(record, np.zeros((200, 2, 2)), "p")
    assert (line.onset_at_s, line.recovered_at_s) == (50.0, 70.0)
    np.testing.assert_allclose(line.weights.sum(axis=1), 1.0)
    assert line.quality[40] == 0.99
    assert line.quality[65] == 0.5
    assert line.quality[100] == 0.99


def test_quality_is_not_drawn_where_nothing_ended() -> None:
    """Rows without a finished request in the last ten seconds have no quality, not a perfect one."""
    record = broken_record()
    record.answered_tokens[20:40] = 0.0
    record.excess_tv_tokens[20:40] = 0.0
    values = trailing_quality(record)
    assert np.isnan(values[29:40]).all()
    assert np.isfinite(values[:29]).all()


def test_plots_are_reproducible_and_take_their_ink_from_the_page() -> None:
    """The same input gives the same SVG, without the sentinel colour, a date or a fixed size."""
    line = timeline(move_at(broken_record(), 70), np.zeros((200, 2, 2)), "p")
    point = FrontPoint(
        policy="p", setting="@0.9", false_switches=(0.0, 1.0, 5.0), mttr_s=(1.0, 2.0, 3.0), on_front=True
    )
    for draw in (lambda: timeline_svg(line, "t"), lambda: front_svg([point], ["p"])):
        svg = draw()
        assert svg == draw()
        assert "currentColor" in svg
        assert INK not in svg
        assert "<dc:date>" not in svg
        assert ' width="' not in svg[: svg.index(">")]


def test_a_measure_that_does_not_apply_is_a_dash() -> None:
    """Without an incident there is no MTTR: the cell shows a dash instead of a zero."""
    table = policy_table({"p": {"mttr_s": leaf(None)}}, ["p"], ["mttr_s"])
    assert (table.rows[0][1].text, table.rows[0][1].note) == ("–", "not applicable")


def test_only_differences_beyond_their_interval_have_a_tone() -> None:
    """Fewer seconds to recovery are good, more are bad, and an interval with 0 in it is neither."""
    deltas = {
        name: {"fixed": {"mttr_s": value}}
        for name, value in {
            "a": leaf(-5.0, -6.0, -4.0),
            "b": leaf(5.0, 4.0, 6.0),
            "c": leaf(-5.0, -11.0, 1.0),
        }.items()
    }
    tones = [row[1].tone for row in difference_table(deltas, ["a", "b", "c"], "fixed").rows]
    assert tones == ["good", "bad", ""]


def test_numbers_are_for_people() -> None:
    """Shares in percent, no negative zero, thousands grouped, unknown as a dash."""
    shown = [number(0.98765, "ratio"), number(-1e-9, "ratio"), number(12345.6, "s"), number(None, "s")]
    assert shown == ["98.77 %", "0.00 %", "12,346", "–"]
    assert math.isclose(float(number(3.14159, "s")), 3.1)


def test_what_is_broken_at_rest_stands_with_clause_and_numbers() -> None:
    """One row for each home kernel, slice and clause, and the consequence for every number below."""
    row = {"kernel": "fast", "slice": "sql", "clause_id": "N-kl", "hard": True, "value": 1.05e-4}
    row |= {"limit": 1e-4, "unit": "nats", "scenarios": ["a", "b"]}
    section = at_rest_section([row])
    cells = [cell.text for cell in section.tables[0].rows[0]]
    assert cells == ["fast", "sql", "N-kl (hard)", "0.000105", "0.0001", "nats", "2"]
    assert "MTTR says nothing" in section.text[0]


def test_every_header_has_a_unit() -> None:
    """Shares are percent, counts per slice-month, times seconds."""
    names = ("quality_preservation", "mttr_s", "false_switches_per_slice_month", "exposed_total")
    heads = policy_table({}, [], names).heads[1:]
    assert heads == (
        "quality preserved, %",
        "MTTR, s",
        "false switches per slice-month",
        "exposures from onset, answers",
    )
