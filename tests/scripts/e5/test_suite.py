"""Suites expand into complete scenarios, and every bad input is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.documents import Scenario, Suite
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from scripts.e5.configurations import parse_configuration, parse_configurations
from scripts.e5.run.experiment import Options, plan_run
from scripts.e5.suite import GROUPS, expand_suite, load_suite
from tests.support.fleets.e5_world import write_suite


def test_overrides_are_added_to_the_base(tmp_path: Path) -> None:
    """Each entry is the base with its own faults and changes, grouped by visibility."""
    suite, file = load_suite(write_suite(tmp_path))
    entries = expand_suite(suite, file)
    assert [(e.name, e.group) for e in entries] == [
        ("requantise", "silent_numeric"),
        ("crash", "visible"),
        ("surge", "control"),
    ]
    numeric = entries[0].scenario()
    assert numeric.metadata.name == "requantise"
    assert [fault.kind for fault in numeric.spec.faults] == ["requantise"]
    assert len(entries[2].scenario().spec.changes) == 1


def test_a_near_miss_is_a_group_of_its_own(tmp_path: Path) -> None:
    """A fault that the suite says the contract tolerates is reported apart from incidents and controls."""
    fault = {"name": "w8", "kind": "requantise", "target": {"kernel": "bf16"}, "onset_s": 47.0}
    row = {"name": "small", "near_miss": True, "faults": [fault | {"condition": "requantise-w8"}]}
    suite, file = load_suite(write_suite(tmp_path, 240.0, scenarios=[row], sweep_scenarios=["small"]))
    assert [entry.group for entry in expand_suite(suite, file)] == ["near_miss"]


def test_a_trace_replaces_the_arrivals(tmp_path: Path) -> None:
    """With a trace every scenario draws its arrivals from it, at the base's rate."""
    suite, file = load_suite(write_suite(tmp_path))
    workload = expand_suite(suite, file, tmp_path / "t.csv")[0].scenario().spec.workload
    assert (workload.arrivals, workload.trace_uri) == ("trace", str((tmp_path / "t.csv").resolve()))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"base": None}, "expected a uri or a base"),
        ({"sweep_scenarios": ["nowhere"]}, "nowhere"),
        ({"scenarios": [{"name": "a"}, {"name": "a"}]}, "a name of its own"),
        ({"policies": ["magic"]}, "expected one of"),
        ({"policies": ["hysteresis:speed=3"]}, "speed"),
        ({"base": "absent.yaml"}, "absent.yaml"),
    ],
)
def test_bad_suites_are_refused_before_anything_runs(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    """A suite that cannot run fails at once, naming what is wrong, and writes nothing."""
    path = write_suite(tmp_path, 240.0, **change)
    with pytest.raises(DocumentError, match=words):
        plan_run(Options(out=tmp_path / "out", suite=path))
    assert not (tmp_path / "out").exists()


def test_a_missing_suite_names_its_path(tmp_path: Path) -> None:
    """A path that does not exist is bad input, not a traceback."""
    with pytest.raises(DocumentError, match=r"gone\.yaml"):
        plan_run(Options(out=tmp_path / "out", suite=tmp_path / "gone.yaml"))


@pytest.mark.parametrize(
    "text", ["", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "a,b\n1,2\n"]
)
def test_a_malformed_trace_is_refused(tmp_path: Path, text: str) -> None:
    """An empty trace, a wrong header or an unreadable instant is bad input with the file's name."""
    trace = tmp_path / "trace.csv"
    trace.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError, match=r"trace\.csv"):
        plan_run(Options(out=tmp_path / "out", suite=write_suite(tmp_path), trace=trace))


def test_configurations_know_their_settings() -> None:
    """A configuration's text gives policy, settings and confidence; the baseline configuration is always
    there, once.
    """
    configuration = parse_configuration("hysteresis:dwell_s=60,step_s=10@0.99")
    assert (configuration.policy, configuration.alarm_confidence, configuration.setting) == (
        "hysteresis",
        0.99,
        ":dwell_s=60,step_s=10@0.99",
    )
    assert [a.name for a in parse_configurations(["threshold", "threshold"])] == ["fixed-bare", "threshold"]
    for bad in ("hysteresis@high", "hysteresis@0.2", "hysteresis:dwell_s"):
        with pytest.raises(DocumentError):
            parse_configuration(bad)


def test_tuned_stands_for_every_setting_that_tuning_chose() -> None:
    """In a list of configurations one word gives the tuned baselines of the suite of policies, in
    its place.
    """
    names = [configuration.name for configuration in parse_configurations(["fixed", "tuned", "threshold"])]
    assert [names[0], names[1], names[-1]] == ["fixed-bare", "fixed", "threshold"]
    suite, _ = load_suite(resolve_uri("package:contracts/library/suites/e5-policies.yaml", "tests"))
    assert set(names[2:-1]) == {
        configuration for configuration in suite.spec.policies if ":" in configuration
    } - {"informed:program=0"}


