"""Resources that pass the schema and make no sense: conditions say so, the last good ones stay in force."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.loading.files import sha256_of
from tests.support.cluster.cluster_worlds import Bench
from tests.support.paths import ROOT

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

Spec = dict[str, Any]
POLICIES = ROOT / "contracts" / "library" / "policies"

#: Kind, name and change of a resource; reason of ResolvedRefs then, and what its message says to do.
BAD: dict[str, tuple[str, str, Spec, str, str]] = {
    "unknown pool": (
        "RoutePolicy",
        "chat",
        {"pool": "nowhere"},
        "RefNotFound",
        "no KernelPool nowhere in this namespace (there are: chat-pool); apply it",
    ),
    "unknown contract": (
        "RoutePolicy",
        "chat",
        {"contract": "nowhere"},
        "RefNotFound",
        "no KernelContract nowhere in this namespace (there are: chat-contract); apply it",
    ),
    "other slices": (
        "KernelPool",
        "chat-pool",
        {"home": [{"slice": "prose", "kernel": "fp8"}]},
        "SlicesDiffer",
        "its spec.home names each slice of KernelContract chat-contract once",
    ),
    "unknown policy": ("RoutePolicy", "chat", {"policy": "nobody"}, "DoesNotFit", "e.g. hysteresis"),
    "hash of the meta-contract differs": (
        "RoutePolicy",
        "chat",
        {"meta_contract_sha256": "0" * 64},
        "DoesNotFit",
        "then pin what it is now",
    ),
    "unknown kernel is pinned": (
        "RoutePolicy",
        "chat",
        {
            "freeze": {
                "until": "2030-01-01T00:00:00Z",
                "reason": "night",
                "table": [{"slice": "prose", "weights": [{"kernel": "int4", "weight": 1.0}]}],
            }
        },
        "UnknownKernel",
        "name its slices and serving kernels",
    ),
}


def said(bench: Bench) -> str:
    """Message of the policy's condition ResolvedRefs."""
    conditions = bench.read("RoutePolicy", "chat")["status"]["conditions"]
    return next(str(one["message"]) for one in conditions if one["type"] == "ResolvedRefs")


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_input_is_reported_and_the_last_good_configuration_stays(bench: Bench, name: str) -> None:
    """A condition says what is wrong and what to do, and the last good configuration still acts on faults."""
    kind, about, spec, reason, to_do = BAD[name]
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    bench.change(kind, about, spec)
    operator.nudge()
    bench.turns(operator, 2)
    found = bench.conditions()
    assert found["ResolvedRefs"] == ("False", reason)
    assert found["Ready"] == ("False", reason)
    assert found["Degraded"] == ("True", "LastGoodConfiguration")
    assert to_do in said(bench)
    bench.drift["fp8"] = 0.02
    bench.turns(operator, 45)
    assert bench.weights("prose")["chat-bf16"] == 10_000


@pytest.mark.parametrize("lacks", ["its hash", "a certificate"])
def test_an_artefact_that_may_not_drive_is_refused(bench: Bench, tmp_path: Path, lacks: str) -> None:
    """A policy artefact of another hash, or without a certificate, never drives; the last policy goes on."""
    shutil.copytree(POLICIES, tmp_path / "policies")
    file = tmp_path / "policies" / "routing.yaml"
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    del found["spec"]["certificate"]
    file.write_text(yaml.safe_dump(found), encoding="utf-8")
    pin = "0" * 64 if lacks == "its hash" else sha256_of(file)
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    before = operator.loops["chat"]
    bench.change("RoutePolicy", "chat", {"policy": "learned", "artifact": {"uri": str(file), "sha256": pin}})
    operator.nudge()
    bench.turns(operator, 3)
    assert bench.conditions()["ResolvedRefs"] == ("False", "DoesNotFit")
    assert bench.conditions()["Degraded"] == ("True", "LastGoodConfiguration")
    assert operator.loops["chat"] is before
    assert ("sha256" if lacks == "its hash" else "certificate") in said(bench)


