"""Requests as arrivals, their statuses, and the records that can be read afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from simulator.engine.layout import ARRIVAL, UNIFORM_UNIT


class RequestStatus(IntEnum):
    """How a request ended. From ``TIMEOUT`` to ``NO_REPLICA`` it counts as failed."""

    IN_FLIGHT = 0
    ANSWERED = 1
    TIMEOUT = 2  # not finished timeout_s after its arrival
    RESET = 3  # its replica crashed, or refused the connection because it was dead
    HTTP_ERROR = 4  # 5xx at admission on the last attempt
    REJECTED = 5  # 429 (queue limit) on the last attempt
    NO_REPLICA = 6  # no replica in rotation for any kernel of its row
    SHED = 7  # by the routing table, never reached a replica


#: The statuses as plain integers, which the compiler freezes.
IN_FLIGHT, ANSWERED, TIMEOUT, RESET, HTTP_ERROR, REJECTED, NO_REPLICA, SHED = range(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestArrivals:
    """Requests of one fleet in order of arrival, with every random number they will need.

    Because the numbers belong to the request, a fault or another policy never changes the draws of other
    requests.
    """

    arrived_at_s: NDArray[np.float64]
    """[n], not decreasing."""
    slice: NDArray[np.int64]
    """[n]"""
    prompt_tokens: NDArray[np.int64]
    """[n]"""
    output_tokens: NDArray[np.int64]
    """[n]"""
    session: NDArray[np.int64]
    """[n], -1 for none."""
    prompt: NDArray[np.int64]
    """[n], place on the last axis of ``EngineSpec.quality``."""
    uniforms: NDArray[np.float64]
    """[n, 4] in [0, 1): kernel, first and second replica candidate, HTTP error; 32 bits are kept of each."""

    def __len__(self) -> int:
        return int(self.arrived_at_s.shape[0])

    def packed(self) -> NDArray[np.void]:
        """The arrivals as records ``ARRIVAL`` [n]."""
        records = np.empty(len(self), ARRIVAL)
        for name in ("arrived_at_s", "slice", "prompt_tokens", "output_tokens", "session", "prompt"):
            records[name] = getattr(self, name)
        for place, name in enumerate(("u_kernel", "u_first", "u_second", "u_error")):
            records[name] = (self.uniforms[:, place] * UNIFORM_UNIT).astype(np.uint32)
        return records


#: One row of ``FleetEngine.requests``; NaN for an instant that never came.
REQUEST_RECORD = np.dtype(
    [
        ("id", np.int64),
        ("arrived_at_s", np.float64),
        ("routed_at_s", np.float64),  # last routing
        ("started_at_s", np.float64),  # first admission to a running batch
        ("first_token_at_s", np.float64),
        ("finished_at_s", np.float64),
        ("replica", np.int64),  # of the last attempt, -1 if it reached none
        ("kernel", np.int64),  # likewise
        ("slice", np.int64),
        ("status", np.int64),  # RequestStatus
        ("attempts", np.int64),
        ("preemptions", np.int64),
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("excess_tv_tokens", np.float64),  # NaN unless answered
    ]
)


def request_records(kept: NDArray[np.void], replica_kernel: NDArray[np.int64]) -> NDArray[np.void]:
    """Records ``REQUEST_RECORD`` of the engine's records ``kept``."""
    out = np.zeros(kept.shape[0], REQUEST_RECORD)
    out["id"] = np.arange(kept.shape[0])
    for name in ("replica", "slice", "status", "attempts", "preemptions", "prompt_tokens", "output_tokens"):
        out[name] = kept[name]
    out["kernel"] = np.where(out["replica"] < 0, -1, replica_kernel[out["replica"]])
    out["arrived_at_s"] = kept["arrived_at_s"]
    for name in ("routed_at_s", "started_at_s"):
        out[name] = np.where(kept[name] < 0.0, np.nan, kept[name])
    answered = out["status"] == RequestStatus.ANSWERED
    ended_at_s = kept["due_or_ended_at_s"] + np.where(answered, kept["http_latency_s"], 0.0)
    out["finished_at_s"] = np.where(out["status"] == RequestStatus.IN_FLIGHT, np.nan, ended_at_s)
    first_at_s = kept["first_token_at_s"]
    out["first_token_at_s"] = np.where(first_at_s < 0.0, np.nan, first_at_s + kept["http_latency_s"])
    out["excess_tv_tokens"] = np.where(answered, kept["excess_tv"], np.nan)
    return out
