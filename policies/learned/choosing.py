"""Actions of a learned policy: for each slice it chooses a kernel or shedding; the table is computed from
that.

An action is an index: a kernel of the pool, or the last column, shed; repeating the previous index means to
stay. The history that a feed-forward network cannot keep is stored in ``PolicyState`` and appended to the
encoded observation: what each slice chose and when, when it last left each kernel, and when each kernel was
last unhealthy on it. ``policies.rules.capacity.fit_capacity`` turns the choices into a table that the kernels
can carry, as for the other policies.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.jit import compiled
from controller.encoding.encoder import Encoder
from controller.encoding.features import FEATURES, Scope
from controller.encoding.scales import log_time
from controller.ports import Observation, PolicyState, Proposal
from policies.rules.capacity import Headroom, capacity_memory, fit_capacity
from policies.rules.threshold import failover_order

# Shared by the network and its ONNX form; defined here so that neither torch nor onnx is needed.
#: Subtracted from the score of a forbidden choice; larger than any score.
BLOCKED = 1e4
#: Added to the score of a choice without a reason to leave it; far below ``BLOCKED``.
BOUND = 1e3
#: Evidence on one of a kernel's slices, as a share of an alarm's, above which slices may leave it without an
#: alarm.
REASON = 0.35
#: The same for the leaving slice itself: more than healthy fleets of the training scenarios show.
OWN_REASON = 0.2
#: The same once one of the kernel's slices is in alarm: higher, because the detector then uses a lower
#: threshold for the others (``lowered_arl0``), and a slice that is merely near its limit soon reaches a share
#: of it.
PEER_REASON = 0.6
#: Time without a change, and with a healthy home, after which a slice returns home by rule. The network
#: handles incidents; it does not handle the return long after them.
RETURN_AFTER_S = 3600.0
#: Least time between two slices of a fleet that return home by rule.
RETURN_EVERY_S = 60.0
#: A failover fills its target to 85 %, because a full target would be relieved again and again as load
#: varies.
ROOM = Headroom(fill_ratio=0.85, return_ratio=0.6)
#: Memory numbers per (kernel, slice): whether chosen, time since it was left, time since it was unhealthy.
CELL_MEMORY = ("chosen", "since_left_s", "since_ill_s")
#: Memory of a recurrent network: input name -> name of the output that becomes it in the next tick.
NETWORK_MEMORY = {"hidden": "next_hidden", "cell": "next_cell"}
#: Memory numbers per slice: shedding chosen, time since the last change of choice.
SLICE_MEMORY = ("shed_chosen", "since_chosen_s")


#: To be increased whenever the rules of this module or of ``network`` change, in addition to their numbers.
RULES_VERSION = 5


def fixed_rules() -> dict[str, float]:
    """Every number that decides in addition to the weights, by name; a certificate covers these as well."""
    return {
        "rules_version": RULES_VERSION,
        "reason": REASON,
        "own_reason": OWN_REASON,
        "sibling_reason": PEER_REASON,
        "blocked": BLOCKED,
        "bound": BOUND,
        "return_after_s": RETURN_AFTER_S,
        "return_every_s": RETURN_EVERY_S,
        **{f"room_{name}": value for name, value in asdict(ROOM).items()},
    }


def feature_names(scope: Scope) -> list[str]:
    """Names of the features of ``scope``, in the order of the encoding."""
    return [feature.name for feature in FEATURES if feature.scope is scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLayout:
    """Sizes of a network's input: the encoded observation, then the memory by cell, then by slice."""

    encoder: Encoder

    @property
    def choices(self) -> int:
        """Columns of a score row: the kernels, padded, and shed."""
        return self.encoder.kernels_max + 1

    @property
    def cell_memory_size(self) -> int:
        """Number of memory values for (kernel, slice) pairs."""
        return self.encoder.kernels_max * self.encoder.slices * len(CELL_MEMORY)

    @property
    def size(self) -> int:
        """Length of an input."""
        return self.encoder.size + self.cell_memory_size + self.encoder.slices * len(SLICE_MEMORY)

    def names(self) -> tuple[str, ...]:
        """One name per number of an input."""
        kernels, slices = range(self.encoder.kernels_max), range(self.encoder.slices)
        cells = [f"kernel{k}.slice{s}.{name}" for k in kernels for s in slices for name in CELL_MEMORY]
        own = [f"slice{s}.{name}" for s in slices for name in SLICE_MEMORY]
        return (*self.encoder.names(), *cells, *own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """Memory, input and proposal of choices for a pool of ``kernels`` kernels."""

    layout: InputLayout
    kernels: int
    home: NDArray[np.int64]  # [S], a kernel each
    priority: NDArray[np.int64]  # [S], slices that keep their kernel first when capacity is short
    headroom: Headroom = field(default_factory=lambda: ROOM)

    @classmethod
    def of(
        cls, encoder: Encoder, kernels: int, home: NDArray[np.int64], contract: CompiledContract
    ) -> Chooser:
        """The chooser of a pool under ``contract``."""
        return cls(
            layout=InputLayout(encoder=encoder), kernels=kernels, home=home, priority=contract.priority
        )

    def initial(self, batch: int) -> PolicyState:
        """Every slice at home; no kernel was left or unhealthy.

        choice: int64 [B, S]; chosen_at_s: float64 [B, S], when it last changed; left_at_s, unhealthy_at_s:
        float64 [B, K, S].
        """
        slices = len(self.home)
        return {
            **capacity_memory(batch, slices, self.kernels),
            "choice": np.tile(self.home, (batch, 1)),
            "chosen_at_s": np.full((batch, slices), -np.inf),
            "left_at_s": np.full((batch, self.kernels, slices), -np.inf),
            "unhealthy_at_s": np.full((batch, self.kernels, slices), -np.inf),
        }

    def look(self, observation: Observation, state: PolicyState) -> tuple[NDArray[np.float32], PolicyState]:
        """``(inputs, memory)``: float32 [B, size], and the memory after this tick's verdicts."""
        unhealthy = (observation.level > 0) | observation.hard_violated | ~observation.certified
        memory = {
            **state,
            "unhealthy_at_s": np.where(unhealthy, observation.now_s[:, None, None], state["unhealthy_at_s"]),
        }
        encoder, batch = self.layout.encoder, len(observation.now_s)
        inputs = np.zeros((batch, self.layout.size), dtype=np.float32)
        inputs[:, : encoder.size] = encoder.encode(observation)
        _show_memory(
            inputs[:, encoder.size :],
            memory["choice"],
            log_time(observation.now_s[:, None, None] - memory["left_at_s"]),
            log_time(observation.now_s[:, None, None] - memory["unhealthy_at_s"]),
            log_time(observation.now_s[:, None] - memory["chosen_at_s"]),
            encoder.kernels_max,
        )
        return inputs, memory

    def propose(
        self, choice: NDArray[np.integer], observation: Observation, state: PolicyState
    ) -> tuple[Proposal, PolicyState]:
        """Proposal for ``choice`` int [B, S] in 0..kernels_max; a padded kernel means staying."""
        before = np.asarray(state["choice"])
        shed = self.layout.encoder.kernels_max
        wanted_choice = np.where(choice == shed, self.kernels, choice)
        chosen = np.where(
            (wanted_choice > self.kernels) | ((choice != shed) & (wanted_choice >= self.kernels)),
            before,
            wanted_choice,
        )
        chosen = np.where(self._homeward(chosen, observation, state), self.home, chosen)
        order = failover_order(observation)
        chosen = np.where(chosen == self.kernels, self._served(order), chosen)
        memory = {name: array.copy() for name, array in state.items()}
        memory["choice"] = chosen.astype(np.int64)
        wanted = np.zeros(observation.table.shape)
        _settle_choice(
            wanted, memory["choice"], before, memory["chosen_at_s"], memory["left_at_s"], observation.now_s
        )
        moved = memory["choice"] != before
        rank, untargeted = self._failover_targets(order, observation, memory)
        memory["wanted"] = np.where(
            untargeted[:, :, None], 0.0, np.asarray(memory["wanted"], dtype=np.float64)
        )
        return fit_capacity(
            wanted, rank, observation, memory, self.priority, self.headroom, ~(moved | untargeted)
        )

    def _served(self, order: NDArray[np.float64]) -> NDArray[np.int64]:
        """int64 [B, S], the kernel for a slice that chose shedding: home if it complies, else the first
        failover target; shedding if no kernel complies.

        Shedding for capacity is left to the shield: a policy that kept a forced shedding would go on shedding
        long after the kernels are back.
        """
        own = np.arange(len(self.home))
        best = np.where(np.isfinite(order[:, own, self.home]), self.home, order.argmin(axis=2))
        return np.where(np.isfinite(order).any(axis=2), best, self.kernels)

    def _failover_targets(
        self, order: NDArray[np.float64], observation: Observation, memory: PolicyState
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """``(rank, untargeted)``: ``order`` of failover targets [B, S, K] without the kernels that the slice
        left recently; and bool [B, S], whether the plan overflows to a kernel that is no longer a target.
        """
        left_at_s = np.asarray(memory["left_at_s"], dtype=np.float64).transpose(0, 2, 1)
        lowered = observation.now_s[:, None, None] - left_at_s < RETURN_AFTER_S
        rank = np.where(lowered, np.inf, order)
        chosen = np.asarray(memory["choice"])[:, :, None] == np.arange(self.kernels)
        overflows = (np.asarray(memory["planned"], dtype=np.float64)[:, :, :-1] > 0.0) & ~chosen
        return rank, (overflows & ~np.isfinite(rank)).any(axis=2)

    def _homeward(
        self, chosen: NDArray[np.int64], observation: Observation, state: PolicyState
    ) -> NDArray[np.bool_]:
        """Bool [B, S]: returns home by rule now; at most one slice of a fleet."""
        since_s = observation.now_s[:, None] - np.asarray(state["chosen_at_s"], dtype=np.float64)
        unhealthy_at_s = np.asarray(state["unhealthy_at_s"], dtype=np.float64)[
            :, self.home, np.arange(len(self.home))
        ]
        away = (chosen == state["choice"]) & (chosen != self.home)
        due = (
            away
            & (since_s >= RETURN_AFTER_S)
            & (observation.now_s[:, None] - unhealthy_at_s >= RETURN_AFTER_S)
        )
        due &= since_s.min(axis=1, keepdims=True) >= RETURN_EVERY_S
        first = np.arange(len(self.home)) == due.argmax(axis=1)[:, None]
        return np.asarray(due & first)


@compiled
def _show_memory(out, choice, since_left, since_unhealthy, since_chosen, kernels_max):
    batch, kernels, slices = since_left.shape
    for b in range(batch):
        for k in range(kernels):
            for s in range(slices):
                place = (k * slices + s) * 3
                out[b, place] = 1.0 if choice[b, s] == k else 0.0
                out[b, place + 1] = since_left[b, k, s]
                out[b, place + 2] = since_unhealthy[b, k, s]
        for s in range(slices):
            place = kernels_max * slices * 3 + s * 2
            out[b, place] = 1.0 if choice[b, s] == kernels else 0.0
            out[b, place + 1] = since_chosen[b, s]


@compiled
def _settle_choice(wanted, choice, before, chosen_at_s, left_at_s, now_s):
    """Set one-hot rows of ``wanted``, and the times of changed choices."""
    batch, slices = choice.shape
    for b in range(batch):
        for s in range(slices):
            wanted[b, s, choice[b, s]] = 1.0
            if choice[b, s] == before[b, s]:
                continue
            chosen_at_s[b, s] = now_s[b]
            if before[b, s] < left_at_s.shape[1]:
                left_at_s[b, before[b, s], s] = now_s[b]
