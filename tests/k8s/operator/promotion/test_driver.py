"""Promotions on a real API server: every stage in the route, and every ending with its verdict."""

from __future__ import annotations

import pytest
from kubernetes import client

from k8s.operator.promotion.records import APPROVE
from k8s.resources.kinds import GROUP, VERSION
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.promotions import CANDIDATE, everything, evidence, promote, status, until

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

HARD = 0.02
OWN = f"chat-{CANDIDATE}"


def mirrors(bench: Bench) -> list[str]:
    """Services to which the rule of slice prose mirrors."""
    rule = next(one for one in bench.route()["spec"]["rules"] if one.get("name") == "prose")
    return [one["requestMirror"]["backendRef"]["name"] for one in rule.get("filters") or []]


def mirrored_share(bench: Bench) -> float:
    """Share of slice prose that the stored route mirrors, 0 to 1."""
    rule = next(one for one in bench.route()["spec"]["rules"] if one.get("name") == "prose")
    (only,) = rule["filters"]
    fraction = only["requestMirror"]["fraction"]
    return float(fraction["numerator"] / fraction["denominator"])


def test_a_candidate_goes_through_every_stage(bench: Bench) -> None:
    """A candidate is mirrored to, then is a bounded canary, then takes over; conditions and Events say so."""
    everything(bench)
    promote(bench, evidence(bench), replaces="fp8")
    operator = bench.operator()
    until(bench, operator, "Shadow")
    bench.turns(operator, 2)
    assert mirrors(bench) == [OWN]
    stated = bench.read("KernelPromotion", CANDIDATE)["spec"]["shadow"]["mirror_ratio"]
    assert mirrored_share(bench) == pytest.approx(stated)
    shadow = until(bench, operator, "Canary")
    assert all(seen[OWN] == 0 for seen in shadow)
    canary = until(bench, operator, "Full")
    bench.turns(operator, 1)
    assert mirrors(bench) == []
    assert 0 < max(seen[OWN] for seen in canary) <= 500
    bench.turns(operator, 60)
    assert bench.weights("prose")[OWN] == 10_000
    found = bench.conditions("KernelPromotion", CANDIDATE)
    assert found["Promoted"] == ("True", "Successful")
    assert found["Degraded"] == ("False", "Compliant")
    assert status(bench)["verdict"] == "Successful"
    reasons = {one.reason for one in client.CoreV1Api(bench.api).list_namespaced_event(bench.namespace).items}
    assert {"ProgressingShadow", "ProgressingCanary", "PromotedSuccessful"} <= reasons


@pytest.mark.parametrize("stage", ["Shadow", "Canary", "Full"])
def test_a_break_rolls_back_from_every_stage(bench: Bench, stage: str) -> None:
    """A candidate that breaks an L3 clause is rolled back from any stage and gets no request again."""
    everything(bench)
    promote(bench, evidence(bench))
    operator = bench.operator()
    until(bench, operator, stage)
    bench.drift[CANDIDATE] = HARD
    until(bench, operator, "RolledBack")
    del bench.drift[CANDIDATE]
    bench.turns(operator, 40)
    assert bench.weights("prose")[OWN] == bench.weights("numbers")[OWN] == 0
    assert mirrors(bench) == []
    assert status(bench)["verdict"] == "Failed"
    assert bench.conditions("KernelPromotion", CANDIDATE)["Degraded"] == ("True", "ContractBroken")


@pytest.mark.parametrize(
    ("profile", "waived", "verdict"),
    [("fp8", True, "Failed"), ("w8a8", False, "Inconclusive")],
)
def test_offline_verdicts_stay_apart_and_admit_no_candidate(
    bench: Bench, profile: str, waived: bool, verdict: str
) -> None:
    """A failed and an inconclusive evaluation end at Offline with their own verdict, without a request."""
    everything(bench, profile)
    promote(bench, evidence(bench, profile) if waived else evidence(bench, profile, ()))
    operator = bench.operator()
    bench.turns(operator, 12)
    found = status(bench)
    assert (found["stage"], found["verdict"], found["mostWeight"]) == ("Offline", verdict, 0)
    assert bench.conditions("KernelPromotion", CANDIDATE)["Promoted"] == ("False", verdict)
    assert bench.weights("prose")[OWN] == 0
    assert mirrors(bench) == []


def test_evidence_of_another_build_is_an_error_that_can_be_fixed(bench: Bench) -> None:
    """An evaluation of another build gives the verdict Error; with the right one the promotion continues."""
    everything(bench)
    promote(bench, evidence(bench, "bf16"))
    operator = bench.operator()
    bench.turns(operator, 3)
    assert status(bench)["verdict"] == "Error"
    assert "samples_sha256" in status(bench)["message"]
    bench.change("KernelPromotion", CANDIDATE, {"offline": {"evaluation": evidence(bench)}})
    operator.nudge()
    until(bench, operator, "Shadow")


def test_too_few_probes_end_inconclusive(bench: Bench) -> None:
    """A shadow stage with too few probes is inconclusive at its deadline, and mirroring ends."""
    everything(bench)
    stage = {"stability_s": 3.0, "least_probes": 10_000, "deadline_s": 10.0}
    promote(bench, evidence(bench), shadow=stage)
    operator = bench.operator()
    until(bench, operator, "Shadow")
    bench.turns(operator, 15)
    found = status(bench)
    assert (found["stage"], found["verdict"], found["reason"]) == ("Shadow", "Inconclusive", "TooFewSamples")
    assert mirrors(bench) == []


