"""A status in a few words, for ``kubectl get``: of a list a column shows the first entry alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Decimals of a share; what rounds to nothing is left out.
_DECIMALS = 3


def shares_text(weights: Mapping[str, float]) -> str:
    """``fp8 0.7, bf16 0.3`` of shares, 0 to 1; who gets nothing is left out, "" where nobody gets any."""
    rounded = {name: round(weight, _DECIMALS) for name, weight in weights.items()}
    return ", ".join(f"{name} {share:g}" for name, share in rounded.items() if share > 0.0)


def pool_summary(rows: Sequence[Mapping[str, Any]], shed: float) -> dict[str, Any]:
    """What ``rows``, kernels as a pool's status lists them, come to. shed: share that is refused, 0 to 1.

    The worst kernel is the one of the highest health H, of equals one with a clause in alarm; "" where none
    has any excess.
    """
    worst = max(rows, key=lambda row: (row["health"], bool(row["clause"])))
    named = worst["health"] > 0.0 or bool(worst["clause"])
    shares = {str(row["name"]): float(row["weight"]) for row in rows}
    return {
        "weights": shares_text({**shares, "(refused)": shed}),
        "worstKernel": worst["name"] if named else "",
        "worstHealth": worst["health"],
        "worstClause": worst["clause"],
    }


def policy_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What ``rows``, slices as a policy's status lists them, come to."""
    weights = [
        shares_text({**{one["name"]: one["weight"] for one in row["weights"]}, "(refused)": row["shed"]})
        for row in rows
    ]
    return {
        "kernels": ", ".join(f"{row['name']} {row['kernel']}" for row in rows),
        "weights": "; ".join(f"{row['name']}: {text}" for row, text in zip(rows, weights, strict=True)),
    }
