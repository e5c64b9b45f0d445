"""The numbers of a policy's and a pool's status, and short texts of them. Pure.

The texts are for printer columns of ``kubectl get``, which show only the first entry of a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from k8s.operator.route_loop import RouteLoop

#: Decimals of a share; a share that rounds to 0 is left out.
_DECIMALS = 3


def policy_body(loop: RouteLoop | None) -> dict[str, Any]:
    """Numbers of a policy's status: the policy that drives, the table's version, and every slice."""
    if loop is None:
        return {}
    layout, state = loop.setup.layout, loop.controller.state
    turn = loop.standing.turn
    demoted = turn is not None and turn.decision is not None and bool(turn.decision.demoted[0])
    driving = loop.setup.baseline if demoted and loop.setup.baseline is not None else loop.setup.policy
    rows = []
    for name, row in zip(layout.slices, state.table[0], strict=True):
        weights = {kernel: round(float(w), 4) for kernel, w in zip(layout.kernels, row[:-1], strict=True)}
        kernel = max(weights, key=lambda one: weights[one])
        listed = [{"name": one, "weight": weight} for one, weight in weights.items()]
        shed = round(float(row[-1]), 4)
        rows.append(
            {"name": name, "kernel": kernel, "weight": weights[kernel], "shed": shed, "weights": listed}
        )
    told = policy_summary(rows)
    version, recent = int(state.version[0]), loop.recent.plain()
    return {
        "driving": driving.policy_id,
        "version": version,
        "slices": rows,
        **told,
        **({"decisions": recent} if recent else {}),
    }


def pool_body(loop: RouteLoop) -> dict[str, Any]:
    """Numbers of a pool's status per kernel. A kernel's weight is the mean over slices, not over traffic."""
    decision = None if loop.standing.turn is None else loop.standing.turn.decision
    if decision is None:
        return {}
    layout, contract, table = loop.setup.layout, loop.setup.contract, loop.controller.state.table[0]
    rows = []
    for k, name in enumerate(layout.kernels):
        excess = np.where(decision.judgement.alarm[0, k], decision.judgement.excess[0, k], 0.0).max(axis=0)
        worst = int(excess.argmax()) if excess.size and excess.max() > 0.0 else -1
        rows.append(
            {
                "name": name,
                "ready": int(decision.observation.ready[0, k]),
                "weight": round(float(table[:, k].mean()), 4),
                "health": round(float(decision.judgement.health[0, k].max()), 3),
                "clause": contract.clause_ids[worst] if worst >= 0 else "",
            }
        )
    return {"kernels": rows, **pool_summary(rows, float(table[:, -1].mean()))}


def shares_text(weights: Mapping[str, float]) -> str:
    """Shares (0 to 1) as ``fp8 0.7, bf16 0.3``. Names without a share are left out; "" if none has any."""
    rounded = {name: round(weight, _DECIMALS) for name, weight in weights.items()}
    return ", ".join(f"{name} {share:g}" for name, share in rounded.items() if share > 0.0)


def pool_summary(rows: Sequence[Mapping[str, Any]], shed: float) -> dict[str, Any]:
    """Summary of ``rows``, the kernels in a pool's status. shed: share that is refused, 0 to 1.

    The worst kernel is the one with the highest health H; among equals, one with a clause in alarm. It is ""
    if no kernel has H above 0 or a clause in alarm.
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
    """Summary of ``rows``, the slices in a policy's status."""
    weights = [
        shares_text({**{one["name"]: one["weight"] for one in row["weights"]}, "(refused)": row["shed"]})
        for row in rows
    ]
    return {
        "kernels": ", ".join(f"{row['name']} {row['kernel']}" for row in rows),
        "weights": "; ".join(f"{row['name']}: {text}" for row, text in zip(rows, weights, strict=True)),
    }
