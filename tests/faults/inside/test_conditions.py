"""The requests that a trigger strikes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from faults.inside.conditions import RequestFacts, Requests, StepFacts, mark_of, request_holds, step_holds
from faults.inside.document import TriggerSpec

steps = st.builds(
    StepFacts,
    batch_size=st.integers(1, 64),
    after_cancel=st.booleans(),
    after_structured_output=st.booleans(),
)
facts = st.builds(RequestFacts, prompt_tokens=st.none() | st.integers(1, 2000), prefix_hit=st.booleans())
triggers = st.builds(
    TriggerSpec,
    min_generated_tokens=st.integers(0, 100),
    min_batch_size=st.integers(0, 64),
    slice=st.sampled_from(["", "code"]),
    residue_block=st.sampled_from([0, 16, 128]),
    residue_highest=st.integers(0, 15),
    prefix_hit=st.booleans(),
    after_cancel=st.booleans(),
    after_structured_output=st.booleans(),
)
request_ids = st.sampled_from(["cmpl-1", "cmpl-1" + mark_of("code"), "cmpl-1" + mark_of("prose")])


@dataclass
class FakeNew:
    req_id: str
    prompt_token_ids: list[int] | None
    num_computed_tokens: int = 0
    sampling_params: Any = None


@dataclass
class FakeCached:
    req_ids: list[str] = field(default_factory=list)
    num_output_tokens: list[int] = field(default_factory=list)


@dataclass
class FakeOutput:
    scheduled_new_reqs: list[FakeNew] = field(default_factory=list)
    scheduled_cached_reqs: FakeCached = field(default_factory=FakeCached)
    finished_req_ids: set[str] = field(default_factory=set)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)


@dataclass
class FakeParams:
    structured_outputs: object | None = None


@given(steps, facts, request_ids, st.integers(0, 200))
def test_a_trigger_without_conditions_strikes_everything(
    step: StepFacts, known: RequestFacts, name: str, generated: int
) -> None:
    """Without a condition every request is struck."""
    assert step_holds(TriggerSpec(), step)
    assert request_holds(TriggerSpec(), name, known, generated)


@given(triggers, steps, facts, request_ids, st.integers(0, 200))
def test_more_conditions_strike_less(
    trigger: TriggerSpec, step: StepFacts, known: RequestFacts, name: str, generated: int
) -> None:
    """Whatever a trigger strikes is struck by the same trigger with one condition less."""
    if not (step_holds(trigger, step) and request_holds(trigger, name, known, generated)):
        return
    empty = TriggerSpec()
    for condition in ("min_generated_tokens", "min_batch_size", "slice", "residue_block", "prefix_hit"):
        fewer = replace(trigger, **{condition: getattr(empty, condition)})
        assert step_holds(fewer, step)
        assert request_holds(fewer, name, known, generated)


@given(st.integers(1, 4096), st.integers(1, 256), st.data())
def test_residues_are_those_of_the_prompt_length(tokens: int, block: int, data: st.DataObject) -> None:
    """A trigger on residues strikes exactly the lengths whose remainder lies in its interval."""
    lowest = data.draw(st.integers(0, block - 1))
    highest = data.draw(st.integers(lowest, block - 1))
    trigger = TriggerSpec(residue_block=block, residue_lowest=lowest, residue_highest=highest)
    holds = request_holds(trigger, "r", RequestFacts(prompt_tokens=tokens), 0)
    assert holds == (tokens % block in range(lowest, highest + 1))


def test_a_request_of_unknown_length_is_struck_by_no_residue() -> None:
    """A request whose arrival was not seen never counts as a match."""
    assert not request_holds(TriggerSpec(residue_block=2, residue_highest=1), "r", RequestFacts(), 0)


def test_requests_are_followed_from_the_schedulers_outputs() -> None:
    """Prompt length and prefix hit come with a new request, generated tokens with a running one."""
    requests = Requests()
    requests.follow(
        FakeOutput(scheduled_new_reqs=[FakeNew("a", [1] * 40, 32)], num_scheduled_tokens={"a": 8})
    )
    step = StepFacts(batch_size=1)
    assert requests.struck(TriggerSpec(prefix_hit=True), step, ["a"]) == ["a"]
    assert requests.struck(TriggerSpec(min_generated_tokens=5), step, ["a"]) == []
    requests.follow(FakeOutput(scheduled_cached_reqs=FakeCached(["a"], [5]), num_scheduled_tokens={"a": 1}))
    assert requests.struck(TriggerSpec(min_generated_tokens=5, prefix_hit=True), step, ["a"]) == ["a"]
    requests.follow(FakeOutput(finished_req_ids={"a"}))
    assert requests.struck(TriggerSpec(prefix_hit=True), step, ["a"]) == []


def test_a_grammar_is_seen_once_its_request_has_ended() -> None:
    """The request with the grammar is not struck by its own fault; later ones are."""
    requests = Requests()
    params = FakeParams(structured_outputs=object())
    requests.follow(FakeOutput(scheduled_new_reqs=[FakeNew("g", [1], sampling_params=params)]))
    assert not requests.structured_seen
    requests.follow(FakeOutput(finished_req_ids={"g"}))
    assert requests.structured_seen
