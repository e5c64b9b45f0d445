"""Contracts as arrays: judgement by metric, place in the telemetry, scope by slice.

Serving overhead: nothing by default, longer steps, closer objectives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from contracts.compiled.build import (
    compile_contract,
    request_delay_s,
    served_step_s,
)
from contracts.compiled.carried import HARDLY_LATER, HEADROOM_RATIO, LEAST_LOAD
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.compiled.steady_state import Demand, EngineModel, capacity_rps, steady_limits_rps, step_s
from contracts.documents import KernelContract
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime
from contracts.errors import DocumentError
from contracts.loading.loader import document_sha256, load_text
from contracts.metrics import COLUMN_NAMES, GENERATION_COLUMNS, PASSIVE_COLUMNS
from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, Source
from tests.support.documents.document_strategies import contracts
from tests.support.documents.rule_cases import dump
from tests.support.fleets.synthetic import contract_document

SLICES = ("code", "prose", "numbers")
#: Every column that a probe may carry.
PROBED = (*COLUMN_NAMES, *GENERATION_COLUMNS, *PASSIVE_COLUMNS)


def layout(slices: tuple[str, ...] = SLICES, columns: tuple[str, ...] = PROBED) -> FleetLayout:
    """Two kernels with one replica each."""
    return FleetLayout(
        kernels=("a", "b"),
        slices=slices,
        replicas=("a-0", "b-0"),
        replica_kernel=np.array([0, 1], dtype=np.int64),
        probe_metrics=columns,
        known_good=0,
    )


def clause(metric: str, **fields: Any) -> dict[str, Any]:
    """One hard L3 clause on ``metric``, with changes."""
    row = {
        "id": metric,
        "family": "N",
        "metric": metric,
        "estimator": "full_vocab",
        "threshold": 0.01,
        "budget": 0.0,
        "level": "L3",
        "remediation": "r",
        "reason": "r",
    }
    return {key: value for key, value in (row | fields).items() if value is not None}


def contract(*clauses: dict[str, Any]) -> KernelContract:
    """A contract over ``SLICES``; prose is the default slice."""
    tree = contract_document("made")
    spec: Any = tree["spec"]
    spec["slices"] = [
        {"name": name, "default": name == "prose", "priority": 10 * place, "slo": {"ttft_ms": 100.0 + place}}
        for place, name in enumerate(SLICES)
    ]
    spec["clauses"] = list(clauses)
    document = load_text(dump(tree), "made.yaml")
    assert isinstance(document, KernelContract)
    return document


def compiled(*clauses: dict[str, Any], slices: tuple[str, ...] = SLICES) -> CompiledContract:
    """The clauses as arrays."""
    return compile_contract(contract(*clauses), layout(slices))


def test_a_mean_is_judged_by_its_mean() -> None:
    """A mean clause reads its probe column, keeps threshold and clip, and is no rate."""
    found = compiled(clause("kl_mean", clip=0.1, threshold=1e-3), clause("tv_mean", budget=0.05))
    assert found.is_rate.tolist() == [False, False]
    assert found.column.tolist() == [COLUMN_NAMES.index(f"{m}_mean@full_vocab") for m in ("kl", "tv")]
    assert found.clip.tolist() == [0.1, np.inf]
    assert found.threshold.tolist() == [1e-3, 0.01]
    assert found.hard.tolist() == [True, False]
    assert found.source.tolist() == [Source.PROBE] * 2


def test_a_percentile_is_judged_by_the_share_it_leaves() -> None:
    """A pXX clause tolerates exactly 1 - XX/100 of the observations over its threshold."""
    found = compiled(clause("kl_p99"), clause("kl_p95", budget=0.05))
    assert found.is_rate.all()
    assert found.rate_limit.tolist() == [0.01, 0.05]


def test_single_units_are_judged_by_budget_or_null_rate() -> None:
    """A per-observation clause tolerates its budget when soft and its null rate when hard."""
    found = compiled(clause("kl", budget=0.2), clause("tv", null_rate=0.001), clause("tv_max", null_rate=0.0))
    assert found.is_rate.all()
    assert found.rate_limit.tolist() == [0.2, 0.001, 0.0]
    assert found.hard.tolist() == [False, True, True]


def test_at_least_metrics_have_the_other_sense() -> None:
    """Overlap is good when large: sense -1."""
    assert compiled(clause("top5_overlap", threshold=0.9), clause("kl_mean")).sense.tolist() == [-1.0, 1.0]


def test_each_source_has_its_place() -> None:
    """Runtime and observability clauses name their telemetry; clauses not observable online are OFFLINE."""
    plain = {"estimator": "none"}
    found = compiled(
        clause("failure_rate", **plain),
        clause("kv_used_ratio", **plain),
        clause("fingerprint_match", threshold=0.0, null_rate=0.0, **plain),
        clause("required_trace_fields", threshold=0.0, budget=0.1, **plain),
        clause("refusal_rate_gap", **plain),
        clause("ttft_ms_p95", threshold=300.0, **plain),
    )
    expected = ("FAILED", "KV_USED", "FINGERPRINT", "TRACE_FIELDS", "OFFLINE", "LATENCY")
    assert found.source.tolist() == [Source[name] for name in expected]
    assert found.column.tolist() == [-1] * 5 + [LATENCY_FAMILIES.index("ttft_ms")]
    assert HISTOGRAM_EDGES_MS[found.edge[5]] == 500.0
    assert found.edge.tolist()[:5] == [-1] * 5


def test_scope_follows_the_named_slices() -> None:
    """A clause applies to the slices it names, or to all."""
    found = compiled(clause("kl_mean"), clause("tv_mean", slices=["code", "numbers"], budget=0.1))
    assert found.applies.tolist() == [[True, True, True], [True, False, True]]


def test_the_default_slice_inherits_hard_clauses_only() -> None:
    """A request without a header keeps the hard promises of every slice, not the soft ones."""
    found = compiled(clause("kl_mean", slices=["numbers"]), clause("tv_mean", slices=["numbers"], budget=0.1))
    assert found.applies[:, SLICES.index("prose")].tolist() == [True, False]
    assert found.applies[:, SLICES.index("code")].tolist() == [False, False]


def test_of_several_hard_clauses_the_strictest_is_inherited() -> None:
    """Where two slices promise the same metric, the default slice gets the stricter one, once."""
    found = compiled(
        clause("kl_mean", id="loose", slices=["code"], threshold=0.02),
        clause("kl_mean", id="strict", slices=["numbers"], threshold=0.01),
        clause("kl_mean", id="twin", slices=["code", "numbers"], threshold=0.01),
        clause("top5_overlap", id="low", slices=["code"], threshold=0.8),
        clause("top5_overlap", id="high", slices=["numbers"], threshold=0.9),
    )
    assert found.applies[:, SLICES.index("prose")].tolist() == [False, True, False, False, True]


def test_a_weaker_level_does_not_replace_a_stronger_one() -> None:
    """A stricter threshold at L1 leaves the looser one at L3 inherited as well."""
    found = compiled(
        clause("kl_mean", id="l3", slices=["code"], threshold=0.02),
        clause("kl_mean", id="l1", slices=["numbers"], threshold=0.01, level="L1"),
    )
    assert found.applies[:, SLICES.index("prose")].tolist() == [True, True]


def test_unknown_slices_belong_to_the_default_slice() -> None:
    """A slice that the contract does not name has the default slice's clauses and objectives."""
    found = compiled(clause("kl_mean", slices=["numbers"]), slices=("prose", "poems", "code"))
    assert found.applies.tolist() == [[True, True, False]]
    assert found.slo_ms[0].tolist() == found.slo_ms[1].tolist()
    assert found.priority.tolist() == [10, 10, 0]


