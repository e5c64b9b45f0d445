"""Counters that a server exports about its process, as vLLM's Prometheus metrics do.

They begin at zero with a process. Numbers that planning does not need are derived on reading: every token is
a first one or follows another, and every step with a decoding sequence is in ``decoded``.
"""

from __future__ import annotations

from contracts.jit import compiled
from simulator.engine.memory import Array, Record
from simulator.engine.stretch import stretch_s

#: Columns of ``Gauges.measured``; the second to the tenth as in ``contracts.telemetry.EngineCounters``.
KV_USED, ITERATIONS, PROMPT_TOKENS, GENERATION_TOKENS, INTER_TOKEN_S, INTER_TOKENS = range(6)
QUEUE_S, ADMITTED, FINISHED, PREEMPTIONS = range(6, 10)
#: Not exported by servers: time of a decode step of the running batch, and per token prefilled in it.
STEP_S, PREFILL_S = 10, 11
#: Not exported by servers: delay of an answer from the server to its client.
RETURN_S = 12
#: Not exported by servers: wait of the head of the queue so far; 0 without a queue.
HEAD_WAIT_S = 13
MEASURED_COLUMNS = 14


@compiled(nogil=True)
def count_prefilled(replica: Record, request: Record, now_s: float) -> None:
    """Count the token at the end of a prefill, and the prompt unless it is recomputed."""
    if request.first_token_at_s < 0.0:
        replica.first_tokens += 1
        replica.prompt_tokens += request.prompt_tokens
    else:
        replica.inter_tokens += 1
        replica.inter_token_s += now_s - request.last_token_at_s


@compiled(nogil=True)
def forget_counts(replica: Record) -> None:
    """Reset the counters of a replica without requests."""
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
    """Write the counters to ``out`` [MEASURED_COLUMNS], with the ``done`` ended steps of the stretch under
    way.
    """
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
    """Wait of the head of the queue so far, since its last token if it was preempted."""
    if replica.waiting == 0:
        return 0.0
    head = requests[replica.wait_head]
    since_s = head.routed_at_s if head.first_token_at_s < 0.0 else head.last_token_at_s
    return max(now_s - since_s, 0.0)
