"""E5 on real servers, without them: the episodes, the counted results, and resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.errors import DocumentError
from contracts.loading.shipped import LIVE_ARTEFACT
from contracts.scoring.episode import EpisodeRecord
from faults.drill.outcome import DrillVerdict, judge
from faults.drill.runner import Say, run_drill
from live.drill.between import home_plan, keep_decisions
from live.errors import LiveError
from live.fleet.state import FleetFolder
from policies.route import CoverageGaps
from policies.supervised import meta_sha256
from scripts.cli.main import app
from scripts.drill import local
from scripts.drill.local import DrilledPolicy, LocalDrill, LocalRun, refuse_unfit, unfit_policies
from scripts.e5_drills.plan import DrillEpisode
from scripts.e5_drills.results import EpisodeResult, KeptEpisodes, run_episodes
from scripts.e5_drills.summary import HeaderFacts, summary
from scripts.e5_local import episodes
from scripts.e5_local.episodes import driver_of
from scripts.e5_local.experiment import drop_unfit_policies
from scripts.e5_local.plan import LocalOptions, plan_local
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.documents.own_meta import write_own_meta
from tests.support.fleets.drill_runs import NotedLedger, ScriptedTarget
from tests.support.fleets.episodes import move_at, quiet_record
from tests.support.fleets.local_suites import HOLD_S, SPEC, planned, played
from tests.support.servers.live_fleets import POOL


def test_every_drill_gets_the_same_window_and_its_group(tmp_path: Path) -> None:
    """The fault lasts as long as requested, whatever the document says, unguarded; seeds pair policies."""
    plan = planned(tmp_path)
    entry = plan.entries[0]
    assert (entry.group, entry.plan.undo_at_s) == ("silent_numeric", 20.0 + HOLD_S)
    assert entry.plan.spec.abort_when == ()
    told = [(one.configuration.name, one.seed) for one in plan.episodes]
    assert told == [("fixed", 1), ("sequential", 1), ("fixed", 2), ("sequential", 2)]


def test_the_shipped_suite_can_run(tmp_path: Path) -> None:
    """Five drills of one pool; the healthy one strikes no replica, and lasts as long as the first."""
    options = LocalOptions(out=tmp_path, folder=FleetFolder(path=tmp_path / "fleet"))
    plan = plan_local(options)
    assert [one.name for one in plan.entries] == ["silent", "crash", "hang", "slow", "healthy"]
    assert [one.group for one in plan.entries] == [
        "silent_numeric",
        "visible",
        "visible",
        "visible",
        "control",
    ]
    assert len(plan.episodes) == 25
    assert plan.entries[-1].plan.strikes == ()
    assert len({one.plan.total_s for one in plan.entries}) == 1


@pytest.mark.parametrize("policy", ["magic", "informed", "hysteresis:dwell_s=9", "sequential@0.9"])
def test_a_policy_that_no_live_fleet_takes_is_refused(tmp_path: Path, policy: str) -> None:
    """Unknown policies, the policy that is given the faults, and settings, which a RoutePolicy lacks."""
    options = LocalOptions(out=tmp_path, folder=FleetFolder(path=tmp_path / "fleet"), policies=(policy,))
    with pytest.raises(DocumentError, match=policy.partition(":")[0].partition("@")[0]):
        plan_local(options)


def test_the_shipped_network_drives_the_fleet_of_drills_under_its_own_certificate(tmp_path: Path) -> None:
    """``learned`` alone means the file that reads the fleet's slices; no fallback would drive instead."""
    options = LocalOptions(out=tmp_path, folder=FleetFolder(path=tmp_path / "fleet"), drills=("silent",))
    plan = plan_local(replace(options, policies=("sequential", "learned")))
    drivers = [driver_of(one) for one in plan.episodes]
    assert [one.name for one in drivers] == ["sequential", "learned"]
    assert drivers[1].policy == f"learned:artefact={LIVE_ARTEFACT}"
    assert unfit_policies(plan.drills.values(), drivers) == {}
    assert (
        drop_unfit_policies(plan_local(options), options).configurations == plan_local(options).configurations
    )


def test_a_trained_policy_of_one_s_own_is_named_by_its_artefact(tmp_path: Path) -> None:
    """Its file's name appears in results; other settings of it are refused, as for every policy."""
    options = LocalOptions(out=tmp_path, folder=FleetFolder(path=tmp_path / "fleet"), drills=("silent",))
    own = f"learned:artefact={LIVE_ARTEFACT}"
    (episode,) = plan_local(replace(options, policies=(own,))).episodes
    assert episode.configuration.name == "learned:artefact=routing.yaml"
    assert driver_of(episode).policy == own
    for bad in ("learned:onnx=a.onnx", f"{own},budget=3", f"{own}@0.99"):
        with pytest.raises(DocumentError, match="a policy by its name"):
            plan_local(replace(options, policies=(bad,)))


