"""The pool of an experiment: put under a policy, brought to rest, and checked to be at rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contracts.telemetry import ReplicaState
from k8s.operator.objects import Manifest
from k8s.operator.pods.endpoints import selector_of
from k8s.operator.pods.replicas import PodDiscovery
from scripts.e5_cluster.borrowed import BorrowedPolicy
from scripts.e5_cluster.plan import AT_REST, ClusterSuite
from scripts.e5_cluster.ports import ExperimentCluster, ExperimentError, Waiting

#: Time limit until the operator reports that a policy is in force, s.
IN_FORCE_S = 180.0
#: Time limit until every pod serves and every slice is at home, s: a killed pod loads its model again.
AT_REST_S = 900.0
#: Reasons of Degraded that report it.
_IN_ALARM = ("HardClauseBroken", "ClauseInAlarm")
#: Tolerance: numbers in a status are rounded.
_HOME_LEAST = 0.999


class ExperimentPool:
    """The pods and the route of one suite."""

    def __init__(
        self, cluster: ExperimentCluster, policy: BorrowedPolicy, suite: ClusterSuite, waiting: Waiting
    ) -> None:
        self._cluster, self._policy, self._suite, self._waiting = cluster, policy, suite, waiting

    def come_to_rest(self) -> None:
        """Wait until no policy acts, every pod serves and every slice is home; ExperimentError on timeout."""
        self._in_force(AT_REST)
        self._waiting.until(self._restless, AT_REST_S, "the pool does not come to rest")

    def drive(self, configuration: str) -> str:
        """Let ``configuration`` drive, without memory; returns which policy drives, by the status."""
        found = self._in_force(configuration)
        return str((found.get("status") or {}).get("driving", "nobody"))

    def require_ours(self) -> None:
        """ExperimentError if another writer changed the policy: then the measurement is invalid."""
        self._waiting.answer(self._policy.require_ours, f"RoutePolicy {self._policy.name}")

    def images(self) -> tuple[str, ...]:
        """What the pods of the pool run, by the images of their containers."""
        return self._waiting.answer(self._images, "the pods of the pool")

    def _images(self) -> tuple[str, ...]:
        found = {
            str(container.get("image", ""))
            for one in self._suite.backends
            for pod in self._cluster.pods(selector_of(self._cluster, one.backend))
            for container in (pod.get("spec") or {}).get("containers") or []
        }
        return tuple(sorted(found))

    def _in_force(self, configuration: str) -> Manifest:
        """The policy once the operator executes it."""
        what = f"RoutePolicy {self._policy.name} under {configuration}"
        self._waiting.answer(lambda: self._policy.put(self._suite.specs[configuration]), what)
        self._waiting.until(lambda: not_in_force(self._policy.found()), IN_FORCE_S, what)
        return self._waiting.answer(self._policy.found, what)

    def _restless(self) -> str:
        """What is not at rest; "" if everything is."""
        away = not_at_home(self._policy.found(), self._suite.homes)
        return away or self._not_serving()

    def _not_serving(self) -> str:
        discovery = PodDiscovery(self._cluster, self._suite.backends)
        discovery.refresh()
        ready = {
            one.slot for one in discovery.pods if one.in_rotation and one.replica.state == ReplicaState.READY
        }
        lacking = [name for name in self._suite.layout.replicas if name not in ready]
        return f"no ready pod in rotation at {', '.join(lacking)}" if lacking else ""


def not_in_force(policy: Manifest) -> str:
    """Why the operator does not execute the spec of ``policy`` yet; "" if it does.

    ExperimentError if it never will.
    """
    generation, status = int(policy["metadata"]["generation"]), policy.get("status") or {}
    if int(status.get("observedGeneration", 0)) < generation:
        return "the operator has not looked at it; is it running, and does it lead?"
    conditions = {one["type"]: one for one in status.get("conditions") or []}
    for kind in ("Accepted", "ResolvedRefs"):
        if _status(conditions, kind) == "False":
            raise ExperimentError(f"RoutePolicy: {kind} is False: {conditions[kind]['message']}")
    waited = ("Ready", "Programmed")
    lacking = [kind for kind in waited if _status(conditions, kind) != "True"]
    return "; ".join(f"{kind}: {conditions.get(kind, {}).get('message', 'not said')}" for kind in lacking)


def in_alarm(policy: Manifest) -> str:
    """The operator's report of a clause in alarm now; "" for none."""
    status = policy.get("status") or {}
    if status.get("observedGeneration") != policy["metadata"]["generation"]:
        return ""
    degraded = [one for one in status.get("conditions") or [] if one["type"] == "Degraded"]
    return "; ".join(str(one["message"]) for one in degraded if one["reason"] in _IN_ALARM)


def not_at_home(policy: Manifest, homes: Mapping[str, str]) -> str:
    """Slices not served by their home kernel alone, by the operator's report; "" for none."""
    rows = {row["name"]: row for row in (policy.get("status") or {}).get("slices") or []}
    away = [name for name, home in homes.items() if _weight(rows.get(name), home) < _HOME_LEAST]
    return f"slices away from home: {', '.join(away)}" if away else ""


def _weight(row: Mapping[str, Any] | None, kernel: str) -> float:
    weights: Sequence[Mapping[str, Any]] = (row or {}).get("weights") or ()
    return next((float(one["weight"]) for one in weights if one["name"] == kernel), 0.0)


def _status(conditions: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    return str(conditions.get(kind, {}).get("status", "Unknown"))
