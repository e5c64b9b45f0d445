"""What a server exports of itself: counters of its process, as vLLM's Prometheus metrics count them.

They begin at zero with a process. Whatever is not needed to plan is derived when it is read: every token is
a first one or has a forerunner, every step with a decoding sequence is in ``decoded``.
"""

from __future__ import annotations

from contracts.jit import compiled
from simulator.engine.memory import Array, Record
from simulator.engine.stretch import stretch_s

#: Columns of ``Gauges.measured``; the second to the tenth as in ``contracts.telemetry.EngineCounters``.
KV_USED, ITERATIONS, PROMPT_TOKENS, GENERATION_TOKENS, INTER_TOKEN_S, INTER_TOKENS = range(6)
QUEUE_S, ADMITTED, FINISHED, PREEMPTIONS = range(6, 10)
#: No server exports these: time of a decode step of the batch that runs, and of each token prefilled in it.
STEP_S, PREFILL_S = 10, 11
#: Nor this: an answer takes so long from the server to its client.
RETURN_S = 12
#: Nor this: the head of the queue has waited so long; 0 without a queue.
HEAD_WAIT_S = 13
MEASURED_COLUMNS = 14


@compiled(nogil=True)
def count_prefilled(replica: Record, request: Record, now_s: float) -> None:
    """Count the token that comes with the end of a prefill, and the prompt unless it is recomputed."""
    if request.first_token_at_s < 0.0:
        replica.first_tokens += 1
        replica.prompt_tokens += request.prompt_tokens
    else:
        replica.inter_tokens += 1
        replica.inter_token_s += now_s - request.last_token_at_s


@compiled(nogil=True)
def forget_counts(replica: Record) -> None:
    """Begin at zero; the replica has no request."""
    replica.decoded = 0
    replica.inter_token_s = 0.0
    replica.queue_s = 0.0
    replica.inter_tokens = 0
    replica.prompt_tokens = 0
    replica.first_tokens = 0
    replica.admitted = 0
    replica.finished = 0
    replica.preemptions = 0
    replica.prefill_steps = 0


@compiled(nogil=True)
def read_exported(replica: Record, done: int, out: Array) -> None:
    """Copy to ``out`` [MEASURED_COLUMNS], with the ``done`` steps that ended of the stretch under way."""
    tokens = replica.inter_tokens + replica.running * done
    inter_token_s = replica.inter_token_s
    if done > 0:
        ended_at_s = replica.began_at_s + stretch_s(done, replica.first_step_s, replica.growth_s)
        inter_token_s += replica.running * (ended_at_s - replica.last_step_at_s)
    out[ITERATIONS] = replica.decoded + replica.prefill_steps + done
    out[PROMPT_TOKENS] = replica.prompt_tokens
    out[GENERATION_TOKENS] = replica.first_tokens + tokens
    out[INTER_TOKEN_S] = inter_token_s
    out[INTER_TOKENS] = tokens
    out[QUEUE_S] = replica.queue_s
    out[ADMITTED] = replica.admitted
    out[FINISHED] = replica.finished
    out[PREEMPTIONS] = replica.preemptions
    out[PREFILL_S] = replica.prefill_s
    out[RETURN_S] = replica.http_latency_s
    context_tokens = replica.context_tokens + replica.running * done
    out[STEP_S] = replica.base_s + replica.decode_s * replica.running + replica.context_s * context_tokens


@compiled(nogil=True)
def head_wait_s(replica: Record, requests: Array, now_s: float) -> float:
    """How long the head of the queue has waited there, since its last token if it was preempted."""
    if replica.waiting == 0:
        return 0.0
    head = requests[replica.wait_head]
    since_s = head.routed_at_s if head.first_token_at_s < 0.0 else head.last_token_at_s
    return max(now_s - since_s, 0.0)
