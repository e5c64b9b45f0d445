"""All workers of one engine asked at once, and what they answer made one.

An engine has one worker for each rank of its parallel layout. A fault is in force on every rank, or it is not
the fault that was asked for; each rank's own answer stands under ``ranks``, in the order of ranks.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

from .gate import CallRefusedError

Answer = dict[str, Any]


async def ask_ranks(engine: Any, method: str, within_s: float, *given: Any) -> Answer:
    """What all workers of ``engine`` (vLLM's engine client) answer, as one.

    ``CallRefusedError`` where one of them refuses, or where not all have answered within ``within_s``.
    """
    # No time limit goes with the call: the engine would give up on a worker that is late, whose answer then
    # stays in its queue and is taken for that of the next call, or of the next step.
    call = engine.collective_rpc(method, args=given)
    try:
        answers = await asyncio.wait_for(call, within_s)
    except TimeoutError:
        raise CallRefusedError(f"the engine did not answer within {within_s:g} s") from None
    except Exception as problem:
        raise CallRefusedError(f"the engine answers no call: {type(problem).__name__}") from problem
    refused = [answer["refused"] for answer in answers if "refused" in answer]
    if refused:
        raise CallRefusedError(refused[0])
    return joined(answers)


def joined(answers: list[Answer]) -> Answer:
    """One answer for those of all ranks."""
    names = dict.fromkeys(name for answer in answers for name in answer)
    whole = {name: _JOIN[name]([answer[name] for answer in answers if name in answer]) for name in names}
    return whole | {"ranks": answers}


def _digest(canaries: list[str]) -> str:
    """One canary that changes where any rank's does; of one rank its own."""
    return canaries[0] if len(canaries) == 1 else hashlib.sha256("".join(canaries).encode()).hexdigest()


def _faults(ranks: list[list[Answer]]) -> list[Answer]:
    """What is in force on any rank, with as many hits as every rank has counted."""
    known = {fault["name"]: fault for rank in ranks for fault in rank}
    counted = [{fault["name"]: fault["hits"] for fault in rank} for rank in ranks]
    return [fault | {"hits": min(rank.get(name, 0) for rank in counted)} for name, fault in known.items()]


def _union(ranks: list[list[str]]) -> list[str]:
    return list(dict.fromkeys(name for rank in ranks for name in rank))


#: How each field of an answer becomes one for all ranks.
_JOIN: dict[str, Callable[[list[Any]], Any]] = {
    "already": all,
    "layers": max,
    "canary_before": _digest,
    "canary_after": _digest,
    "values_changed": sum,
    "free_before": min,
    "free_after": min,
    "after_s": max,
    "undone": max,
    "canary": _digest,
    "is_clean": min,
    "faults": _faults,
    "expired": _union,
    "lease_left_s": min,
}
