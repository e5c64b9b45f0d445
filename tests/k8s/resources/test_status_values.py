"""Every phase, verdict and stage that our code can write is accepted by the definitions on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kubernetes import client

from contracts.assess.gate import GateOutcome
from contracts.documents import KernelPromotion
from controller.promotion.records import PromotionStage, PromotionState
from faults.drill.outcome import DrillVerdict
from k8s.api.cluster import ApiCluster
from k8s.operator.drills.admission import DrillAdmission
from k8s.operator.drills.report import ended, running, waiting
from k8s.operator.drills.work import PHASES
from k8s.operator.promotion.admission import PromotionAdmission
from k8s.operator.promotion.records import Attempt, terms_of
from k8s.operator.promotion.report import promotion_body, promotion_conditions
from k8s.operator.status.conditions import ResourceCondition, as_json, condition
from k8s.resources.kinds import document_of
from k8s.resources.status import DrillPhase, status_schema
from tests.k8s.resources.test_definition import create
from tests.support.cluster.resource_cases import drill, promotion

pytestmark = pytest.mark.waits

Said = tuple[tuple[ResourceCondition, ...], dict[str, Any]]

GOOD = condition("Accepted", True, "Valid", "fits")
BAD = condition("ResolvedRefs", False, "PoolMissing", "there is no pool")


def statuses_of_drills() -> Iterator[Said]:
    """Every status that a drill can have."""
    admitted = DrillAdmission(accepted=GOOD, resolved=replace(BAD, status="True"))
    yield waiting(DrillAdmission(accepted=GOOD, resolved=BAD))
    for phase in DrillPhase:
        yield running(admitted, phase, "a step")
    for verdict in DrillVerdict:
        yield ended(admitted, "late", verdict, ("Word", "why"))


def statuses_of_promotions() -> Iterator[Said]:
    """Every stage and verdict that a promotion's status can have."""
    document = document_of(promotion())
    assert isinstance(document, KernelPromotion)
    admitted = PromotionAdmission(accepted=GOOD, resolved=replace(BAD, status="True"))
    for stage in PromotionStage:
        for verdict in (None, *GateOutcome):
            state = PromotionState(subject="s", stage=stage, verdict=verdict, waits_for=stage, probes=(1, 2))
            attempt = Attempt(uid="u", document=document, terms=terms_of(document), state=state)
            yield promotion_conditions(admitted, attempt), promotion_body(attempt, None)


def taken(api: client.ApiClient, namespace: str, given: dict[str, Any], said: Sequence[Said]) -> None:
    """Write each status as the operator does; its fields must be in the schema and the server accept it."""
    cluster, stored = ApiCluster(api, namespace, timeout_s=20.0), create(api, namespace, given)
    for conditions, body in said:
        now = "2026-01-01T00:00:00Z"
        status = {"observedGeneration": 1, "conditions": as_json(conditions, [], 1, now), **body}
        cluster.write_status(stored, status)
        assert not body.keys() - status_schema(given["kind"])["properties"].keys()


def test_every_step_of_a_run_has_a_phase_of_the_definition() -> None:
    """Each phase that follows from the runner's messages is in the definition's list."""
    listed = status_schema("FaultDrill")["properties"]["phase"]["enum"]
    assert {str(one) for one in PHASES.values()} <= set(listed)


@pytest.mark.needs("kube_api")
def test_the_definition_accepts_every_status_of_a_drill(api: client.ApiClient, namespace: str) -> None:
    """The definition accepts every phase and verdict of a drill."""
    taken(api, namespace, drill(), list(statuses_of_drills()))


@pytest.mark.needs("kube_api")
def test_the_definition_accepts_every_status_of_a_promotion(api: client.ApiClient, namespace: str) -> None:
    """The definition accepts every stage with every verdict of a promotion."""
    taken(api, namespace, promotion(), list(statuses_of_promotions()))
