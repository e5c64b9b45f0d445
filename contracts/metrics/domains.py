"""Which values a column can have at all: what a log may claim to have seen.

A value outside is a broken exporter or a wrong unit, and judging it would only make the other observations
look more spread out than they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Values from ``low`` to ``high``; ``whole``: nothing between."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def holds(self, value: float) -> bool:
        """True where ``value`` can occur."""
        return self.low <= value <= self.high and (not self.whole or value == int(value))

    def __str__(self) -> str:
        if self.whole:
            return " or ".join(f"{value}" for value in range(int(self.low), int(self.high) + 1))
        return f"{self.low:g} to {self.high:g}" if math.isfinite(self.high) else f"at least {self.low:g}"


_EVENT, _SHARE, _SIZE = Domain(low=0.0, high=1.0, whole=True), Domain(low=0.0, high=1.0), Domain(low=0.0)
_DIFFERENCE, _ANY = Domain(low=-1.0, high=1.0, whole=True), Domain()

#: Columns without their estimator. ``w_log_w``, the rewards' gaps and advantages have either sign.
_DOMAINS: dict[str, Domain] = {
    **dict.fromkeys(("kl_mean", "kl_max", "linf_mean", "linf_max", "l2_mean", "abs_log_w"), _SIZE),
    **dict.fromkeys(("tv_mean", "tv_max", "top1_flip", "top1_overlap", "top5_overlap"), _SHARE),
    **dict.fromkeys(("top10_overlap", "kv_used_ratio", "lost_mass"), _SHARE),
    **dict.fromkeys(("latency_ms", "ttft_ms", "inter_token_ms", "throughput_tokens_per_s"), _SIZE),
    **dict.fromkeys(("peak_memory_bytes", "determinism_window", "score_norm", "step_time_ratio"), _SIZE),
    **dict.fromkeys(
        ("generation_kl", "generation_gap", "pair_kl", "pair_gap", "decode_kl", "greedy_gap"), _SIZE
    ),
    **dict.fromkeys(("answer_broken", "nonce_crossed", "grammar_invalid", "surprise_outside"), _EVENT),
    **dict.fromkeys(("failed", "fingerprint_mismatch", "trace_fields_missing", "replay_mismatch"), _EVENT),
    **dict.fromkeys(("refusal_difference", "parse_difference"), _DIFFERENCE),
    "token_prob_error": Domain(low=1.0),
}


def domain_of(column: str) -> Domain:
    """Values that ``column`` ("<column>@<estimator>") can have; every number for one of a plug-in."""
    return _DOMAINS.get(column.partition("@")[0], _ANY)
