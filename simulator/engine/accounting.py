"""Counts ended requests, and hands the counts out."""

from __future__ import annotations

from contracts.jit import compiled, prefetch
from simulator.engine import counters as column
from simulator.engine.free_records import release_record
from simulator.engine.layout import CACHE_LINE, DECODE, MIXED, NONE
from simulator.engine.memory import Array, Fleet, Record
from simulator.engine.quality import credit
from simulator.engine.requests import ANSWERED, TIMEOUT


@compiled(inline="always")
def count_ended(at: int, fleet: Fleet) -> None:
    """Count the requests that ended on replica number ``at`` since the last count, in the order of their
    ends.
    """
    replica = fleet.replicas[at]
    requests = fleet.requests
    number = replica.ended_head
    while number != NONE:
        request = requests[number]
        if request.status == ANSWERED:
            count_answer(at, replica, request, fleet)
        else:
            part = request.slice
            fleet.cells[at, part, column.FAILED] += 1
            fleet.cells[at, part, column.ATTEMPTS_FAILED] += 1
            fleet.cells[at, part, column.TIMED_OUT] += request.status == TIMEOUT
            fleet.per_slice[part, column.FIRST_REASON + request.status - TIMEOUT] += 1
        following = request.next
        if following != NONE:
            prefetch(requests[following], 0)
            prefetch(requests[following], CACHE_LINE)
        release_record(fleet, number)
        number = following
    replica.ended_head = NONE


@compiled(inline="always")
def count_answer(at: int, replica: Record, request: Record, fleet: Fleet) -> None:
    """Enter one answer of replica number ``at`` into histograms, counters, excess TV and useful tokens.

    Client times run from the arrival of the request to the last byte; server times begin when the replica got
    the request. Useful tokens are those of answers within their slice's SLOs, from replicas that broke no
    hard clause when the request was routed to them, minus the excess TV of these tokens.
    """
    part = request.slice
    cells, histogram, served, rules = fleet.cells, fleet.histogram, fleet.served, fleet.rules
    ended_at_s = request.due_or_ended_at_s
    latency_ms = (ended_at_s + request.http_latency_s - request.arrived_at_s) * 1000.0
    ttft_ms = (request.first_token_at_s + request.http_latency_s - request.arrived_at_s) * 1000.0
    gap_ms = (ended_at_s - request.first_token_at_s) * 1000.0 / max(request.output_tokens - 1, 1)
    credit(request, request.output_tokens, replica, rules.quality)
    whole, first, gap = (
        bucket(latency_ms, rules.edges_ms),
        bucket(ttft_ms, rules.edges_ms),
        bucket(gap_ms, rules.edges_ms),
    )
    histogram[at, part, 0, whole] += 1
    histogram[at, part, 1, first] += 1
    histogram[at, part, 2, gap] += 1
    before_ms = (request.routed_at_s + request.http_latency_s - request.arrived_at_s) * 1000.0
    if before_ms != 0.0:
        whole = bucket(latency_ms - before_ms, rules.edges_ms)
        first = bucket(ttft_ms - before_ms, rules.edges_ms)
    served[at, 0, whole] += 1
    served[at, 1, first] += 1
    served[at, 2, gap] += 1
    cells[at, part, column.ANSWERED] += 1
    cells[at, part, column.TOKENS] += request.output_tokens
    slo_ms = rules.slo_ms
    if latency_ms > slo_ms[part, 0] or ttft_ms > slo_ms[part, 1] or gap_ms > slo_ms[part, 2]:
        cells[at, part, column.SLO_MISSED] += 1
    elif request.exposed == 0:
        fleet.useful[at, part] += request.output_tokens - request.excess_tv
    if request.exposed != 0:
        cells[at, part, column.EXPOSED] += 1
        if request.routed_at_s < fleet.row_changed_at_s[part]:
            cells[at, part, column.EXPOSED_IN_FLIGHT] += 1
    fleet.excess_tv[at, part] += request.excess_tv


@compiled(nogil=True)
def bucket(value: float, edges: Array) -> int:
    """Index of the first edge >= ``value``."""
    at = 0
    for j in range(edges.shape[0]):
        # Branch-free, because latencies are too random for branch prediction.
        at += edges[j] < value
    return at


@compiled(nogil=True)
def drain(
    fleets: Array,
    replicas: Array,
    cells: Array,
    tokens: tuple[Array, Array],
    per_slice: Array,
    out: tuple[Array, Array, Array, Array, Array],
) -> None:
    """Copy all counts to ``out`` and set them to zero; busy time is split at this instant.

    ``tokens``: excess TV and useful tokens, [B, R, S] each. ``out``: cells [B, R, S, columns], excess TV and
    useful tokens [B, S], per slice [B, S, columns], busy seconds [B, R].
    """
    excess_tv, useful = tokens
    out_cells, out_excess_tv, out_useful, out_per_slice, out_busy_s = out
    for b in range(replicas.shape[0]):
        now_s = fleets[b].now_s
        for r in range(replicas.shape[1]):
            out_busy_s[b, r] = drain_busy(replicas[b, r], now_s)
            for s in range(per_slice.shape[1]):
                out_excess_tv[b, s] += excess_tv[b, r, s]
                excess_tv[b, r, s] = 0.0
                out_useful[b, s] += useful[b, r, s]
                useful[b, r, s] = 0.0
                for c in range(cells.shape[3]):
                    out_cells[b, r, s, c] = cells[b, r, s, c]
                    cells[b, r, s, c] = 0
        for s in range(per_slice.shape[1]):
            for c in range(per_slice.shape[2]):
                out_per_slice[b, s, c] = per_slice[b, s, c]
                per_slice[b, s, c] = 0


@compiled(nogil=True)
def drain_busy(replica: Record, now_s: float) -> float:
    """Seconds in engine steps since the last drain."""
    if replica.kind == MIXED or replica.kind == DECODE:
        replica.busy_s += now_s - replica.busy_counted_at_s
        replica.busy_counted_at_s = now_s
    busy_s = replica.busy_s
    replica.busy_s = 0.0
    return busy_s