def test_a_gate_waits_for_an_approval_of_this_build(bench: Bench) -> None:
    """A gated stage waits; an approval of another subject does not open it, the right one does."""
    everything(bench)
    promote(bench, evidence(bench), manual_gates=["canary"])
    operator = bench.operator()
    until(bench, operator, "Shadow")
    bench.turns(operator, 15)
    assert bench.conditions("KernelPromotion", CANDIDATE)["Progressing"] == ("False", "AwaitingApproval")
    for subject, stage in (("0" * 12, "Shadow"), (status(bench)["subject"][:12], "Canary")):
        body = {"metadata": {"annotations": {APPROVE: f"canary@{subject}"}}}
        bench.custom.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            bench.namespace,
            "kernelpromotions",
            CANDIDATE,
            body,
            _content_type="application/merge-patch+json",
        )
        operator.nudge()
        bench.turns(operator, 2)
        assert operator.promotions.attempts[CANDIDATE].state.stage == stage


def test_a_new_leader_continues_the_stage(bench: Bench) -> None:
    """A new operator continues from the status: no stage is repeated or skipped."""
    everything(bench)
    promote(bench, evidence(bench))
    operator = bench.operator()
    until(bench, operator, "Canary")
    bench.turns(operator, 2)
    successor = bench.operator()
    bench.turns(successor, 1)
    assert successor.promotions.attempts[CANDIDATE].state.stage == "Canary"
    assert 0 < bench.weights("prose")[OWN] <= 500
    until(bench, successor, "Full")


def test_a_candidate_without_a_promotion_gets_no_traffic(bench: Bench) -> None:
    """A kernel of role candidate gets no request without a promotion, nor after its promotion is deleted."""
    everything(bench)
    operator = bench.operator()
    bench.turns(operator, 10)
    assert bench.weights("prose")[OWN] == 0
    promote(bench, evidence(bench))
    operator.nudge()
    bench.turns(operator, 1)
    until(bench, operator, "Canary")
    bench.turns(operator, 2)
    assert bench.weights("prose")[OWN] > 0
    bench.delete("KernelPromotion", CANDIDATE)
    operator.nudge()
    bench.turns(operator, 2)
    assert bench.weights("prose")[OWN] == 0


def test_a_frozen_route_holds_the_promotion(bench: Bench) -> None:
    """While the route is frozen, the stage does not change and its deadline does not run."""
    everything(bench)
    promote(bench, evidence(bench))
    operator = bench.operator()
    until(bench, operator, "Shadow")
    bench.change(
        "RoutePolicy", "chat", {"freeze": {"until": "2030-01-31T18:00:00Z", "reason": "a test holds it"}}
    )
    operator.nudge()
    bench.turns(operator, 80)
    assert operator.promotions.attempts[CANDIDATE].state.stage == "Shadow"
    bench.change("RoutePolicy", "chat", {"freeze": None})
    operator.nudge()
    until(bench, operator, "Canary")


def test_a_withdrawn_candidate_leaves_at_once(bench: Bench) -> None:
    """spec.rollback withdraws a serving candidate; a higher ``attempt`` starts at the first stage again."""
    everything(bench)
    promote(bench, evidence(bench))
    operator = bench.operator()
    until(bench, operator, "Canary")
    bench.change("KernelPromotion", CANDIDATE, {"rollback": True})
    operator.nudge()
    bench.turns(operator, 2)
    assert bench.weights("prose")[OWN] == 0
    assert status(bench)["reason"] == "Withdrawn"
    bench.change("KernelPromotion", CANDIDATE, {"rollback": None, "attempt": 2})
    operator.nudge()
    until(bench, operator, "Shadow")


@pytest.mark.parametrize(
    ("change", "condition", "reason"),
    [
        ({"policy": "nobody"}, "ResolvedRefs", "PolicyNotInForce"),
        ({"candidate": "strange"}, "ResolvedRefs", "UnknownKernel"),
        ({"candidate": "bf16"}, "ResolvedRefs", "CandidateIsKnownGood"),
        ({"candidate": "fp8"}, "ResolvedRefs", "CandidateIsHome"),
    ],
)
def test_bad_references_are_reported_and_change_nothing(
    bench: Bench, change: dict[str, str], condition: str, reason: str
) -> None:
    """A promotion with bad references gets a condition, and the route stays as it was."""
    everything(bench)
    promote(bench, evidence(bench), **change)
    operator = bench.operator()
    bench.turns(operator, 6)
    assert bench.conditions("KernelPromotion", CANDIDATE)[condition] == ("False", reason)
    assert bench.weights("prose") == {
        "chat-fp8": 10_000,
        "chat-bf16": 0,
        OWN: 0,
        "selvage-refuse": 0,
    }


def test_the_younger_of_two_promotions_waits(bench: Bench) -> None:
    """Of two promotions of one kernel the older is in force; the other has a condition."""
    everything(bench)
    found = evidence(bench)
    promote(bench, found)
    promote(bench, found, name="zz-second")
    bench.turns(bench.operator(), 3)
    assert bench.conditions("KernelPromotion", "zz-second")["Accepted"] == ("False", "CandidateTaken")
