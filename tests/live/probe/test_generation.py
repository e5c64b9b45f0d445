"""Measurements of generation probes on healthy servers, and on servers with conditional damage."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import DocumentError, MeasurementError
from contracts.metrics import GENERATION_COLUMNS
from contracts.telemetry import ProbeOutcome
from live.probe.answers import Line, Question, YieldedError, ask
from live.probe.compare import position_kl
from live.probe.generation import generate
from live.probe.golden_answers import SAMPLING, GoldenAnswers, golden_answers
from live.probe.kinds import (
    OFFERS,
    Asking,
    CancelKind,
    Echo,
    GrammarKind,
    LongKind,
    PairKind,
    ProbeKind,
    TurnsKind,
    offers_for,
)
from tests.support.servers.generating import Facts, FakeServer, asking_of, golden, plan_of, prompts

RIGHT = golden()
KINDS: tuple[ProbeKind, ...] = tuple(offer.kind for offer in OFFERS)


def worst(kind: ProbeKind, server: FakeServer) -> dict[str, float]:
    """The worst value of every column over all prompts."""
    asking = asking_of(server, RIGHT)
    found: dict[str, float] = {}
    for prompt in prompts():
        for column, value in kind.probe(prompt, asking).items():
            found[column] = max(value, found.get(column, value))
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_server_that_is_well_measures_nothing(kind: ProbeKind) -> None:
    """Every kind measures something, all of it 0, and a clause can name every column."""
    found = worst(kind, FakeServer())
    assert found.keys() <= set(GENERATION_COLUMNS)
    assert found == pytest.approx(dict.fromkeys(found, 0.0), abs=1e-9)


DAMAGE: dict[str, tuple[ProbeKind, str, Callable[[Facts], bool]]] = {
    "on a prefix hit": (PairKind(), "pair_gap", lambda facts: facts.hit),
    "on a residue": (PairKind(), "generation_gap", lambda facts: facts.prompt_tokens % 8 in (3, 4)),
    "at a block's edge": (PairKind(), "generation_gap", lambda facts: facts.prompt_tokens % 8 == 0),
    "in a second turn": (TurnsKind(), "pair_gap", lambda facts: facts.hit),
    "after a cancel": (CancelKind(), "generation_gap", lambda facts: facts.cancelled),
    "late in a decode": (LongKind(), "greedy_gap", lambda facts: facts.generated > 4),
    "after a grammar": (PairKind(), "generation_gap", lambda facts: facts.seen_grammar),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_shows_in_the_kind_that_meets_its_condition(name: str) -> None:
    """Conditional damage that scoring the prompt cannot show is measured."""
    kind, column, damage = DAMAGE[name]
    server = FakeServer(damage=damage, seen_grammar=name == "after a grammar")
    assert worst(kind, server)[column] > 0.1


def test_a_pair_sees_what_only_one_of_it_reads() -> None:
    """Pairs differ if only the hit is damaged, and agree if both are, which the reference then shows."""
    both = worst(PairKind(), FakeServer(damage=lambda _: True))
    assert both["pair_gap"] == both["pair_kl@top_k"] == pytest.approx(0.0, abs=1e-9)
    assert both["generation_gap"] > 0.1


def test_an_answer_without_an_end_and_numbers_that_are_none_are_broken() -> None:
    """A stream without stop reason, and NaN, count as broken and are compared with nothing."""
    for server in (FakeServer(cuts=3), FakeServer(nan=True)):
        found = worst(PairKind(), server)
        assert found["answer_broken"] == 1.0
        assert "generation_kl@top_k" not in found


def test_a_foreign_name_is_crossed_where_the_server_is_known_to_name_requests() -> None:
    """Another request's answer differs from that of a server that never names requests."""
    echo, prompt = Echo(), prompts()[0]
    stranger = PairKind().probe(prompt, asking_of(FakeServer(names=False), RIGHT, echo))
    assert "nonce_crossed" not in stranger
    assert not echo.seen
    healthy = PairKind().probe(prompt, asking_of(FakeServer(), RIGHT, echo))
    assert healthy["nonce_crossed"] == 0.0
    crossed = PairKind().probe(prompt, asking_of(FakeServer(crosses=True), RIGHT, echo))
    assert crossed == {"nonce_crossed": 1.0}
    swapped = PairKind().probe(prompt, asking_of(FakeServer(swaps=True), RIGHT, Echo()))
    assert swapped == {"nonce_crossed": 1.0}
    renamed = PairKind().probe(prompt, asking_of(FakeServer(renames=True), RIGHT, echo))
    assert renamed["nonce_crossed"] == 0.0


def test_an_answer_that_ignores_its_grammar_is_invalid() -> None:
    """Only the kind with a grammar reports it."""
    assert worst(GrammarKind(), FakeServer(ignores_grammar=True))["grammar_invalid"] == 1.0


def test_prompts_cover_residues_and_edges() -> None:
    """Over the prompts of a slice, residues differ, and some prompt is of whole blocks."""
    for name in ("sql", "prose"):
        residues = {len(one.token_ids) % 8 for one in prompts() if one.slice == name}
        assert 0 in residues
        assert len(residues) >= 5
    assert len({one.number for one in prompts()}) == len(prompts())


