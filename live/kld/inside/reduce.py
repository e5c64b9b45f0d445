"""Reduces two rows of log-probabilities to a few numbers per position. EDGE: torch.

The definitions are those of ``contracts.metrics.numeric``; everything is computed in float64.
"""

from __future__ import annotations

from typing import Any

import torch

from .orders import COLUMNS


def reduced(reference: Any, scores: Any, targets: Any) -> Any:
    """Tensor float64 [positions, columns] on the CPU, columns as in ``COLUMNS``.

    reference, scores: [positions, V], log-probabilities or logits at temperature 1; targets: int64
    [positions]. A position with scores that are no distribution (NaN, infinite) is NaN in all columns.
    """
    base = torch.log_softmax(reference.to(scores.device, torch.float64), dim=-1)
    mine = torch.log_softmax(scores.to(torch.float64), dim=-1)
    ratio = torch.where(base.isneginf() & mine.isneginf(), 0.0, base - mine)
    p, q = base.exp(), mine.exp()
    linf, l2 = _distances(base, mine, ratio)
    own = targets.to(scores.device).unsqueeze(-1)
    found = {
        "kl": _expected(p, ratio).clamp(min=0.0),
        "reverse_kl": _expected(q, -ratio).clamp(min=0.0),
        "tv": 0.5 * (p - q).abs().sum(dim=-1),
        "same_top": (base.argmax(dim=-1) == mine.argmax(dim=-1)).double(),
        "reference_logp": base.gather(-1, own).squeeze(-1),
        "candidate_logp": mine.gather(-1, own).squeeze(-1),
        "linf": linf,
        "l2": l2,
        "abs_log_w": _expected(q, ratio.abs()),
        "token_prob_error": _expected(q, ratio.abs().exp()),
    }
    table = torch.stack([found[name] for name in COLUMNS], dim=-1)
    broken = mine[:, :1].isnan() | base[:, :1].isnan()
    return torch.where(broken, float("nan"), table).cpu()


def _expected(weight: Any, value: Any) -> Any:
    """Weighted sum of ``value`` over the vocabulary; entries of weight 0 are ignored, even if infinite."""
    return torch.where(weight > 0.0, weight * value, 0.0).sum(dim=-1)


def _distances(base: Any, mine: Any, ratio: Any) -> tuple[Any, Any]:
    """Half the range, and the norm about the mean, of the difference over tokens that both allow."""
    allowed = ~(base.isneginf() | mine.isneginf())
    one_sided = (base.isneginf() ^ mine.isneginf()).any(dim=-1) | ~allowed.any(dim=-1)
    difference = torch.where(allowed, ratio, 0.0)
    mean = difference.sum(dim=-1, keepdim=True) / allowed.sum(dim=-1, keepdim=True)
    centred = torch.where(allowed, difference - mean, 0.0)
    highest = torch.where(allowed, ratio, -torch.inf).amax(dim=-1)
    lowest = torch.where(allowed, ratio, torch.inf).amin(dim=-1)
    inf = torch.full_like(highest, torch.inf)
    return (
        torch.where(one_sided, inf, 0.5 * (highest - lowest)),
        torch.where(one_sided, inf, centred.square().sum(dim=-1).sqrt()),
    )
