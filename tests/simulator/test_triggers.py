"""Faults that affect only some requests: what is served, what probes see, what is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contracts.errors import DocumentError
from contracts.scoring.episode import EpisodeRecord
from faults.catalogue import CATALOGUE, Channel
from simulator.fleet import run_episodes
from tests.support.fleets.simulated_fleets import FAULTS, Build, FixedDriver

LIVE_ONLY = sorted(name for name, kind in CATALOGUE.items() if kind.channel is Channel.LIVE_ONLY)


def triggered(**trigger: Any) -> dict[str, Any]:
    """A numeric fault under ``trigger``."""
    return FAULTS["requantise"] | {"trigger": trigger}


def played(build: Build, *faults: dict[str, Any]) -> tuple[EpisodeRecord, FixedDriver]:
    """An episode under one table, and its telemetry."""
    scenario = build(faults=list(faults))
    driver = FixedDriver(scenario)
    return run_episodes(scenario, driver, [5])[0], driver


def probed(driver: FixedDriver) -> np.ndarray[Any, Any]:
    """Probed values of the whole episode."""
    return np.stack([seen.probes.values for seen in driver.seen])


def test_a_trigger_that_always_holds_is_no_trigger(build: Build) -> None:
    """A batch of at least one is every batch: records equal those of the same fault without a trigger."""
    always, _ = played(build, triggered(min_batch_size=1))
    plain, _ = played(build, FAULTS["requantise"])
    assert always.excess_tv_tokens.tobytes() == plain.excess_tv_tokens.tobytes()
    assert always.violating.tobytes() == plain.violating.tobytes()


def test_a_trigger_that_never_holds_leaves_quality_and_probes(build: Build) -> None:
    """Longer outputs than any answer never occur: nothing that clients get or probes see changes."""
    never, probes = played(build, triggered(min_generated_tokens=30_000))
    clean, clean_probes = played(build)
    assert never.excess_tv_tokens.tobytes() == clean.excess_tv_tokens.tobytes()
    assert probed(probes).tobytes() == probed(clean_probes).tobytes()


def test_later_tokens_cost_quality_behind_healthy_probes(build: Build) -> None:
    """Probes see nothing, clients lose less than under the untriggered fault, but not nothing."""
    late, probes = played(build, triggered(min_generated_tokens=20))
    clean, clean_probes = played(build)
    plain, _ = played(build, FAULTS["requantise"])
    assert clean.excess_tv_tokens.sum() < late.excess_tv_tokens.sum() < plain.excess_tv_tokens.sum()
    assert probed(probes).tobytes() == probed(clean_probes).tobytes()


def test_only_one_slice_is_affected(build: Build) -> None:
    """Quality, truth and probes of the other slices equal those of the clean episode."""
    clean, clean_probes = played(build)
    for place, name in enumerate(clean.slices):
        record, probes = played(build, triggered(slice=name))
        others = [index for index in range(len(clean.slices)) if index != place]
        assert record.excess_tv_tokens[:, others].tobytes() == clean.excess_tv_tokens[:, others].tobytes()
        assert np.array_equal(record.violating[:, :, others], clean.violating[:, :, others])
        of_others = np.stack([seen.probes.slice for seen in probes.seen]) != place
        assert np.array_equal(probed(probes)[of_others], probed(clean_probes)[of_others], equal_nan=True)
        assert not np.array_equal(probed(probes), probed(clean_probes), equal_nan=True)


@pytest.mark.parametrize(
    ("trigger", "named"),
    [
        ({"prefix_hit": True}, "prefix_hit"),
        ({"after_cancel": True}, "after_cancel"),
        ({"after_structured_output": True, "slice": "code"}, "after_structured_output"),
        ({"prompt_residue": {"block_tokens": 16, "lowest": 0, "highest": 3}}, "prompt_residue"),
    ],
)
def test_triggers_unknown_to_the_simulator_are_refused_by_name(
    build: Build, trigger: dict[str, Any], named: str
) -> None:
    """The error names the condition and the conditions that can be simulated."""
    with pytest.raises(DocumentError, match=rf"trigger\.{named}.*min_generated_tokens"):
        build(faults=[triggered(**trigger)])


def test_triggers_of_other_faults_are_refused(build: Build) -> None:
    """A slow step under a condition is not modelled, and the error says so."""
    with pytest.raises(DocumentError, match="a fault of numbers"):
        build(faults=[FAULTS["slow"] | {"trigger": {"min_batch_size": 4}}])


@pytest.mark.parametrize("kind", LIVE_ONLY)
def test_kinds_that_only_live_servers_show_are_refused(build: Build, kind: str) -> None:
    """A scenario with a fault that the simulator does not model is refused."""
    with pytest.raises(DocumentError, match="live servers"):
        build(faults=[{"name": "f", "kind": kind, "onset_s": 1.0}])
