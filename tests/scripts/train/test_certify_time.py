"""Expected duration and progress of ``selvage policy certify``."""

from __future__ import annotations

from itertools import count
from math import ceil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.cli.main import app
from scripts.e5.run.trial import TRIAL_S
from scripts.train import certify as certify_module
from scripts.train import certify_time
from scripts.train.certify import plan_certification, run_suites
from scripts.train.certify_time import CertificationTime
from scripts.train.decision_time import PASSES, TIMED
from tests.scripts.cli.test_policy import request, write_meta

pytestmark = pytest.mark.slow


def test_time_is_told_from_trials_of_every_kind_of_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock on which every trial takes 3 s: each kind's own cost, over the processes, and decisions
    one after the other; a short run is not worth trials.
    """
    plan = plan_certification(request("hysteresis", write_meta(tmp_path)))
    parts, timed = certify_module._parts(plan), certify_module._timed(plan)
    episodes = len(plan.incidents.entries) * len(plan.incidents.seeds)
    assert CertificationTime.measured(parts, timed, 1, episodes=episodes).expected_s == 0.0
    monkeypatch.setattr(certify_time, "WORTH", 0.0)
    ticks = count(0, 3)
    found = CertificationTime.measured(parts, timed, 2, episodes=episodes, clock=lambda: float(next(ticks)))
    assert {kind[:2] for kind in found.costs} == {
        ("quiet", "hysteresis"),
        ("incidents", "hysteresis"),
        ("incidents", ""),
    }
    in_parts = sum(3.0 * part.fleet_s / (TRIAL_S * len(part.seeds)) for part in parts)
    episode_s = timed.fleet_s / len(timed.seeds)
    decisions = 3.0 * PASSES * episode_s * min(episodes, ceil(TIMED / episode_s)) / TRIAL_S
    assert found.expected_s == pytest.approx(in_parts / 2 + decisions)


def test_the_share_done_leaves_room_for_the_timing_of_decisions(tmp_path: Path) -> None:
    """Shares grow from part to part, and the last part is not the end."""
    plan = plan_certification(request("hysteresis", write_meta(tmp_path)))
    shares: list[float] = []
    expected: list[float] = []
    run_suites(plan, shares.append, expect=expected.append)
    assert expected == [0.0]
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < shares[-1] < 1.0


def test_the_command_says_how_long_it_takes_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stderr, in minutes or seconds."""
    monkeypatch.setattr(certify_time, "WORTH", 0.0)
    words = ["policy", "certify", "hysteresis", "--meta", str(write_meta(tmp_path))]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "this will take about" in done.stderr
