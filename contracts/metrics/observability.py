"""Observability metrics (family O): whether requests can be traced, attributed to a build and replayed.

Online they arrive as ratios per replica and are judged as the share of observations that break the rule.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from contracts.metrics.registry import register_metric
from contracts.telemetry import Source


@register_metric(
    "determinism_window",
    family="O",
    unit="nats",
    judgement="per_observation",
    columns={"none": "determinism_window"},
    source=Source.OFFLINE,
)
def determinism_window(repeats: Sequence[float]) -> float:
    """Range of one prompt's value over its repeats; 0 for a kernel that is bit-exact between runs."""
    return max(repeats) - min(repeats)


@register_metric(
    "required_trace_fields",
    family="O",
    unit="ratio",
    judgement="per_observation",
    columns={"none": "trace_fields_missing"},
    source=Source.TRACE_FIELDS,
)
def trace_fields_missing(record: Mapping[str, object], required: Sequence[str]) -> float:
    """1 if an answer's trace lacks a required field (absent, None or empty), else 0."""
    return float(any(record.get(name) in (None, "") for name in required))


@register_metric(
    "fingerprint_match",
    family="O",
    unit="ratio",
    judgement="per_observation",
    columns={"none": "fingerprint_mismatch"},
    source=Source.FINGERPRINT,
)
def fingerprint_mismatch(expected: Mapping[str, str], seen: Mapping[str, str]) -> float:
    """1 if any field of a replica's fingerprint differs from the expected one, else 0."""
    return float(any(seen.get(name) != value for name, value in expected.items()))


@register_metric(
    "replay_signature",
    family="O",
    unit="ratio",
    judgement="per_observation",
    columns={"none": "replay_mismatch"},
    source=Source.OFFLINE,
)
def replay_mismatch(logged: str, replayed: str) -> float:
    """1 if replaying a logged request gives another signature, else 0."""
    return float(logged != replayed)


def replay_signature(
    prompt_ids: Sequence[int], output_ids: Sequence[int], settings: Mapping[str, str]
) -> str:
    """SHA-256 over prompt tokens, output tokens and sampling settings, independent of key order."""
    content = [list(map(int, prompt_ids)), list(map(int, output_ids)), dict(settings)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
