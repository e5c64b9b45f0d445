"""Delivers changes to webhooks at least once, in order per hook, with a bounded number of tries.

Nothing waits for a delivery. A new leader repeats what its predecessor did not deliver, because the status
names the newest change that was told.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from contracts.documents.promotion import Webhook
from k8s.operator.promotion.calls import Call, HookAnswer, HookCaller, answer_of

_LOG = logging.getLogger(__name__)
#: Maximum number of calls for one change; the interval between them doubles each time.
TRIES = 8
#: Maximum interval between two calls.
MOST_WAIT_S = 3600.0
#: Maximum number of changes queued for one hook; beyond it, the oldest is dropped.
MOST_WAITING = 32


@dataclass(slots=True)
class _Telling:
    hook: Webhook
    body: bytes
    tries: int = 0
    pending: Future[HookAnswer] | None = None
    tried_at_s: float = float("-inf")

    def due(self, now_s: float) -> bool:
        wait_s = min(self.hook.every_s * 2.0 ** (self.tries - 1), MOST_WAIT_S) if self.tries else 0.0
        return self.pending is None and not 0.0 <= now_s - self.tried_at_s < wait_s


class Outbox:
    """Queues of all promotions of one operator. Only the loop's thread calls this class."""

    def __init__(self, caller: HookCaller) -> None:
        self._caller = caller
        self._queues: dict[tuple[str, str], deque[_Telling]] = {}

    def put(self, promotion: str, hook: Webhook, body: bytes) -> None:
        """Queue a change of ``promotion`` for ``hook``; body: JSON."""
        queue = self._queues.setdefault((promotion, hook.name), deque())
        if len(queue) >= MOST_WAITING:
            _give_up(promotion, queue.popleft(), "too many changes wait")
        queue.append(_Telling(hook, body))

    def delivered(self, promotion: str) -> bool:
        """Whether nothing is queued for ``promotion``."""
        return not any(name == promotion for name, _ in self._queues)

    def step(self, now_s: float) -> None:
        """Read answers, and make the calls that are due. Never waits."""
        for key in list(self._queues):
            queue = self._queues[key]
            self._step(key[0], queue, now_s)
            if not queue:
                del self._queues[key]

    def forget(self) -> None:
        """Cancel and drop everything, because another operator leads."""
        for queue in self._queues.values():
            for one in queue:
                if one.pending is not None:
                    one.pending.cancel()
        self._queues.clear()

    def _step(self, promotion: str, queue: deque[_Telling], now_s: float) -> None:
        head = queue[0]
        if head.pending is not None and head.pending.done():
            answer, head.pending = answer_of(head.pending), None
            if answer.agrees or head.tries >= TRIES:
                queue.popleft()
                if not answer.agrees:
                    _give_up(promotion, head, str(answer))
        if queue and queue[0].due(now_s):
            head = queue[0]
            head.tries, head.tried_at_s = head.tries + 1, now_s
            call = Call(url=head.hook.url, body=head.body, timeout_s=head.hook.timeout_s)
            head.pending = self._caller.post(call)


def _give_up(promotion: str, telling: _Telling, why: str) -> None:
    _LOG.warning(
        "promotion %s: webhook %s was not told after %d tries: %s",
        promotion,
        telling.hook.name,
        telling.tries,
        why,
    )