def test_the_shipped_suite_has_eight_faults_and_six_controls() -> None:
    """The experiment's promise: at least eight fault scenarios and every kind of ordinary change."""
    suite, file = load_suite(None)
    assert isinstance(load_as(Suite, file), Suite)
    entries = expand_suite(suite, file)
    assert sum(entry.group != "control" for entry in entries) >= 8
    changes = {c.kind for e in entries if e.group == "control" for c in e.scenario().spec.changes}
    assert {"rolling_restart", "scale_up", "scale_down", "cache_flush", "surge", "lost_scrapes"} <= changes
    plan_run(Options(out=Path("unused"), seeds=2))


def test_an_entry_may_have_a_base_and_a_rate_of_its_own(tmp_path: Path) -> None:
    """Its own base replaces the suite's, its rate the base's; no suite base is needed then."""
    row = {"name": "own", "base": "scenario.yaml", "rate_rps": 3.5, "control": True}
    suite, file = load_suite(write_suite(tmp_path, scenarios=[row], sweep_scenarios=["own"], base=None))
    (entry,) = expand_suite(suite, file)
    assert entry.scenario().spec.workload.rate_rps == 3.5


def test_the_stress_suite_asks_everything_with_and_without_a_fault() -> None:
    """Every scenario comes as a control and with three bits on the home build, otherwise equal."""
    suite, file = load_suite(resolve_uri("package:contracts/library/suites/e5-stress.yaml", "tests"))
    entries = {entry.name: entry for entry in expand_suite(suite, file)}
    controls = [name for name, entry in entries.items() if entry.group == "control"]
    assert len(controls) == 12
    for name in controls:
        calm, broken = entries[name].scenario().spec, entries[f"{name}-3-bits"].scenario().spec
        assert calm == broken.model_copy(update={"faults": ()})
        assert [fault.condition for fault in broken.faults] == ["requantise-w3"]
    assert entries["reproduction-slow-replica"].group == "visible"
    gaps = [entries[f"burst-{cv}"].scenario().spec.workload.gamma for cv in (2, 3)]
    assert [gap.gap_cv for gap in gaps if gap is not None] == [2.0, 3.0]
    plan_run(Options(out=Path("unused"), suite=file, seeds=1))


def test_the_shipped_suite_runs_its_own_policies_some_on_fewer_seeds() -> None:
    """By default the shipped route policy and both references run, on the first seeds alone; named policies
    run alone, on all seeds.
    """
    plan = plan_run(Options(out=Path("unused")))
    names = [configuration.name for configuration in plan.configurations]
    assert {"linear-program", "learned", "informed", "route-policy-chat"} <= set(names)
    assert set(plan.fewer) == {"linear-program", "informed", "route-policy-chat"}
    for job in plan.jobs:
        assert job.seeds == plan.seeds[: plan.fewer.get(job.configuration.name, len(plan.seeds))]
    asked = plan_run(Options(out=Path("unused"), policies=("informed",)))
    assert [configuration.name for configuration in asked.configurations] == ["fixed-bare", "informed"]
    assert not asked.fewer
    assert not plan_run(Options(out=Path("unused"), seeds=5)).fewer


def test_the_quick_suite_is_a_part_of_the_shipped_one() -> None:
    """Its scenarios are those of E5, word for word; every group is there, and the learned policy."""
    quick, file = load_suite(resolve_uri("package:contracts/library/suites/e5-quick.yaml", "tests"))
    whole, _ = load_suite(None)
    assert {row.name for row in quick.spec.scenarios} < {row.name for row in whole.spec.scenarios}
    assert all(row in whole.spec.scenarios for row in quick.spec.scenarios)
    assert (quick.spec.base, quick.spec.seed) == (whole.spec.base, whole.spec.seed)
    assert {entry.group for entry in expand_suite(quick, file)} == set(GROUPS)
    assert quick.spec.policies == ("fixed-bare", "hysteresis", "sequential", "learned")


def test_the_suite_on_whole_rows_has_the_silent_numeric_faults_of_the_shipped_one() -> None:
    """All of them, word for word, on the same fleet and seeds: only the contract differs."""
    rows, file = load_suite(resolve_uri("package:contracts/library/suites/e5-full-vocab.yaml", "tests"))
    whole, shipped = load_suite(None)
    numeric = [entry.name for entry in expand_suite(whole, shipped) if entry.group == "silent_numeric"]
    assert [row for row in whole.spec.scenarios if row.name in numeric] == list(rows.spec.scenarios)
    assert (rows.spec.seed, rows.spec.seeds) == (whole.spec.seed, whole.spec.seeds)
    mine, theirs = (
        load_as(Scenario, resolve_uri(suite.spec.base or "", place)).spec
        for suite, place in ((rows, file), (whole, shipped))
    )
    alike = {"contract": "", "description": ""}
    assert mine.model_copy(update=alike) == theirs.model_copy(update=alike)
    assert mine.contract != theirs.contract
