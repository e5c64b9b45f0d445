"""A commented contract from a few answers: slices with their objectives, and which promises are hard.

The thresholds are a starting point: what the shipped kernels kept when they were measured, or the slice's own
objective. ``selvage contract propose`` derives them from the user's own measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contracts.errors import DocumentError, refusal
from contracts.loading.scalars import needs_quotes

#: Objectives of a slice, in ms, and the promise that keeps each.
OBJECTIVES = ("ttft_ms", "latency_ms", "inter_token_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSlice:
    """One slice. objectives: ms by name, of ``OBJECTIVES``; without one, the slice promises no latency."""

    name: str
    objectives: dict[str, float]
    default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisedClause:
    """What may stand in a contract; a soft one has ``budget`` and ``level``, a hard one 0 and L3."""

    name: str
    clause_id: str
    family: str
    metric: str
    threshold: float
    unit: str
    level: str
    budget: float
    distance: bool  # of distributions, so that an estimator is named
    single: bool  # judged observation by observation, so that a hard one has a null rate
    remediation: str
    reason: str


PROMISES: tuple[PromisedClause, ...] = (
    PromisedClause(
        name="kl", clause_id="N-kl-mean", family="N", metric="kl_mean", threshold=2e-3, unit="nats",
        level="L2", budget=0.05, distance=True, single=False,
        remediation="Move this slice to the known-good kernel.",
        reason="Mean KL to the reference. A start: bfloat16 measured 8e-5, int8 1e-3, four-bit weights 1e-2.",
    ),
    PromisedClause(
        name="tv", clause_id="N-tv-mean", family="N", metric="tv_mean", threshold=0.02, unit="probability",
        level="L2", budget=0.05, distance=True, single=False,
        remediation="Prefer a kernel of higher precision for this slice.",
        reason="Mean total variation bounds what any use of an answer can lose; 0.02 is two percent of it.",
    ),
    PromisedClause(
        name="flip", clause_id="N-top1-flip", family="N", metric="top1_flip", threshold=0.04, unit="ratio",
        level="L2", budget=0.05, distance=True, single=False,
        remediation="Prefer a kernel of higher precision, above all for greedy decoding.",
        reason="Share of positions whose likeliest token changed. A start: int8 measured 3 %.",
    ),
    PromisedClause(
        name="failures", clause_id="R-failure-rate", family="R", metric="failure_rate", threshold=0.02,
        unit="ratio", level="L2", budget=0.05, distance=False, single=False,
        remediation="Take the failing replicas out of rotation.",
        reason="Requests that errored, were reset or timed out. 149 clean requests show 2 %.",
    ),
    PromisedClause(
        name="fingerprint", clause_id="O-fingerprint", family="O", metric="fingerprint_match", threshold=0.0,
        unit="ratio", level="L3", budget=0.01, distance=False, single=True,
        remediation="Roll the replica back to the contracted build.",
        reason="A replica that runs another build was not measured: nothing above speaks of it.",
    ),
)  # fmt: skip
PROMISE_NAMES = (*(promise.name for promise in PROMISES), *OBJECTIVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAnswers:
    """hard: (promise, slice) pairs, the slice "" for every one. estimator: full_vocab or top_k."""

    name: str
    slices: tuple[TemplateSlice, ...]
    hard: tuple[tuple[str, str], ...] = (("fingerprint", ""),)
    estimator: str = "full_vocab"

    def is_hard(self, promise: str, slice_name: str) -> bool:
        """Whether ``promise`` is hard on the slice."""
        return any(name == promise and place in ("", slice_name) for name, place in self.hard)


def parse_slice(text: str) -> TemplateSlice:
    """``NAME[:ttft_ms=2000,latency_ms=15000,default]``; DocumentError for anything else."""
    name, _, rest = text.partition(":")
    objectives, default = {}, False
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, _, value = part.partition("=")
        if part == "default":
            default = True
            continue
        if key not in OBJECTIVES:
            raise _refusal("--slice", f"{', '.join(OBJECTIVES)} or default", repr(part))
        objectives[key] = _milliseconds(key, value)
    first, whole = objectives.get("ttft_ms", 0.0), objectives.get("latency_ms", math.inf)
    if first > whole:
        expected = f"ttft_ms of at most latency_ms={whole:g}, because the first token is part of the answer"
        raise _refusal("--slice", expected, f"ttft_ms={first:g}")
    return TemplateSlice(name=name.strip(), objectives=objectives, default=default)


def _milliseconds(key: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 < found < math.inf:
        raise _refusal("--slice", f"{key}=MS with milliseconds above 0", repr(text))
    return found


def parse_hard(text: str, slices: Sequence[TemplateSlice]) -> tuple[str, str]:
    """``PROMISE`` or ``PROMISE/SLICE``; DocumentError for an unknown one, and for one that no slice makes."""
    promise, _, place = text.partition("/")
    if promise not in PROMISE_NAMES:
        raise _refusal("--hard", f"one of {', '.join(PROMISE_NAMES)}", repr(promise))
    bound = [one for one in slices if place in ("", one.name)]
    if not bound:
        raise _refusal("--hard", f"one of the slices {', '.join(one.name for one in slices)}", repr(place))
    if promise in OBJECTIVES and not any(promise in one.objectives for one in bound):
        named = place or bound[0].name
        hint = f"give it one, e.g. --slice {named}:{promise}=2000"
        raise _refusal("--hard", f"a slice with an objective {promise}", repr(text), hint)
    return promise, place


def contract_text(answers: TemplateAnswers) -> str:
    """The contract as commented YAML."""
    return "\n".join([*_head(answers), *_slices(answers), *_clauses(answers), *_TAIL]) + "\n"


def _head(answers: TemplateAnswers) -> list[str]:
    return [
        "# What every kernel must keep, slice by slice. Written by `selvage contract init`; change it.",
        f"#   selvage contract validate {answers.name}.yaml",
        "apiVersion: selvage.dev/v1alpha1",
        "kind: KernelContract",
        "metadata:",
        f"  name: {_word(answers.name)}",
        "spec:",
        f"  description: Promises for {', '.join(one.name for one in answers.slices)}.",
        "  temperature: 1.0",
    ]


def _slices(answers: TemplateAnswers) -> list[str]:
    """Slices; if none of them is the default, the last one takes requests without a header."""
    marked = any(one.default for one in answers.slices)
    lines = ["  # Recognised by a request header. The lowest priority is shed first; the default slice takes"]
    lines += [
        "  # requests without a known header, and keeps the hard promises of every other one.",
        "  slices:",
    ]
    for place, one in enumerate(answers.slices):
        default = one.default if marked else place == len(answers.slices) - 1
        lines += [f"    - name: {_word(one.name)}", f"      priority: {100 - 10 * place}"]
        lines += ["      default: true"] if default else []
        lines += ["      slo:  # per request, ms"] if one.objectives else []
        lines += [f"        {key}: {value}" for key, value in one.objectives.items()]
    return lines


def _clauses(answers: TemplateAnswers) -> list[str]:
    lines = [
        "  # A hard clause (budget 0) is never broken knowingly: the shield closes the kernel to the slice.",
        "  # A soft one may be exceeded at the rate of its budget. L1 is a nuisance, L3 ends serving there.",
        "  clauses:",
    ]
    for promise in (*PROMISES, *_latency_promises(answers)):
        for hard in (True, False):
            lines += _clause(answers, promise, hard)
    return lines


def _latency_promises(answers: TemplateAnswers) -> Iterator[PromisedClause]:
    """One promise for each objective and value that some slice has."""
    for key in OBJECTIVES:
        values = dict.fromkeys(s.objectives[key] for s in answers.slices if key in s.objectives)
        for number, value in enumerate(values):
            short = key.removesuffix("_ms").replace("_", "-")
            yield PromisedClause(
                name=key,
                clause_id=f"R-{short}-p95" + (f"-{number + 1}" if number else ""),
                family="R",
                metric=f"{key}_p95",
                threshold=value,
                unit="ms",
                level="L2",
                budget=0.05,
                distance=False,
                single=False,
                remediation="Shift load to kernels with room; scale up.",
                reason="The slice's own objective, kept by nineteen requests of twenty.",
            )


def _clause(answers: TemplateAnswers, promise: PromisedClause, hard: bool) -> list[str]:
    """The clause for the slices on which ``promise`` is hard, or is not; no clause where there are none."""
    bound = [
        one
        for one in answers.slices
        if promise.name not in OBJECTIVES or one.objectives.get(promise.name) == promise.threshold
    ]
    names = [one.name for one in bound if answers.is_hard(promise.name, one.name) == hard]
    if not names:
        return []
    split = hard and len(names) < len(bound)
    lines = [f"    - id: {promise.clause_id}{'-hard' if split else ''}", f'      family: "{promise.family}"']
    lines.append(f"      metric: {promise.metric}")
    if promise.distance:
        lines.append(f"      estimator: {answers.estimator}")
    lines += [f"      threshold: {promise.threshold}", f"      unit: {promise.unit}"]
    if len(names) < len(answers.slices):
        lines.append(f"      slices: [{', '.join(map(_word, names))}]")
    lines.append(f"      budget: {0.0 if hard else promise.budget}" + ("  # hard" if hard else ""))
    if hard and promise.single:
        lines.append("      null_rate: 0.0  # one mismatch is a violation")
    return [
        *lines,
        f"      level: {'L3' if hard else promise.level}",
        f"      remediation: {promise.remediation}",
        "      reason: >-",
        f"        {promise.reason}",
    ]


_TAIL = (
    "  # Health H of a kernel on a slice: above guard it takes no new traffic, above fallback it loses it.",
    "  escalation:",
    "    guard_threshold: 0.5",
    "    fallback_threshold: 2.0",
    "    when_uncertified: serve_known_good  # or shed",
    "  # How much evidence an alarm takes, and how many false switches a slice may see in a month.",
    "  detection:",
    "    window_s: 60.0",
    "    min_samples: 30",
    "    alarm_confidence: 0.999",
    "    false_switch_budget_per_slice_month: 1.0",
)


def _word(text: str) -> str:
    return f'"{text}"' if needs_quotes(text) else text


def _refusal(path: str, expected: str, actual: str, hint: str = "") -> DocumentError:
    example = hint or "e.g. --slice support:ttft_ms=2000,default --slice sql --hard kl/sql"
    return refusal("selvage contract init", expected, actual, example, path=path)
