"""One pass reports everything: errors of single fields, and broken rules between the others."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import DocumentError
from contracts.loading.loader import load_text
from tests.support.documents.own_fleet import KERNELS
from tests.support.documents.policy_documents import DRILL
from tests.support.fleets.synthetic import contract_document, scenario_document

#: Errors of one field each: the change to the spec of a contract, and the path reported.
FIELDS: dict[str, tuple[Any, str]] = {
    "a misspelt key": (lambda s: s["clauses"][0].update(treshold=1), "spec.clauses[0].treshold"),
    "a text for a number": (lambda s: s["clauses"][1].update(threshold="much"), "spec.clauses[1].threshold"),
    "no reason": (lambda s: s["clauses"][2].pop("reason"), "spec.clauses[2].reason"),
    "a bad optional": (lambda s: s["detection"].update(window_s=-1.0), "spec.detection.window_s"),
    "a bad slice": (lambda s: s["slices"][3].update(priority=-5), "spec.slices[3].priority"),
}
#: Broken rules between fields that are each well-formed.
RULES: dict[str, tuple[Any, str]] = {
    "an unknown slice": (lambda s: s["clauses"][4].update(slices=["nowhere"]), "spec.clauses[4].slices[0]"),
    "an unknown metric": (lambda s: s["clauses"][5].update(metric="kl_men"), "spec.clauses[5].metric"),
    "guard above fallback": (
        lambda s: s["escalation"].update(guard_threshold=9.0),
        "spec.escalation.fallback_threshold",
    ),
    "a null rate too much": (lambda s: s["clauses"][3].update(null_rate=0.1), "spec.clauses[3].null_rate"),
    "a clip that passes nothing": (lambda s: s["clauses"][2].update(clip=0.001), "spec.clauses[2].clip"),
}


#: The rule on a part that a test omits.
GUARD = "guard above fallback"


def told(document: dict[str, Any]) -> list[str]:
    """Paths of every problem of ``document``."""
    try:
        load_text(json.dumps(document), "made.yaml")  # JSON is YAML without aliases
    except DocumentError as error:
        return [problem.path for problem in error.problems]
    return []


@settings(max_examples=20)
@given(st.sets(st.sampled_from(sorted(FIELDS))), st.sets(st.sampled_from(sorted(RULES))))
def test_every_error_is_reported_in_one_pass(fields: set[str], rules: set[str]) -> None:
    """Any combination of errors is reported together, and nothing else is."""
    document: dict[str, Any] = contract_document()
    chosen = [FIELDS[name] for name in sorted(fields)] + [RULES[name] for name in sorted(rules)]
    for change, _ in chosen:
        change(document["spec"])
    assert sorted(told(document)) == sorted(path for _, path in chosen)


def test_consequences_of_an_error_are_not_reported() -> None:
    """A default slice with a bad name is one problem, and not also a missing default."""
    document: dict[str, Any] = contract_document()
    document["spec"]["slices"][0]["name"] = "no name at all"
    document["spec"]["clauses"][0]["slices"] = ["no name at all"]
    assert sorted(told(document)) == ["spec.clauses[0].slices[0]", "spec.slices[0].name"]


def test_places_are_those_of_the_file() -> None:
    """An entry that is left out shifts no later one: line and place are the file's."""
    document: dict[str, Any] = scenario_document(kernels=KERNELS)
    spec = document["spec"]
    fault = {"kind": "crash", "onset_s": 5.0}
    spec["faults"] = [
        fault | {"name": "a", "onset_s": "soon"},
        fault | {"name": "b", "target": {"kernel": "nobody"}},
    ]
    assert told(document) == ["spec.faults[0].onset_s", "spec.faults[1].target.kernel"]


@pytest.mark.parametrize("value", [None, 3, "text", []])
def test_a_document_without_a_valid_part_reports_only_that(value: object) -> None:
    """Where nothing can be read the field's own error is the only one."""
    assert told(contract_document() | {"spec": value}) == ["spec"]