def test_objectives_are_per_slice_and_family() -> None:
    """slo_ms follows the order of the latency families; no objective is infinite."""
    found = compiled(clause("kl_mean"))
    assert found.slo_ms.tolist() == [[np.inf, 100.0 + place, np.inf] for place in range(3)]


def test_missing_columns_are_named_by_clause() -> None:
    """A layout whose probes lack a clause's column is refused, naming each such clause and the column."""
    made = contract(clause("kl_mean"), clause("tv_mean"), clause("top1_flip"))
    with pytest.raises(DocumentError) as caught:
        compile_contract(made, layout(columns=("tv_mean@full_vocab",)))
    assert [p.path for p in caught.value.problems] == [
        "spec.clauses[0] (kl_mean)",
        "spec.clauses[2] (top1_flip)",
    ]
    assert "kl_mean@full_vocab" in str(caught.value)


@given(contracts())
def test_every_valid_contract_compiles(document: KernelContract) -> None:
    """Each valid contract becomes arrays of one entry per clause, with its own hash."""
    names = tuple(slice_.name for slice_ in document.spec.slices)
    found = compile_contract(document, layout(names))
    count = len(document.spec.clauses)
    assert found.sha256 == document_sha256(document)
    assert found.applies.shape == (count, len(names))
    assert found.applies.any(axis=1).all()
    for array in (found.threshold, found.rate_limit, found.clip, found.level, found.edge, found.sense):
        assert array.shape == (count,)
    assert ((found.rate_limit >= 0.0) & (found.rate_limit <= 1.0)).all()
    assert (found.source[found.edge >= 0] == Source.LATENCY).all()