def test_every_policy_but_the_baseline_is_kept_by_the_meta_contract_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Header and drills pin it, every driving policy gets it, and episodes under another one are run anew."""
    meta, driven = str(write_own_meta(tmp_path)), list[DrilledPolicy]()
    plan = planned(tmp_path, seeds=1, policies=("fixed-bare", "sequential"), meta=meta)
    assert [one.configuration.meta for one in plan.episodes] == ["", meta]
    content, _ = summary(plan, [played(one) for one in plan.episodes], HeaderFacts(command="a test"))
    assert content["header"]["meta_contract_sha256"] == meta_sha256(meta)

    def noted(drill: LocalDrill, folder: FleetFolder, driver: DrilledPolicy, say: Say) -> LocalRun:
        driven.append(driver)
        raise LiveError("seen")

    monkeypatch.setattr(episodes, "run_on", noted)
    monkeypatch.setattr(episodes, "await_clean_fleet", lambda *_: None)
    fleet = episodes.EpisodeFleet(FleetFolder(path=tmp_path / "fleet"), tmp_path / "out", plan.drills)
    for one in plan.episodes:
        with pytest.raises(LiveError, match="seen"):
            fleet.run(one)
    assert [(one.policy, one.meta) for one in driven] == [("none", ""), ("sequential", meta)]
    kept = KeptEpisodes(tmp_path / "out")
    kept.save(played(plan.episodes[1]))
    (_, bare) = planned(tmp_path, seeds=1, policies=("fixed-bare", "sequential")).episodes
    assert kept.load(plan.episodes[1]) is not None
    assert kept.load(bare) is None


def test_results_have_the_form_of_the_simulators(tmp_path: Path) -> None:
    """Same tables and the same page; the policy that left after ten seconds recovered, the other did not."""
    plan = planned(tmp_path)
    results = [played(one) for one in plan.episodes]
    content, page = summary(plan, results, HeaderFacts(command="selvage e5 --target local"))
    groups = content["groups"]["silent_numeric"]
    assert groups["sequential"]["mttr_s"]["mean"] == 10.0
    assert groups["fixed"]["unrecovered"]["mean"] == 1.0
    assert groups["sequential"]["mttr_s"]["n"] == 2
    assert content["format"] == 4
    wanted = {"results", "groups", "scenarios", "slices", "differences", "harm", "front", "budgets"}
    assert wanted < set(content)
    assert content["header"]["served_by"] == ["vLLM 0"]
    assert "Real vLLM servers behind Envoy" in page
    assert "Simulated fleet" not in page


def test_what_was_no_experiment_does_not_count_and_says_why(tmp_path: Path) -> None:
    """An unproved fault leaves a hole in the table and a line in the notes."""
    plan = planned(tmp_path, seeds=1)
    results = [played(one, shows=one.configuration.name == "fixed") for one in plan.episodes]
    content, _ = summary(plan, results, HeaderFacts(command="selvage e5 --target local"))
    assert content["groups"]["silent_numeric"]["sequential"]["mttr_s"]["mean"] is None
    assert any("does not count: bad: not shown" in line for line in content["header"]["measured_by"])
    assert [one["counts"] for one in content["header"]["episodes"]] == [True, False]


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Finished episodes are read back unchanged; an invalid one runs again."""
    plan, kept = planned(tmp_path, seeds=1), KeptEpisodes(tmp_path / "out")
    asked: list[str] = []

    def run(episode: DrillEpisode) -> EpisodeResult:
        asked.append(episode.configuration.name)
        return played(episode, shows=episode.configuration.name == "fixed" or len(asked) > 2)

    first = run_episodes(plan.episodes, run, kept, lambda _: None)
    again = run_episodes(plan.episodes, run, KeptEpisodes(tmp_path / "out"), lambda _: None)
    assert asked == ["fixed", "sequential", "sequential"]
    assert repr(again[0].measures) == repr(first[0].measures)  # NaN does not equal NaN
    assert again[0].line is not None
    assert first[0].line is not None
    assert again[0].line.weights.tolist() == first[0].line.weights.tolist()
    assert again[1].measures is not None


