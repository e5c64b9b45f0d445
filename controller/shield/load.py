"""The load limit of each kernel: its estimated capacity, corrected by the queues and latencies observed
there.

An estimate of capacity is off by a tenth, for some traffic by a third. Too low an estimate sheds traffic for
nothing; too high an estimate builds a queue that never ends. So the limit follows what is observed:

- *A kernel keeps the load that it has* until it has a queue, however low the estimate: without a shield that
  load would be served too. New traffic fills a kernel only up to the known capacity.
- *A queue is worked off*: for a while less is admitted, by the requests beyond those that are answered in
  time. While nothing is shed, this begins only once the queue has lasted from one scrape to the next and was
  seen in both: after a single sighting it is often the rest of a burst, and shedding would come too late. A
  queue that lasts was admitted by a limit that is too high, so the limit falls as long as the queue stands.
- *Answers in time are no queue*: of the length of answers only the mean is known, so a batch that would be
  too large for long answers may be none. While the newest requests were answered as the contract asks, only
  those count as waiting that come late even if every answer is of mean length.
- *A proven load is kept in requests per second*, not as a multiple of the estimate: if the estimate falls to
  nothing and recovers, the limit does not come back a thousand times as high.
- *Shed traffic is admitted again* step by step while answers are in time, or while less comes late than is
  shed: shedding gains no more than what would be late. A step that ends in a queue is tried again after twice
  the time, so that the table comes to rest; the limit itself falls only if the queue lasts, or is longer than
  chance explains.
- *A kernel with next to nothing to do* is admitted more at once, whatever its last answers were.

Late answers without a queue (a slow network, errors) are no reason to shed, only a reason to admit no more
than would be shed for them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.cells import LEAST_BEHIND, is_bad, kernel_requests
from controller.ports import PolicyState
from controller.shield.capacity import SLACK, load_of

Floats = NDArray[np.float64]

#: Time in which a queue is worked off, in s: longer than two scrapes take to show it.
DRAIN_S = 10.0
#: Queued work that changes nothing, in s: a burst that is over before a scrape shows it.
UNNOTICED_S = 0.5
#: A queue counts once it has lasted so long, in s, or from one scrape to the next.
LASTS_S = 5.0
#: Share of its capacity that a kernel is always allowed, whatever its queue.
LEAST_RATIO = 0.2
#: Rise of the limit in one step, and its fall per second with a queue, both relative.
STEP_RATIO, FALL_RATIO = 0.05, 0.01
#: Time from one step to the next, in s, and the longest such time after steps that ended in queues.
STEP_S, MOST_STEP_S = 15.0, 86400.0
#: A kernel has next to nothing to do if this share of a batch in time is free, for as long as a queue counts:
#: at a load worth shedding, chance hardly leaves a replica so empty. The estimate of the batch is often twice
#: too large, so half a batch shows nothing.
IDLE_RATIO = 0.85
#: A kernel that carries less than this share of its limit proves nothing beyond its estimate.
FULL_RATIO = 0.97
#: Time constant, in s, with which a proven load that is not used is forgotten.
FORGET_S = 120.0


class LoadMemory(NamedTuple):
    """Memory of the load limits of B fleets; changed in place by the compiled pass."""

    ratio: Floats  # [B, K], most load over capacity
    proven_rps: Floats  # [B, K], most load of a replica; the lesser of the two holds
    in_time: NDArray[np.bool_]  # [B, K], the newest block of requests was answered as the contract asks
    late_ratio: Floats  # [B, K], share of the newest block of requests that failed or came late
    queued: NDArray[np.bool_]  # [B, K], requests waited that are not answered in time
    step_s: Floats  # [B, K], from a step up to the next
    stepped_at_s: Floats  # [B, K], the last one
    least: Floats  # [B, K, 2], least of what was too many, of a block of seconds and of the one before
    room: Floats  # [B, K, 2], least share of a batch in time that was free, of the same two blocks
    least_since_at_s: Floats  # [B, K], when the block began
    scraped: NDArray[np.bool_]  # [B, R], anew since then


class LoadSeen(NamedTuple):
    """Observations of one tick."""

    now_s: Floats  # [B]
    passed_s: Floats  # [B], since the last tick
    last: Floats  # [B, S, K + 1], table in force
    offered_rps: Floats  # [B, S]
    ready: NDArray[np.int64]  # [B, K], replicas in rotation
    replica_rps: Floats  # [B, K], capacity of one replica, best estimate
    too_many: Floats  # [B, K], requests in a replica beyond those that it answers in time
    surely_too_many: Floats  # [B, K], the same if no answer were longer than the mean
    filled_ratio: Floats  # [B, K], requests in the fullest replica over the largest batch in time
    closed: NDArray[np.bool_]  # [B], a block of requests ended
    ended: Floats  # [B, S, K], its requests
    bad: Floats  # [B, S, K], those that failed or came late
    fresh: NDArray[np.bool_]  # [B, R], a new scrape arrived
    telling: NDArray[np.bool_]  # [B, R], in rotation, and the newest scrape is not stale
    owner: NDArray[np.int64]  # [R], kernel of each replica


def initial_load(batch: int, kernels: int, replicas: int) -> PolicyState:
    """Memory before the first tick: no load is proven."""
    shape = batch, kernels
    memory = LoadMemory(
        ratio=np.zeros(shape),
        proven_rps=np.zeros(shape),
        in_time=np.ones(shape, dtype=np.bool_),
        late_ratio=np.zeros(shape),
        queued=np.zeros(shape, dtype=np.bool_),
        step_s=np.full(shape, STEP_S),
        stepped_at_s=np.full(shape, -np.inf),
        least=np.zeros((*shape, 2)),
        room=np.zeros((*shape, 2)),
        least_since_at_s=np.full(shape, -np.inf),
        scraped=np.zeros((batch, replicas), dtype=np.bool_),
    )
    return memory._asdict()


class LoadLaw(NamedTuple):
    """Settings of ``let_in``."""

    tolerated: Floats  # [S], tolerated share of late answers
    max_load_ratio: float  # share of the estimated capacity that may be filled
    lasts_s: float  # least duration of a queue that counts


def load_law(tolerated: Floats, max_load_ratio: float, scrape_interval_s: float) -> LoadLaw:
    """Settings for a fleet with this scrape interval, in s."""
    return LoadLaw(tolerated, max_load_ratio, max(LASTS_S, scrape_interval_s))


def let_in(before: PolicyState, seen: LoadSeen, law: LoadLaw) -> tuple[PolicyState, Floats]:
    """Memory, and the load limit of one replica of each kernel, in requests per second, float64 [B, K]."""
    copies: dict[str, Any] = {name: array.copy() for name, array in before.items()}
    memory = LoadMemory(**copies)
    most_rps = np.empty_like(seen.replica_rps)
    _let_in(tuple(memory), tuple(seen), tuple(law), most_rps)
    return memory._asdict(), most_rps


def proven_ratio(load: PolicyState, replica_rps: Floats) -> Floats:
    """float64 [B, K], proven load over the estimated capacity of a kernel."""
    proven_rps = np.asarray(load["proven_rps"], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_it = np.where(replica_rps > 0.0, proven_rps / replica_rps, 0.0)
    return np.asarray(np.minimum(np.asarray(load["ratio"], dtype=np.float64), of_it))


@compiled
def _let_in(memory, seen, law, most_rps):
    """Update ``memory`` and fill ``most_rps``, kernel by kernel."""
    memory, seen, law = borrowed((LoadMemory(*memory), LoadSeen(*seen), LoadLaw(*law)))
    for b in range(most_rps.shape[0]):
        shed_rps = _shed_rps(seen, b)
        memory.scraped[b] |= seen.fresh[b]
        for k in range(most_rps.shape[1]):
            each_rps, anew = seen.replica_rps[b, k], _begins_anew(memory, seen, law, b, k)
            if seen.closed[b]:
                ended, bad, tolerated = kernel_requests(seen.ended, seen.bad, law.tolerated, b, k)
                memory.in_time[b, k] = is_bad(ended, bad, tolerated) == 0.0
                memory.late_ratio[b, k] = bad / ended if ended > 0.0 else 0.0
            queue = seen.surely_too_many[b, k] if memory.in_time[b, k] else seen.too_many[b, k]
            lasting = _lasting(memory.least[b, k], queue, anew)
            room = _lasting(memory.room[b, k], 1.0 - seen.filled_ratio[b, k], anew)
            too_many = queue if shed_rps > 0.0 else lasting
            if too_many < UNNOTICED_S * each_rps:
                too_many = 0.0
            if seen.ready[b, k] > 0 and each_rps > 0.0:
                lowers = max(lasting, too_many - LEAST_BEHIND) >= UNNOTICED_S * each_rps
                _follow(memory, seen, law, b, k, shed_rps, (too_many > 0.0, lowers, room))
            limit_rps = _limit_rps(memory, b, k, each_rps, law.max_load_ratio)
            most_rps[b, k] = max(limit_rps - too_many / DRAIN_S, LEAST_RATIO * each_rps)


@compiled(inline="always")
def _begins_anew(memory, seen, law, b, k):
    """Whether a block ends: it lasted long enough and brought a new scrape of every replica that reports."""
    ends = seen.now_s[b] - memory.least_since_at_s[b, k] >= law.lasts_s
    for r in range(len(seen.owner)):
        if seen.owner[r] == k and seen.telling[b, r]:
            ends = ends and memory.scraped[b, r]
    if ends:
        memory.least_since_at_s[b, k] = seen.now_s[b]
        for r in range(len(seen.owner)):
            memory.scraped[b, r] = memory.scraped[b, r] and seen.owner[r] != k
    return ends


@compiled(inline="always")
def _limit_rps(memory, b, k, each_rps, max_load_ratio):
    """Load limit of a replica without a queue, in requests per second."""
    proven_rps = min(memory.ratio[b, k] * each_rps, memory.proven_rps[b, k])
    return max(max_load_ratio * each_rps, proven_rps)


@compiled(inline="always")
def _lasting(least, too_many, anew):
    """The least of ``too_many`` since the block before this one began; ``least`` [2] is written to."""
    if anew:
        least[1], least[0] = least[0], too_many
    least[0] = min(least[0], too_many)
    return min(least[0], least[1])


@compiled(inline="always")
def _follow(memory, seen, law, b, k, shed_rps, queue):
    """Update the limit. queue: whether there is one, whether the limit falls by it, and lasting room."""
    queued, lowers, room = queue
    now_s, passed_s, each_rps = seen.now_s[b], seen.passed_s[b], seen.replica_rps[b, k]
    load_rps = load_of(seen.last[b], seen.offered_rps[b], k) / seen.ready[b, k]
    limit_rps = _limit_rps(memory, b, k, each_rps, law.max_load_ratio)
    memory.ratio[b, k] = max(memory.ratio[b, k], law.max_load_ratio)
    if queued and not memory.queued[b, k] and shed_rps > 0.0:
        memory.step_s[b, k] = min(2.0 * memory.step_s[b, k], MOST_STEP_S)
        memory.stepped_at_s[b, k] = now_s
    if lowers:
        kept = 1.0 - min(FALL_RATIO * passed_s, 1.0)
        memory.ratio[b, k] *= kept
        memory.proven_rps[b, k] *= kept
    elif shed_rps == 0.0:
        memory.step_s[b, k] = STEP_S
        forgotten = min(passed_s / FORGET_S, 1.0)
        memory.ratio[b, k] = _forgetting(memory.ratio[b, k], load_rps / each_rps, forgotten)
        memory.proven_rps[b, k] = _forgetting(memory.proven_rps[b, k], load_rps, forgotten)
    elif (
        not queued and load_rps >= FULL_RATIO * limit_rps and _steps(memory, seen, law, b, k, shed_rps, room)
    ):
        higher_rps = limit_rps * (1.0 + STEP_RATIO)
        memory.ratio[b, k] = max(memory.ratio[b, k], higher_rps / each_rps)
        memory.proven_rps[b, k] = max(memory.proven_rps[b, k], higher_rps)
        memory.stepped_at_s[b, k] = now_s
    memory.queued[b, k] = queued


@compiled(inline="always")
def _steps(memory, seen, law, b, k, shed_rps, room):
    """Whether shed traffic is admitted again: the kernel is idle, or less is late than shed."""
    since_s = seen.now_s[b] - memory.stepped_at_s[b, k]
    if room >= IDLE_RATIO and since_s >= law.lasts_s:
        return True
    offered_rps = load_of(seen.last[b], seen.offered_rps[b], k) + shed_rps
    worth_it = memory.in_time[b, k] or memory.late_ratio[b, k] * offered_rps < shed_rps
    return worth_it and since_s > memory.step_s[b, k]


@compiled(inline="always")
def _forgetting(proven, load, forgotten):
    """``load`` where it is higher; else the ``proven`` load, decaying towards it."""
    return max(load, proven - (proven - load) * forgotten)


@compiled(inline="always")
def _shed_rps(seen, b):
    """Traffic that the table in force sheds, in requests per second."""
    found = 0.0
    for s in range(seen.offered_rps.shape[1]):
        share = seen.last[b, s, seen.last.shape[2] - 1]
        found += share * seen.offered_rps[b, s] if share > SLACK else 0.0
    return found
