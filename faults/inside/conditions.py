"""Which requests of an engine step a fault strikes: facts about requests, and what a trigger asks of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .document import TriggerSpec


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What the engine knows of one request; None where it was there before anybody looked."""

    prompt_tokens: int | None = None
    prefix_hit: bool = False


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What holds for all requests of a step."""

    batch_size: int
    after_cancel: bool = False
    after_structured_output: bool = False


def mark_of(slice_name: str) -> str:
    """What the HTTP side adds to the id of a slice's requests, so that the engine knows them."""
    return f"-s{hashlib.sha256(slice_name.encode()).hexdigest()[:8]}"


def step_holds(trigger: TriggerSpec, step: StepFacts) -> bool:
    """True where the conditions on the whole step hold."""
    return (
        step.batch_size >= trigger.min_batch_size
        and (step.after_cancel or not trigger.after_cancel)
        and (step.after_structured_output or not trigger.after_structured_output)
    )


def request_holds(trigger: TriggerSpec, request_id: str, facts: RequestFacts, generated: int) -> bool:
    """True where the conditions on one request hold, ``generated`` tokens of whose answer are made."""
    return (
        generated >= trigger.min_generated_tokens
        and (facts.prefix_hit or not trigger.prefix_hit)
        and (not trigger.slice or mark_of(trigger.slice) in request_id)
        and _residue_holds(trigger, facts.prompt_tokens)
    )


def _residue_holds(trigger: TriggerSpec, prompt_tokens: int | None) -> bool:
    if not trigger.residue_block:
        return True
    if prompt_tokens is None:
        return False
    return trigger.residue_lowest <= prompt_tokens % trigger.residue_block <= trigger.residue_highest


class Requests:
    """The requests in an engine, followed from its scheduler's outputs."""

    def __init__(self) -> None:
        self._facts: dict[str, RequestFacts] = {}
        self._generated: dict[str, int] = {}
        self._structured: set[str] = set()
        self.scheduled: tuple[str, ...] = ()
        self.structured_seen = False
        """A request with a grammar has ended."""

    def follow(self, output: Any) -> None:
        """Take in one ``SchedulerOutput``: who is new, who runs, who has ended."""
        self.structured_seen |= not self._structured.isdisjoint(output.finished_req_ids)
        self._structured -= output.finished_req_ids
        for request_id in output.finished_req_ids:
            self._facts.pop(request_id, None)
            self._generated.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            tokens = new.prompt_token_ids
            hit = new.num_computed_tokens > 0
            self._facts[new.req_id] = RequestFacts(None if tokens is None else len(tokens), hit)
            self._generated[new.req_id] = 0
            if getattr(new.sampling_params, "structured_outputs", None) is not None:
                self._structured.add(new.req_id)
        cached = output.scheduled_cached_reqs
        self._generated.update(zip(cached.req_ids, cached.num_output_tokens, strict=True))
        self.scheduled = tuple(output.num_scheduled_tokens)

    def struck(self, trigger: TriggerSpec, step: StepFacts, among: Iterable[str]) -> list[str]:
        """Those ``among`` request ids that ``trigger`` strikes in this step."""
        if not step_holds(trigger, step):
            return []
        nobody = RequestFacts()
        return [
            name
            for name in among
            if request_holds(trigger, name, self._facts.get(name, nobody), self._generated.get(name, 0))
        ]