def test_the_last_good_configuration_survives_a_restart(bench: Bench) -> None:
    """An operator that starts on bad input continues with the documents that its predecessor kept."""
    bench.everything()
    bench.turns(bench.operator(), 5)
    bench.change("RoutePolicy", "chat", {"contract": "nowhere"})
    bench.drift["fp8"] = 0.02
    bench.turns(bench.operator(), 45)
    assert bench.conditions()["Degraded"] == ("True", "LastGoodConfiguration")
    assert bench.weights("prose")["chat-bf16"] == 10_000


def _other_name(found: Spec) -> None:
    """Give the policy another name."""
    found["metadata"]["name"] = "zz-late"


def test_the_second_policy_for_a_route_is_refused(bench: Bench) -> None:
    """The second policy for a route is refused, and the first one stays in force."""
    bench.everything()
    bench.apply("policy", _other_name)
    bench.turns(bench.operator(), 4)
    assert bench.conditions(name="zz-late")["Accepted"] == ("False", "RouteTaken")
    assert bench.conditions()["Ready"][0] == "True"


OTHERS: dict[str, tuple[Callable[[Spec], object], str]] = {
    "route of somebody else": (
        lambda found: found["metadata"]["annotations"].update({"selvage.dev/route-policy": "team/other"}),
        "RouteOwnedByOther",
    ),
    "edited route": (
        lambda found: found["spec"]["rules"][0]["backendRefs"][0].update(weight=1),
        "ForeignEdit",
    ),
}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_foreign_route_is_reported_and_never_fought(bench: Bench, name: str) -> None:
    """A route of another owner, or one that was edited by hand, is reported and left as it is."""
    change, reason = OTHERS[name]
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    bench.edit_route(change)
    before = bench.route()["metadata"]["resourceVersion"]
    bench.turns(operator, 10)
    bench.drift["fp8"] = 0.02
    bench.turns(operator, 40)
    assert bench.conditions()["Programmed"] == ("False", reason)
    assert bench.conditions()["Ready"] == ("False", reason)
    assert bench.route()["metadata"]["resourceVersion"] == before


def test_a_missing_route_is_reported(bench: Bench) -> None:
    """A policy whose route does not exist gets a condition that says so."""
    for name in ("contract", "pool", "policy"):
        bench.apply(name)
    bench.servers()
    bench.turns(bench.operator(), 3)
    assert bench.conditions()["Programmed"] == ("False", "RouteMissing")


def test_a_freeze_holds_and_ends_by_itself(bench: Bench) -> None:
    """A pinned table is in force while hard clauses still warn; after its end the policy drives."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    until = "2027-01-15T08:01:10Z"  # 65 s after the bench's clock now
    row = {"slice": "prose", "weights": [{"kernel": "fp8", "weight": 0.5}, {"kernel": "bf16", "weight": 0.5}]}
    freeze = {"until": until, "reason": "the night shift holds it", "table": [row]}
    bench.change("RoutePolicy", "chat", {"freeze": freeze})
    bench.drift["fp8"] = 0.02
    operator.nudge()
    bench.turns(operator, 50)
    assert bench.weights("prose")["chat-fp8"] == 5_000
    assert bench.conditions()["Programmed"] == ("True", "Frozen")
    assert bench.conditions()["Degraded"][0] == "True"
    bench.turns(operator, 60)
    assert bench.weights("prose")["chat-bf16"] == 10_000


def test_a_suspended_policy_is_left_alone(bench: Bench) -> None:
    """A suspended policy writes no route."""
    bench.everything()
    bench.change("RoutePolicy", "chat", {"suspend": True})
    before = bench.route()["metadata"]["resourceVersion"]
    bench.turns(bench.operator(), 10)
    assert bench.conditions()["Ready"] == ("False", "Suspended")
    assert bench.route()["metadata"]["resourceVersion"] == before
