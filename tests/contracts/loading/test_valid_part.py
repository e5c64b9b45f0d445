"""One pass tells everything: errors of single fields and broken rules between the others."""

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

#: Errors of one field each: what is done to the spec of a contract, and where it is told.
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


#: The rule on a part that a test leaves out.
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
def test_every_error_is_told_in_one_pass(fields: set[str], rules: set[str]) -> None:
    """Whatever is wrong together is told together, and nothing else is."""
    document: dict[str, Any] = contract_document()
    chosen = [FIELDS[name] for name in sorted(fields)] + [RULES[name] for name in sorted(rules)]
    for change, _ in chosen:
        change(document["spec"])
    assert sorted(told(document)) == sorted(path for _, path in chosen)


def test_what_follows_from_an_error_is_not_told() -> None:
    """A default slice with a bad name is one problem: not also that none is the default."""
    document: dict[str, Any] = contract_document()
    document["spec"]["slices"][0]["name"] = "no name at all"
    document["spec"]["clauses"][0]["slices"] = ["no name at all"]
    assert sorted(told(document)) == ["spec.clauses[0].slices[0]", "spec.slices[0].name"]


def test_places_are_those_of_the_file() -> None:
    """An entry that is taken out moves no later one: the line and the place are the file's."""
    document: dict[str, Any] = scenario_document(kernels=KERNELS)
    spec = document["spec"]
    fault = {"kind": "crash", "onset_s": 5.0}
    spec["faults"] = [
        fault | {"name": "a", "onset_s": "soon"},
        fault | {"name": "b", "target": {"kernel": "nobody"}},
    ]
    assert told(document) == ["spec.faults[0].onset_s", "spec.faults[1].target.kernel"]


@pytest.mark.parametrize("value", [None, 3, "text", []])
def test_a_document_without_a_sound_part_is_told_as_it_is(value: object) -> None:
    """Where nothing can be saved the field's own error stands alone."""
    assert told(contract_document() | {"spec": value}) == ["spec"]


def test_a_required_name_or_number_hides_nothing_else() -> None:
    """What stands at the top of a drill is mended by itself: a name with a space, a time that is missing."""
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


def test_what_depends_on_a_stand_in_is_not_told() -> None:
    """An onset is neither before nor after a time to live that nobody knows, whatever stands in for it."""
    drill: dict[str, Any] = copy.deepcopy(DRILL)
    drill["spec"]["time_to_live_s"] = "long"
    for onset_s in (0.0, 10.0, 1e8):
        drill["spec"]["faults"][0]["onset_s"] = onset_s
        assert told(drill) == ["spec.time_to_live_s"]


def test_a_name_that_is_missing_makes_no_other_one_unknown() -> None:
    """A slice whose name is misspelt as a key is one problem: who refers to it is not blamed."""
    document: dict[str, Any] = scenario_document(kernels=KERNELS)
    home = document["spec"]["pool"]["home"][0]
    home["slise"] = home.pop("slice")
    prefix = "spec.pool.home[0]."
    assert [path for path in told(document) if not path.startswith(prefix)] == []


def test_the_head_does_not_hide_the_rest() -> None:
    """Another apiVersion is one problem among the others."""
    document: dict[str, Any] = contract_document() | {"apiVersion": "selvage.dev/v2"}
    document["spec"]["clauses"][0]["treshold"] = 1
    assert told(document) == ["apiVersion", "spec.clauses[0].treshold"]


@settings(max_examples=20)
@given(st.sets(st.sampled_from(sorted(FIELDS))), st.sets(st.sampled_from(sorted(set(RULES) - {GUARD}))))
def test_a_missing_group_hides_nothing(fields: set[str], rules: set[str]) -> None:
    """Without a required part whose fields are texts and numbers, all else is told as with it."""
    document: dict[str, Any] = contract_document()
    chosen = [FIELDS[name] for name in sorted(fields)] + [RULES[name] for name in sorted(rules)]
    for change, _ in chosen:
        change(document["spec"])
    del document["spec"]["escalation"]
    assert sorted(told(document)) == sorted(["spec.escalation", *(path for _, path in chosen)])


@pytest.mark.parametrize("strange", [".nan", "-.inf", "1.0e+999", "&a 0.1", "!!float 0.1"])
def test_what_can_be_read_past_hides_nothing(strange: str) -> None:
    """A number that is not finite, an anchor, a tag and a second key are told with all else that is wrong."""
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


def test_what_was_read_past_refuses_a_document_that_is_sound_besides() -> None:
    """A second key alone is told once, with the line of the first."""
    document: dict[str, Any] = contract_document()
    text = json.dumps(document, indent=1).replace('"temperature"', '"temperature": 1.0,\n"temperature"')
    with pytest.raises(DocumentError, match=r"a second 'temperature' \(first on line") as caught:
        load_text(text, "made.yaml")
    assert len(caught.value.problems) == 1
