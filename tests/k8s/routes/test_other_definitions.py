"""Routes under HTTPRoute definitions that drop or default fields: our own writes are no foreign edits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.loading.files import canonical_sha256
from k8s.routes.rules import Mirror, Rule, route_rules, table_of
from k8s.routes.writer import ASKED, WRITTEN, Conflict, RouteError, WrittenRoute, put_rules
from tests.k8s.routes.test_rules import shape_of

SHAPE = shape_of(2, 2)
OURS = WrittenRoute(name="chat", owner="team/chat", gateway="front")

Object = dict[str, Any]
Change = Callable[[Rule], object]


class Definition:
    """``Routes`` in memory whose definition applies ``makes`` to every rule that it stores."""

    def __init__(self, makes: Change) -> None:
        self.makes, self.found, self.writes = makes, Object(), 0
        self.conflicts = 0

    def read(self, name: str) -> Object | None:
        """The route, None if there is none."""
        assert name == OURS.name
        return copy.deepcopy(self.found) or None

    def create(self, route: Object) -> Object:
        """Store the route."""
        return self._stored(route)

    def replace(self, route: Object, *, trial: bool = False) -> Object:
        """Store the route if its version is the newest; a trial is not stored."""
        if self.conflicts and self.writes:
            self.conflicts -= 1
            self.found["metadata"]["resourceVersion"] += 1  # a gateway writes the status
        if route["metadata"]["resourceVersion"] != self.found["metadata"]["resourceVersion"]:
            raise Conflict
        before = copy.deepcopy(self.found)
        stored = self._stored(route)
        if trial:
            self.found = before
            self.writes -= 1
        return stored

    def edit(self, change: Change) -> None:
        """Change the first rule, as another client would."""
        change(self.found["spec"]["rules"][0])

    def _stored(self, route: Object) -> Object:
        self.writes += 1
        self.found = copy.deepcopy(route)
        self.found["metadata"]["resourceVersion"] = self.writes + 100 * self.conflicts
        for rule in self.found["spec"]["rules"]:
            self.makes(rule)
        return copy.deepcopy(self.found)


def rules(first: float) -> list[Rule]:
    """Rules of a table whose first slice sends ``first`` to the first kernel."""
    return route_rules(np.array([[first, 1.0 - first, 0.0], [0.0, 0.9, 0.1]]), SHAPE)


def _no_names(rule: Rule) -> None:
    rule.pop("name", None)


def _with_times(rule: Rule) -> None:
    rule.setdefault("timeouts", {"request": "10s"})


def _weightless(rule: Rule) -> None:
    rule["backendRefs"][0]["weight"] += 1


def _no_share(rule: Rule) -> None:
    for one in rule.get("filters") or []:
        one["requestMirror"].pop("fraction", None)


@pytest.mark.parametrize(
    "makes", [_no_names, _with_times, lambda rule: None], ids=["drops", "fills", "keeps"]
)
def test_changes_by_the_servers_definition_are_no_foreign_edit(makes: Change) -> None:
    """Under every definition a route is written, left alone, moved, and edits by others are detected."""
    server = Definition(makes)
    assert put_rules(server, OURS, rules(0.7)).written
    rested = server.writes
    for _ in range(3):
        assert not put_rules(server, OURS, rules(0.7)).written
    assert server.writes == rested
    assert put_rules(server, OURS, rules(0.6)).written
    assert not put_rules(server, OURS, rules(0.6)).written
    server.edit(_weightless)
    with pytest.raises(RouteError) as caught:
        put_rules(server, OURS, rules(0.5))
    assert caught.value.reason == "ForeignEdit"


def test_a_gateways_status_write_is_no_foreign_edit() -> None:
    """A gateway may write the status between our write and our note of what was stored."""
    server = Definition(_with_times)
    server.conflicts = 2
    assert put_rules(server, OURS, rules(0.7)).written
    assert not put_rules(server, OURS, rules(0.7)).written
    assert ASKED in server.found["metadata"]["annotations"]


def test_a_share_that_a_definition_drops_is_never_written() -> None:
    """A mirror whose share is dropped would get all requests: the rules stay, and the problem is reported."""
    server = Definition(_no_share)
    put_rules(server, OURS, rules(0.7))
    before = copy.deepcopy(server.found)
    mirrored = replace(SHAPE, mirrors=(Mirror(backend=SHAPE.kernels[1], ratio=0.1),))
    wanted = route_rules(np.array([[0.7, 0.3, 0.0], [0.0, 0.9, 0.1]]), mirrored)
    with pytest.raises(RouteError, match=r"drops filters.requestMirror.fraction") as caught:
        put_rules(server, OURS, wanted)
    assert caught.value.reason == "FieldsDropped"
    assert server.found == before


def test_rules_that_an_earlier_version_wrote_are_ours() -> None:
    """A route with a hash over the rules as sent, as earlier versions wrote it, is recognised as ours."""
    server = Definition(lambda rule: None)
    put_rules(server, OURS, rules(0.7))
    server.found["metadata"]["annotations"][WRITTEN] = canonical_sha256(rules(0.7))
    assert put_rules(server, OURS, rules(0.6)).written


def test_a_table_is_read_from_rules_without_names() -> None:
    """The table is read back by what the rules match, since a definition may drop their names."""
    table = np.array([[0.7, 0.3, 0.0], [0.0, 0.9, 0.1]])
    found = route_rules(table, SHAPE)
    for rule in found:
        _no_names(rule)
    read = table_of(found, SHAPE)
    assert read is not None
    assert np.allclose(read, table)