def test_a_healthy_drill_passes_without_moves(tmp_path: Path) -> None:
    """Without a fault there is one phase; a move in it is a false switch, and fails."""
    options = LocalOptions(out=tmp_path, folder=FleetFolder(path=tmp_path / "fleet"), drills=("healthy",))
    plan = plan_local(options).entries[0].plan
    calm = quiet_record(int(plan.total_s))

    def verdict(record: EpisodeRecord) -> DrillVerdict:
        target = ScriptedTarget(episode=record)
        run = run_drill(plan, target, NotedLedger(target.told), lambda _: None)
        assert target.told == ["begin", "end"]
        return judge(plan, run).verdict

    assert verdict(calm) is DrillVerdict.PASSED
    assert verdict(move_at(quiet_record(int(plan.total_s)), 40)) is DrillVerdict.FAILED


def test_a_fleet_begins_an_episode_at_home_and_remembers_nothing(tmp_path: Path) -> None:
    """Decisions are kept with their episode, the controller's state is deleted, answers are kept."""
    fleet = planned(tmp_path).drills["bits"].fleet
    assert home_plan(fleet).table[0].tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    control, place = tmp_path / "control", tmp_path / "episode"
    (control / "reference").mkdir(parents=True)
    for name in ("decisions-000001.jsonl", "controller-state-1.json", "reference/answers"):
        (control / name).write_text(name)
    keep_decisions(control, place)
    assert [one.name for one in place.iterdir()] == ["decisions-000001.jsonl"]
    assert [one.name for one in control.iterdir()] == ["reference"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--drills", "silent"], "--drills"),
        (["--target", "cluster"], "--target"),
        (["--target", "local", "--suite", "mine.yaml"], "--suite"),
        (["--target", "local", "--hold", "10"], "--hold"),
        (["--target", "local", "--drills", "absent"], "absent"),
    ],
)
def test_options_of_the_other_target_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    """An option without effect is an error, and no folder is left behind."""
    done = CliRunner().invoke(app, ["e5", *words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert message in done.output
    assert not (tmp_path / "out").exists()


def test_what_cannot_run_is_refused_whole_before_a_server_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network of five slices on a fleet of two, a load of a missing slice, no Envoy: all reported at
    once, exit code 2, nothing left behind.
    """
    monkeypatch.setenv("SELVAGE_ENVOY", str(tmp_path / "no-envoy"))
    (tmp_path / "pool.yaml").write_text(POOL)
    load = {"rate_rps": 4.0, "slice_mix": [{"slice": "poetry", "share": 1.0}]}
    file = write_yaml(tmp_path / "drill.yaml", envelope("FaultDrill", "bits", {**SPEC, "load": load}))
    words = ["--drills", str(file), "--policies", "sequential,learned", "--folder", str(tmp_path / "fleet")]
    done = CliRunner().invoke(app, ["e5", "--target", "local", *words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "poetry" in done.output
    assert "Envoy" in done.output
    assert "learned" in done.output or "slices in the fleet" in done.output
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "fleet").exists()


def test_a_policy_that_a_fallback_would_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result under the name of a policy that did not drive is invalid; a covered policy is accepted."""
    monkeypatch.setattr(local, "_missing_parts", lambda: ())
    plan = planned(tmp_path, seeds=1)
    drills, drivers = list(plan.drills.values()), [driver_of(one) for one in plan.episodes]
    refuse_unfit(drills, FleetFolder(path=tmp_path / "fleet"), drivers)
    monkeypatch.setattr(local, "coverage_gaps", lambda *_: CoverageGaps(policy=("prompt tokens: 9 here",)))
    with pytest.raises(DocumentError, match=r"sequential.*a fallback drives.*prompt tokens: 9 here"):
        refuse_unfit(drills, FleetFolder(path=tmp_path / "fleet"), drivers)


def test_of_the_suite_s_own_policies_those_that_fit_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network of five slices on a fleet of two is left out with a message, unless the user named it."""
    suite = planned(tmp_path, policies=("fixed", "sequential", "learned"), seeds=1)
    options = LocalOptions(out=tmp_path / "out", folder=FleetFolder(path=tmp_path / "fleet"))
    fits = drop_unfit_policies(suite, options)
    assert [one.name for one in fits.configurations] == ["fixed", "sequential"]
    assert {one.configuration.name for one in fits.episodes} == {"fixed", "sequential"}
    assert "without learned" in capsys.readouterr().err
    assert drop_unfit_policies(suite, replace(options, policies=("learned",))) is suite