def test_a_cancelled_probe_is_no_evidence() -> None:
    """A cancelled probe measured nothing, and one over its limit timed out."""
    plan = plan_of(LongKind(), RIGHT)
    asking = asking_of(FakeServer(), RIGHT)
    yielding = Asking(line=asking.line, limit_s=5.0, golden=RIGHT, echo=Echo(), gives_way=lambda: True)
    assert generate(plan, plan.prompts[0], yielding).outcome == ProbeOutcome.NONE
    late = Asking(line=asking.line, limit_s=-1.0, golden=RIGHT, echo=Echo())
    assert generate(plan, plan.prompts[0], late).outcome == ProbeOutcome.TIMED_OUT
    with pytest.raises(YieldedError):
        ask(asking.line, Question(token_ids=(0, 1), max_tokens=3), "n", 5.0, lambda: True)


def test_wanted_kinds_follow_from_columns() -> None:
    """A contract without generation clauses wants no kind; special kinds come with their own column alone."""
    assert offers_for(("kl_mean@top_k",)) == []
    assert {one.kind.name for one in offers_for(("pair_kl@top_k",))} == {"pair", "turns", "cancel"}
    assert {one.kind.name for one in offers_for(("decode_kl@top_k",))} == {"long"}
    assert {one.kind.name for one in offers_for(GENERATION_COLUMNS)} == {one.kind.name for one in OFFERS}


def test_golden_answers_are_asked_once_and_say_how_they_were_made(tmp_path: Path) -> None:
    """A second run sends nothing; a damaged file is refused by name; an answer without an end is rejected."""
    server = FakeServer()
    line = Line(server.client(), "http://server", "m")
    questions = [one.question() for one in prompts()]
    first = golden_answers(tmp_path, line, questions, ("bf16",))
    asked = len(server.asked)
    again = golden_answers(tmp_path, line, questions, ("bf16",))
    assert len(server.asked) == asked
    assert [again.of(one).rows for one in questions] == [first.of(one).rows for one in questions]
    (kept,) = tmp_path.iterdir()
    assert json.loads(kept.read_text())["sampling"] == SAMPLING
    golden_answers(tmp_path, line, questions, ("bf16", "another model"))
    assert len(server.asked) == 2 * asked
    other = next(path for path in tmp_path.iterdir() if path != kept)
    content = kept.read_text()
    kept.write_bytes(other.read_bytes())
    with pytest.raises(DocumentError, match=r"answers of .*another model.*delete it to ask again"):
        golden_answers(tmp_path, line, questions, ("bf16",))
    kept.write_text(json.dumps(json.loads(content) | {"sampling": {"temperature": 0.7}}))
    with pytest.raises(DocumentError, match="delete it to ask again"):
        golden_answers(tmp_path, line, questions, ("bf16",))
    cut = Line(FakeServer(cuts=2).client(), "http://server", "m")
    with pytest.raises(MeasurementError, match="did not end well"):
        golden_answers(tmp_path / "other", cut, questions, ("bf16",))


@pytest.mark.parametrize(
    "content",
    ["data: {", "data: 3\n\ndata: []", 'data: {"choices": [{"logprobs": {"tokens": ["the"]}}]}'],
)
def test_what_is_no_stream_of_tokens_is_told_apart(content: str) -> None:
    """No misbehaviour counts as an answer, and none raises out of a probe."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=content))
    line = Line(httpx.Client(transport=transport), "http://server", "m")
    asking = Asking(line=line, limit_s=5.0, golden=GoldenAnswers(answers={}), echo=Echo())
    plan = plan_of(GrammarKind(), RIGHT)
    found = generate(plan, plan.prompts[0], asking)
    assert found.outcome in (ProbeOutcome.FAILED, ProbeOutcome.ANSWERED)
    assert set(found.named) <= {"answer_broken"}


weights = st.lists(st.floats(0.01, 10.0), min_size=30, max_size=30)


@given(weights, weights)
def test_the_divergence_of_lists_is_a_lower_bound(one: list[float], other: list[float]) -> None:
    """The KL from the 20 most probable tokens never exceeds that of the full distributions."""
    p, q = ([value / sum(raw) for value in raw] for raw in (one, other))
    exact = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    lists = [
        {token: math.log(value) for token, value in sorted(enumerate(dist), key=lambda x: -x[1])[:20]}
        for dist in (p, q)
    ]
    (found,) = position_kl([lists[0]], [lists[1]])
    assert 0.0 <= found <= exact + 1e-9
    assert position_kl([lists[0]], [lists[0]]) == pytest.approx([0.0], abs=1e-9)


def test_lists_without_a_common_token_diverge() -> None:
    """Two certain answers without a common token are far apart, not equal."""
    sure = [math.log(0.9), *[math.log(0.1 / 20)] * 19]
    one, other = ({base + at: value for at, value in enumerate(sure)} for base in (0, 100))
    assert position_kl([one], [other])[0] > 0.3