STEP = StepTime(
    base_ms=7.3,
    per_prefill_token_ms=0.031,
    per_decode_sequence_ms=0.21,
    per_context_token_ms=0.0007,
    relative_error=0.0,
    measured_points=8,
)
MODEL = EngineModel(
    step_s=served_step_s(STEP)[None],
    sequences=np.array([64.0]),
    kv_tokens=np.array([1e5]),
    inter_token_s=0.05,
    first_token_s=0.5,
    whole_s=6.0,
    demand=Demand(prompt_tokens=300.0, output_tokens=64.0),
)


def _carried(model: EngineModel) -> float:
    return capacity_rps(model, model.step_s[0], model.demand, 0)


def test_without_a_serving_path_the_coefficients_are_unchanged() -> None:
    """A profile without a serving path, or with one of zeros, has the engine's own coefficients."""
    plain = np.array([7.3, 0.031, 0.21, 0.0007]) / 1000.0
    assert served_step_s(STEP).tobytes() == plain.tobytes()
    assert served_step_s(STEP, ServingPath()).tobytes() == plain.tobytes()
    assert request_delay_s(None) == 0.0
    assert _carried(replace(MODEL, request_s=(0.0,))) == _carried(MODEL)


def test_step_and_token_overhead_are_part_of_the_step() -> None:
    """Step and token overhead lengthen the step, the request overhead does not."""
    added = ServingPath(request_overhead_ms=20.0, step_overhead_ms=1.7, token_overhead_ms=0.5)
    longer = served_step_s(STEP, added) - served_step_s(STEP)
    assert longer == pytest.approx([1.7e-3, 0.0, 0.5e-3, 0.0], abs=1e-12)
    assert request_delay_s(added) == pytest.approx(0.02)


def test_every_term_reduces_the_capacity() -> None:
    """Each term reduces a replica's capacity.

    Where they use up the objectives, from half to all of the capacity is kept at which answers are hardly
    later, as shedding cannot restore the objectives.
    """
    healthy = _carried(MODEL)
    slowed = served_step_s(STEP, ServingPath(step_overhead_ms=2.0, token_overhead_ms=0.5))[None]
    assert _carried(replace(MODEL, step_s=slowed)) < healthy
    assert _carried(replace(MODEL, request_s=(0.3,))) < healthy
    alone_s, each_s = (step_s(MODEL.step_s[0], MODEL.demand, batch) for batch in (1.0, 2.0))
    hardly = 1.0 + (HARDLY_LATER - 1.0) * alone_s / (each_s - alone_s)
    alone = steady_limits_rps(MODEL.step_s, replace(MODEL, sequences=np.full(1, hardly)), MODEL.demand)[0]
    eaten = _carried(replace(MODEL, request_s=(7.0,)))
    assert LEAST_LOAD <= eaten / (HEADROOM_RATIO * alone) <= 1.0
    assert eaten < 0.3 * healthy


def test_each_kernel_has_its_own_serving_path() -> None:
    """A kernel's objectives are reduced by its own delay, the fleet's by the longest."""
    two = replace(MODEL, request_s=(0.0, 0.1))
    assert two.objectives_of(0) == MODEL.objectives
    assert two.objectives == two.objectives_of(1)
    assert two.objectives.whole_s == pytest.approx(5.9)
    assert two.objectives.inter_token_s == 0.05
