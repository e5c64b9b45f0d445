"""Metrics against their definitions on small exact distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.limits import absolute_mean_limits
from contracts.metrics import (
    COLUMN_NAMES,
    GENERATION_COLUMNS,
    METRICS,
    PASSIVE_COLUMNS,
    JudgedBy,
    UnknownMetricError,
    draw_tokens,
    metric,
    prompt_columns,
    register_metric,
    top_k_columns,
)
from contracts.metrics.observability import (
    determinism_window,
    fingerprint_mismatch,
    replay_mismatch,
    replay_signature,
    trace_fields_missing,
)
from contracts.metrics.runtime import failed, inter_token_ms, latency_ms, throughput_tokens_per_s, ttft_ms
from contracts.metrics.statistical import (
    REFUSAL_JUDGE,
    JsonJudge,
    calibration_error,
    ece_gap,
    judged_difference,
)
from contracts.rng import stream
from contracts.telemetry import Source

TRAIN = np.array([[0.5, 0.25, 0.125, 0.125], [0.1, 0.2, 0.3, 0.4]])
SERVE = np.array([[0.25, 0.5, 0.125, 0.125], [0.1, 0.2, 0.3, 0.4]])

REQUIRED = [
    "logit_l2_p50", "logit_l2_p95", "logit_l2_p99", "logit_linf_p50", "logit_linf_p95", "logit_linf_p99",
    "kl_mean", "kl_p99", "tv_mean", "tv_p99", "top1_overlap", "top5_overlap", "top10_overlap", "top1_flip",
    "abs_log_w_mean", "w_log_w_mean", "token_prob_error", "ece_gap", "refusal_rate_gap", "parseability_gap",
    "latency_ms_p50", "latency_ms_p95", "latency_ms_p99", "ttft_ms_p50", "ttft_ms_p95", "ttft_ms_p99",
    "inter_token_ms_p50", "inter_token_ms_p95", "inter_token_ms_p99", "throughput_tokens_per_s",
    "peak_memory_bytes", "kv_used_ratio", "failure_rate", "determinism_window", "required_trace_fields",
    "fingerprint_match", "replay_signature",
]  # fmt: skip


@st.composite
def logit_pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two logit arrays [T, V]; the second is near to or far from the first."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (draw(st.integers(1, 5)), draw(st.integers(2, 40)))
    first = rng.normal(scale=draw(st.floats(0.1, 10.0)), size=shape)
    return first, first + rng.normal(scale=draw(st.floats(0.0, 5.0)), size=shape)


@pytest.mark.parametrize("name", REQUIRED)
def test_required_metric_is_registered(name: str) -> None:
    """Every metric a contract may use is registered with a column per estimator and a summary."""
    spec = metric(name)
    assert spec.summary
    assert len(spec.columns) == len(spec.estimators)


def test_probe_metrics_read_columns_that_profiles_hold() -> None:
    """A metric fed by probes reads a column that prompt_columns or a generation probe computes."""
    probe = [spec for spec in METRICS.values() if spec.source is Source.PROBE]
    assert {column for spec in probe for column in spec.columns} <= {
        *COLUMN_NAMES,
        *GENERATION_COLUMNS,
        *PASSIVE_COLUMNS,
    }


def test_unknown_names_are_refused_with_a_hint() -> None:
    """An unknown metric or estimator is refused by naming what exists."""
    with pytest.raises(UnknownMetricError, match="did you mean kl_mean"):
        metric("kl_meen")
    with pytest.raises(UnknownMetricError, match="it has: full_vocab"):
        metric("tv_max").column("sampled")


def test_registration_refuses_doubles_and_nonsense() -> None:
    """A name is registered once, with a known family and a percentile inside (0, 100)."""
    with pytest.raises(ValueError, match="registered already"):
        register_metric("kl_mean", family="N", unit="nats", columns={})(lambda: None)
    with pytest.raises(ValueError, match="family"):
        register_metric("new", family="X", unit="nats", columns={})
    with pytest.raises(ValueError, match="percentile"):
        register_metric("new", family="N", unit="nats", columns={}, judgement="percentile(100)")


def test_percentile_metrics_carry_their_rate_limit() -> None:
    """A pXX metric tolerates a share 1 - XX/100 of observations over the threshold; others have none."""
    assert metric("kl_p99").judgement is JudgedBy.PERCENTILE
    assert metric("kl_p99").rate_limit == pytest.approx(0.01)
    assert metric("kl_mean").rate_limit is None


def test_columns_match_the_definitions_by_hand() -> None:
    """Each column equals its definition worked out by hand on two positions of four tokens."""
    found = prompt_columns(np.log(TRAIN), np.log(SERVE), np.array([0, 3]), top_k=2)
    kl = 0.5 * math.log(2) - 0.25 * math.log(2)
    expected = {
        "kl_mean@full_vocab": kl / 2,
        "kl_max@full_vocab": kl,
        "tv_mean@full_vocab": 0.125,
        "tv_max@full_vocab": 0.25,
        "linf_max@full_vocab": math.log(2),
        "linf_mean@full_vocab": math.log(2) / 2,
        "l2_mean@full_vocab": math.log(2) * math.sqrt(2) / 2,
        "top1_flip@full_vocab": 0.5,
        "top1_overlap@full_vocab": 0.5,
        "abs_log_w@full_vocab": 0.75 * math.log(2) / 2,
        "w_log_w@full_vocab": kl / 2,
        "token_prob_error@full_vocab": (0.75 * 2 + 0.25 + 1) / 2,
        "abs_log_w@sampled": math.log(2) / 2,
        "w_log_w@sampled": math.log(2),
        "token_prob_error@sampled": 1.5,
        "kl_mean@top_k": kl / 2,
        "tv_mean@top_k": 0.125,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12), name


@given(logit_pairs(), st.floats(-50.0, 50.0), st.floats(0.2, 4.0))
def test_common_shift_changes_nothing(pair: tuple[np.ndarray, np.ndarray], shift: float, t: float) -> None:
    """Adding a constant to every logit of a kernel changes no column."""
    first, second = pair
    plain = prompt_columns(first, second, temperature=t)
    moved = prompt_columns(first, second + shift, temperature=t)
    np.testing.assert_allclose(plain.values, moved.values, rtol=1e-7, atol=1e-9)


@given(logit_pairs(), st.integers(1, 30))
def test_top_k_is_a_lower_bound(pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
    """KL and TV from the returned top-k and a rest bucket never exceed the full-vocabulary values."""
    found = prompt_columns(*pair, top_k=k)
    assert found["kl_mean@top_k"] <= found["kl_mean@full_vocab"] + 1e-9
    assert found["tv_mean@top_k"] <= found["tv_mean@full_vocab"] + 1e-12


def test_tiny_rest_buckets_add_no_noise() -> None:
    """A rest bucket lost in 32-bit rounding does not show as divergence."""
    reference = np.log(np.array([[0.7, 0.3 - 1e-9]]))
    candidate = np.log(np.array([[0.7, 0.3 + 5e-8]]))
    assert top_k_columns(reference, candidate)[0] < 1e-12


@given(logit_pairs())
def test_a_kernel_equals_itself(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """The distance of a kernel to itself is exactly zero in every distance column."""
    found = prompt_columns(pair[0], pair[0], np.zeros(len(pair[0]), dtype=np.int64))
    ones = {"top1_overlap", "top5_overlap", "top10_overlap", "token_prob_error"}
    for name, value in zip(found.names, found.values, strict=True):
        assert value == pytest.approx(float(name.split("@")[0] in ones), abs=1e-12), name


def test_drawn_tokens_follow_the_candidate() -> None:
    """Token frequencies over many draws match the distribution within four standard errors."""
    probability = np.array([0.6, 0.3, 0.1, 0.0])
    with np.errstate(divide="ignore"):
        drawn = draw_tokens(np.tile(np.log(probability), (20_000, 1)), stream(1, "draw"))
    shares = np.bincount(drawn, minlength=4) / drawn.size
    assert np.all(np.abs(shares - probability) <= 4 * np.sqrt(probability * (1 - probability) / drawn.size))


def test_sampled_estimates_agree_with_the_full_vocabulary() -> None:
    """Sampled estimates of E|log w| and E[w log w] average to the exact expectations."""
    rng = stream(3, "logits")
    first = rng.normal(size=(1, 12))
    pair = np.tile(first, (40_000, 1)), np.tile(first + 0.3 * rng.normal(size=(1, 12)), (40_000, 1))
    found = prompt_columns(*pair, draw_tokens(pair[1], rng))
    for name in ("abs_log_w", "w_log_w", "token_prob_error"):
        assert found[f"{name}@sampled"] == pytest.approx(found[f"{name}@full_vocab"], abs=0.01)


def test_support_mismatch_is_infinite_and_shared_bans_are_not() -> None:
    """A token forbidden by the candidate alone gives infinite KL; one forbidden by both gives none."""
    with np.errstate(divide="ignore"):
        train, serve = np.log([[0.5, 0.5, 0.0]]), np.log([[1.0, 0.0, 0.0]])
    found = prompt_columns(train, serve)
    assert math.isinf(found["kl_mean@full_vocab"])
    assert math.isinf(found["linf_max@full_vocab"])
    assert math.isinf(found["l2_mean@full_vocab"])
    assert found["tv_mean@full_vocab"] == pytest.approx(0.5)
    other = prompt_columns(train, np.array([[-0.2, -1.2, -np.inf]]))
    assert other["linf_max@full_vocab"] == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [np.array([1.0]), np.array([[np.nan, 0.0]]), np.array([[-np.inf, -np.inf]])])
def test_impossible_log_probabilities_are_refused(bad: np.ndarray) -> None:
    """Wrong shapes, NaN and positions without any allowed token are refused."""
    with pytest.raises(ValueError, match="log-probabilities"):
        prompt_columns(bad, bad)


def test_mismatched_arguments_are_refused() -> None:
    """Arrays of unlike shapes, token ids of the wrong length and a top-k of 0 are refused."""
    with pytest.raises(ValueError, match="differ in shape"):
        prompt_columns(np.log(TRAIN), np.log(SERVE[:, :3]))
    with pytest.raises(ValueError, match="token_ids"):
        prompt_columns(np.log(TRAIN), np.log(SERVE), np.array([0]))
    with pytest.raises(ValueError, match="top_k"):
        prompt_columns(np.log(TRAIN), np.log(SERVE), top_k=0)
    with pytest.raises(KeyError, match="there are"):
        prompt_columns(np.log(TRAIN), np.log(SERVE))["kl"]


LABELLED = (
    ("Paris is the capital of France.", False),
    ("I'm sorry, but I can't help with that.", True),
    ("I cannot assist with this request.", True),
    ("As an AI, I have no opinion.", True),
    ("You can't divide by zero.", False),
)


@pytest.mark.parametrize(("answer", "refusal"), LABELLED)
def test_refusals_are_judged_as_labelled(answer: str, refusal: bool) -> None:
    """The shipped refusal judge agrees with the labels of the sample answers."""
    assert REFUSAL_JUDGE.judge(answer) is refusal


@pytest.mark.parametrize(
    ("answer", "good"), [('{"a": 1}', True), ('{"b": 1}', False), ("[1]", False), ('{"a": 1', False)]
)
def test_json_judge_checks_keys(answer: str, good: bool) -> None:
    """An answer parses only if it is whole JSON with the required keys."""
    assert JsonJudge(required=("a",)).judge(answer) is good


def test_gap_is_the_absolute_mean_of_paired_differences() -> None:
    """Two of four answers turned into refusals and one stopped refusing: the gap is 1/4."""
    yes, no = "I can't do that.", "Sure."
    found = judged_difference([no, no, yes, no], [yes, yes, no, no], REFUSAL_JUDGE)
    assert found.tolist() == [1.0, 1.0, -1.0, 0.0]
    assert absolute_mean_limits(found, 0.95).value == 0.25
    with pytest.raises(ValueError, match="paired"):
        judged_difference([no], [], REFUSAL_JUDGE)


def test_calibration_error_by_hand() -> None:
    """ECE of two bins with gaps 0.3 and 0.2 at shares 1/3 and 2/3 is their weighted mean."""
    confidence, correct = np.array([0.3, 0.8, 0.8]), np.array([False, True, True])
    assert calibration_error(confidence, correct, bins=2) == pytest.approx((0.3 + 2 * 0.2) / 3)
    assert ece_gap(confidence, confidence, correct, correct) == 0.0


def test_runtime_definitions() -> None:
    """Latencies are differences of instants in ms, and a failure is a 5xx answer or none at all."""
    assert latency_ms(1.0, 1.5) == pytest.approx(500.0)
    assert ttft_ms(1.0, 1.1) == pytest.approx(100.0)
    assert inter_token_ms(1.1, 1.5, 5) == pytest.approx(100.0)
    assert throughput_tokens_per_s(100.0, 4.0) == 25.0
    assert [failed(200), failed(429), failed(500), failed(None)] == [0.0, 0.0, 1.0, 1.0]


def test_observability_definitions() -> None:
    """Windows, missing fields, fingerprints and replays break exactly when they differ."""
    assert determinism_window([0.5, 0.5, 0.75]) == 0.25
    assert trace_fields_missing({"kernel": "a", "seed": 0}, ["kernel", "seed"]) == 0.0
    assert trace_fields_missing({"kernel": ""}, ["kernel"]) == 1.0
    assert fingerprint_mismatch({"dtype": "bf16"}, {"dtype": "bf16", "isa": "x"}) == 0.0
    assert fingerprint_mismatch({"dtype": "bf16"}, {"dtype": "fp16"}) == 1.0
    first = replay_signature([1, 2], [3], {"seed": "1", "top_p": "1"})
    assert replay_mismatch(first, replay_signature([1, 2], [3], {"top_p": "1", "seed": "1"})) == 0.0
    assert replay_mismatch(first, replay_signature([1], [2, 3], {"seed": "1", "top_p": "1"})) == 1.0
