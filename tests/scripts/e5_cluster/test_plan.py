"""Refusals of E5 on a cluster before anything is changed, and the specs that it puts in force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from k8s.operator.objects import Resources
from policies.supervised import meta_sha256
from scripts.e5_cluster.plan import AT_REST, ClusterOptions, ClusterSuite, plan_cluster, spec_of
from tests.support.cluster.e5_clusters import drill_file
from tests.support.cluster.e5_objects import resources
from tests.support.documents.own_meta import write_own_meta
from tests.support.paths import ROOT


def planned(folder: Path, seen: Resources | None = None, **changes: Any) -> ClusterSuite:
    """The sample's pool under two policies, with ``changes`` of the options."""
    options: dict[str, Any] = {
        "out": folder / "out",
        "namespace": "chat",
        "route_policy": "chat",
        "policies": ("fixed", "sequential"),
        "seeds": 2,
        "hold_s": 80.0,
    }
    drills = changes.pop("drills", None) or (str(drill_file(folder)),)
    return plan_cluster(ClusterOptions(**options | changes, drills=drills), seen or resources())


def test_seeds_pair_policies_and_faults_last_alike(tmp_path: Path) -> None:
    """Every policy gets every drill with every seed; the guard stays, as a cluster needs one."""
    suite = planned(tmp_path)
    told = [(one.configuration.name, one.seed) for one in suite.episodes]
    assert told == [("fixed", 1), ("sequential", 1), ("fixed", 2), ("sequential", 2)]
    assert suite.entries[0].plan.undo_at_s == 4.0 + 80.0
    assert suite.entries[0].drill.spec.abort_when
    assert (suite.layout.kernels, suite.layout.slices) == (("fp8", "bf16"), ("prose", "numbers"))
    assert suite.homes == {"prose": "fp8", "numbers": "bf16"}


def test_drills_have_names_of_their_own(tmp_path: Path) -> None:
    """No two episodes share a name, servers accept the names, and the seed is the load's."""
    suite = planned(tmp_path)
    drills = [suite.drill(one) for one in suite.episodes]
    names = [one["metadata"]["name"] for one in drills]
    assert len(set(names)) == len(names)
    assert all(name.startswith(f"e5-{suite.key}-errors-") and name.islower() for name in names)
    assert [one["spec"]["seed"] for one in drills] == [1, 1, 2, 2]
    assert planned(tmp_path, hold_s=90.0).key != suite.key


def test_a_configuration_changes_the_driving_policy_and_nothing_else() -> None:
    """Freeze and suspension end; an artefact belongs to its policy; the shipped artefact is the default."""
    before = resources().policies["chat"]["spec"]
    held = before | {"suspend": True, "freeze": {"until": "x"}, "mode": "observe"}
    changed = spec_of(held, "sequential")
    assert changed == before | {"policy": "sequential", "mode": "enforce"}
    own = {"uri": "package:mine.yaml", "sha256": "0" * 64}
    assert spec_of(before | {"policy": "learned", "artifact": own}, "learned")["artifact"] == own
    assert "artifact" not in spec_of(before | {"policy": "learned", "artifact": own}, "fixed")
    assert spec_of(before, "learned")["artifact"]["uri"].startswith("package:")


def test_the_named_meta_contract_applies_to_every_acting_policy(tmp_path: Path) -> None:
    """It is pinned in the RoutePolicy of each configuration; at rest the policy's own stays."""
    meta = str(write_own_meta(tmp_path))
    suite, bare = planned(tmp_path, meta=meta), planned(tmp_path)
    own = {"meta_contract": meta, "meta_contract_sha256": meta_sha256(meta)}
    for name in ("fixed", "sequential"):
        assert suite.specs[name] == bare.specs[name] | own
    assert suite.specs[AT_REST] == bare.specs[AT_REST]
    assert (suite.meta_sha256, bare.meta_sha256) == (own["meta_contract_sha256"], None)
    assert {one.configuration.meta for one in suite.episodes} == {meta}


def test_the_policy_at_rest_has_another_name_than_every_acting_policy(tmp_path: Path) -> None:
    """So the operator starts each without memory: it keeps state for an unchanged policy only."""
    suite = planned(tmp_path, policies=())
    assert [one.name for one in suite.configurations] == ["fixed", "breaker", "hysteresis", "sequential"]
    assert AT_REST not in {one.name for one in suite.configurations}
    assert suite.specs[AT_REST]["policy"] == AT_REST


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"route_policy": "other"}, "there are: chat"),
        ({"route_policy": ""}, "there are: chat"),
        ({"drills": ("three-bits",)}, "pool live-pool-half"),
        ({"drills": ("absent.yaml",)}, "absent.yaml"),
        ({"policies": ("learned",)}, "at most 8 kernels and exactly 5 slices"),
        ({"policies": ("informed",)}, "informed"),
        ({"meta": "own-meta.yaml"}, "that the operator has too"),
        ({"meta": "/nowhere/own-meta.yaml"}, "/nowhere/own-meta.yaml"),
        ({"meta": "package:contracts/library/serving-pool.yaml"}, "MetaContract"),
        ({"policies": ("hysteresis:dwell_s=9",)}, "dwell_s"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """A policy, a drill or a configuration that does not fit, each with the expected value."""
    with pytest.raises(DocumentError, match=message):
        planned(tmp_path, **changes)


def test_the_suite_of_the_sample_can_run(tmp_path: Path) -> None:
    """One silent fault and three visible ones, all on a server that is labelled for drills."""
    folder = ROOT / "k8s" / "examples" / "e5" / "suite"
    files = tuple(str(folder / f"{name}.yaml") for name in ("silent", "crash", "hang", "slow"))
    suite = planned(tmp_path, drills=files)
    assert [one.group for one in suite.entries] == ["silent_numeric", "visible", "visible", "visible"]
    assert {one.plan.undo_at_s for one in suite.entries} == {100.0}
    assert {name for one in suite.entries for strike in one.plan.strikes for name in strike.replicas} == {
        "fp8-0"
    }


def test_a_run_without_drills_is_refused(tmp_path: Path) -> None:
    """The shipped drills are for another pool, so drills must be named."""
    options = ClusterOptions(out=tmp_path, namespace="chat", route_policy="chat", drills=())
    with pytest.raises(DocumentError, match="FaultDrills of pool chat-pool"):
        plan_cluster(options, resources())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"abort_when": []}, "a guard"),
        ({"pool": "elsewhere"}, "pool elsewhere"),
        ({"blast_radius": {"replicas_at_most": 0}}, "replicas_at_most"),
    ],
)
def test_a_drill_that_cannot_run_here_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """Before the pool is touched."""
    with pytest.raises(DocumentError, match=message):
        planned(tmp_path, drills=(str(drill_file(tmp_path, **changes)),))


def test_a_policy_whose_pool_is_missing_is_refused(tmp_path: Path) -> None:
    """A policy that the operator would not put in force gets no drills."""
    seen = resources()
    with pytest.raises(DocumentError, match="chat-pool"):
        planned(tmp_path, Resources(contracts=seen.contracts, pools={}, policies=seen.policies))