def test_a_required_name_or_number_hides_nothing_else() -> None:
    """A bad name or a missing time at the top of a drill hides no other error."""
    drill: dict[str, Any] = copy.deepcopy(DRILL)
    drill["metadata"]["name"] = "my drill"
    del drill["spec"]["time_to_live_s"]
    drill["spec"]["pool"] = "my pool"
    drill["spec"]["faults"].append(drill["spec"]["faults"][0])
    drill["spec"]["steady_state"][0]["metric"] = "kl_mean"
    assert sorted(told(drill)) == [
        "metadata.name",
        "spec.faults[1].name",
        "spec.pool",
        "spec.steady_state[0].metric",
        "spec.time_to_live_s",
    ]


def test_consequences_of_a_placeholder_are_not_reported() -> None:
    """An onset is not compared with an unknown time to live, whatever value is used in its place."""
    drill: dict[str, Any] = copy.deepcopy(DRILL)
    drill["spec"]["time_to_live_s"] = "long"
    for onset_s in (0.0, 10.0, 1e8):
        drill["spec"]["faults"][0]["onset_s"] = onset_s
        assert told(drill) == ["spec.time_to_live_s"]


def test_a_missing_name_makes_no_other_one_unknown() -> None:
    """A slice whose name has a misspelt key is one problem; references to it are not blamed."""
    document: dict[str, Any] = scenario_document(kernels=KERNELS)
    home = document["spec"]["pool"]["home"][0]
    home["slise"] = home.pop("slice")
    prefix = "spec.pool.home[0]."
    assert [path for path in told(document) if not path.startswith(prefix)] == []


def test_a_bad_envelope_does_not_hide_the_rest() -> None:
    """Another apiVersion is one problem among the others."""
    document: dict[str, Any] = contract_document() | {"apiVersion": "selvage.dev/v2"}
    document["spec"]["clauses"][0]["treshold"] = 1
    assert told(document) == ["apiVersion", "spec.clauses[0].treshold"]


@settings(max_examples=20)
@given(st.sets(st.sampled_from(sorted(FIELDS))), st.sets(st.sampled_from(sorted(set(RULES) - {GUARD}))))
def test_a_missing_group_hides_nothing(fields: set[str], rules: set[str]) -> None:
    """Without a required part of texts and numbers, everything else is reported as with it."""
    document: dict[str, Any] = contract_document()
    chosen = [FIELDS[name] for name in sorted(fields)] + [RULES[name] for name in sorted(rules)]
    for change, _ in chosen:
        change(document["spec"])
    del document["spec"]["escalation"]
    assert sorted(told(document)) == sorted(["spec.escalation", *(path for _, path in chosen)])


@pytest.mark.parametrize("strange", [".nan", "-.inf", "1.0e+999", "&a 0.1", "!!float 0.1"])
def test_readable_deviations_hide_nothing(strange: str) -> None:
    """A non-finite number, an anchor, a tag and a second key are reported with all other errors."""
    document: dict[str, Any] = contract_document()
    for changes in (FIELDS, RULES):
        for change, _ in changes.values():
            change(document["spec"])
    document["spec"]["temperature"] = "STRANGE"
    text = json.dumps(document).replace('"STRANGE"', f'{strange}, "description": "once more"')
    with pytest.raises(DocumentError) as caught:
        load_text(text, "made.yaml")
    wrong = [path for changes in (FIELDS, RULES) for _, path in changes.values()]
    found = [problem.path for problem in caught.value.problems]
    assert sorted(found) == sorted([*wrong, "spec.temperature", "spec.description"])


def test_a_readable_deviation_refuses_an_otherwise_valid_document() -> None:
    """A second key alone is reported once, with the line of the first."""
    document: dict[str, Any] = contract_document()
    text = json.dumps(document, indent=1).replace('"temperature"', '"temperature": 1.0,\n"temperature"')
    with pytest.raises(DocumentError, match=r"a second 'temperature' \(first on line") as caught:
        load_text(text, "made.yaml")
    assert len(caught.value.problems) == 1
