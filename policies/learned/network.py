"""The network that scores every kernel for every slice, and its critic. EDGE: imports torch.

One set of weights reads every (kernel, slice) pair: its own numbers, its kernel's, its slice's and the
fleet's, then summaries over the kernels of its slice, over the slices of its kernel, and of the kernel that
the slice has chosen. So renaming kernels or slices renames the scores and changes nothing else. One network
serves every pool of up to ``kernels_max`` kernels; padding is masked by ``present``. The chosen kernel's
score has a bonus, and a rule is added to the network as a linear term: a kernel in alarm, or near one, loses
score, and so does one that is far from the reference; the known-good kernel gains a little. So an untrained
network stays at home until an alarm, then leaves, and explores where the evidence is. Training changes rule
and network alike.

A kernel that is without a replica in rotation, condemned or uncertified is closed, also to slices that chose
it: the shield would move them away, and a choice that stayed would return with the kernel. A kernel in alarm
is never moved *to*. A slice leaves an open kernel only for a *reason*: its own alarm; ``REASON`` of an
alarm's evidence on any slice of the kernel and ``OWN_REASON`` on its own; or an alarm of another slice of the
kernel and ``PEER_REASON`` on its own. Evidence is a log-likelihood against a named null, so this bounds how
often a healthy kernel is left, whatever the weights.

``policies.learned.onnx_graph`` writes the same arithmetic as ONNX; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from controller.encoding.features import Scope
from policies.learned.choosing import (
    BLOCKED,
    BOUND,
    CELL_MEMORY,
    OWN_REASON,
    PEER_REASON,
    REASON,
    SLICE_MEMORY,
    InputLayout,
    feature_names,
)

#: Score of shedding before training, low enough to keep it rare.
SHED_SCORE = -4.0
#: The rule before training: score per unit of a cell's and of a kernel's number.
RULE = {"guard": -16.0, "hard_violated": -16.0, "evidence": -6.0, "home": 0.5, "certified_loss": -4.0}
KERNEL_RULE = {"known_good": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputParts:
    """The parts of an input. cells: [B, K, S, n]; kernels: [B, K, n]; slices: [B, S, n]; fleet: [B, n];
    present: [B, K]; chosen: [B, K, S]; shed_chosen: [B, S]; blocked: [B, K, S], 1 for forbidden choices;
    bound: [B, K, S], 1 for a chosen kernel without a reason to leave it.
    """

    cells: Tensor
    kernels: Tensor
    slices: Tensor
    fleet: Tensor
    present: Tensor
    chosen: Tensor
    shed_chosen: Tensor
    blocked: Tensor
    bound: Tensor


def take_apart(inputs: Tensor, layout: InputLayout, kernels: int | None = None) -> InputParts:
    """Split ``inputs`` [B, size] into its parts; only the first ``kernels`` rows (None: all)."""
    encoder = layout.encoder
    batch, most, slices = inputs.shape[0], encoder.kernels_max, encoder.slices
    own, per_slice = len(feature_names(Scope.KERNEL)), len(feature_names(Scope.SLICE))
    edges = [most * encoder.row_size, slices * per_slice, encoder.tail_size - slices * per_slice]
    rows, by_slice, fleet, cell_memory, slice_memory = inputs.split(
        [*edges, layout.cell_memory_size, slices * len(SLICE_MEMORY)], dim=1
    )
    used = most if kernels is None else kernels
    rows = rows.reshape(batch, most, encoder.row_size)[:, :used]
    memory = cell_memory.reshape(batch, most, slices, len(CELL_MEMORY))[:, :used]
    cells = rows[:, :, own:].reshape(batch, used, slices, -1)
    own_slices = torch.cat(
        [by_slice.reshape(batch, slices, -1), slice_memory.reshape(batch, slices, -1)], dim=2
    )
    blocked, bound = _rules(rows[:, :, :own], cells, memory[..., 0])
    return InputParts(
        cells=torch.cat([cells, memory], dim=3),
        kernels=rows[:, :, :own],
        slices=own_slices,
        fleet=fleet,
        present=rows[:, :, 0],
        chosen=memory[..., 0],
        shed_chosen=own_slices[..., per_slice],
        blocked=blocked,
        bound=bound,
    )


def _rules(kernels: Tensor, cells: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """``(blocked, bound)``."""
    names = feature_names(Scope.KERNEL_SLICE)
    ready = kernels[:, :, feature_names(Scope.KERNEL).index("ready_ratio")]
    certified = cells[..., names.index("certified")]
    alarm, hard = (cells[..., names.index(name)] > 0.5 for name in ("guard", "hard_violated"))
    shut = ~((ready > 0.0)[:, :, None] & (certified > 0.5) & ~hard)
    blocked = shut | (alarm & (chosen < 0.5))
    own = cells[..., names.index("evidence")]
    near = own.amax(dim=2, keepdim=True) >= REASON
    least = torch.where(alarm.any(dim=2, keepdim=True), PEER_REASON, OWN_REASON)
    reason = alarm | ((alarm.any(dim=2, keepdim=True) | near) & (own >= least))
    return blocked.float(), (~shut & (chosen > 0.5) & ~reason).float()


class Reader(nn.Module):
    """Shared weights over all (kernel, slice) pairs; see the module. width: numbers per pair, h."""

    def __init__(self, width: int) -> None:
        super().__init__()
        cells = len(feature_names(Scope.KERNEL_SLICE)) + len(CELL_MEMORY)
        slices = len(feature_names(Scope.SLICE)) + len(SLICE_MEMORY)
        self.cell = nn.Linear(cells, width)
        self.kernel = nn.Linear(len(feature_names(Scope.KERNEL)), width, bias=False)
        self.slice = nn.Linear(slices, width, bias=False)
        self.fleet = nn.Linear(len(feature_names(Scope.FLEET)), width, bias=False)
        self.again = nn.Linear(width, width)
        self.over_kernels = nn.Linear(3 * width, width, bias=False)
        self.over_slices = nn.Linear(2 * width, width, bias=False)

    def forward(self, parts: InputParts) -> tuple[Tensor, Tensor]:
        """``(pairs, summary)``: [B, K, S, h], and [B, S, 3 h] over the kernels of each slice."""
        first = self.cell(parts.cells) + self.kernel(parts.kernels)[:, :, None]
        first = first + self.slice(parts.slices)[:, None] + self.fleet(parts.fleet)[:, None, None]
        mask = parts.present[:, :, None, None]
        first = torch.relu(first) * mask
        count = parts.present.sum(dim=1).clamp(min=1.0)[:, None, None]
        here = (first * parts.chosen[..., None]).sum(dim=1)
        summary = torch.cat([first.sum(dim=1) / count, first.amax(dim=1), here], dim=2)
        peers = torch.cat([first.mean(dim=2), first.amax(dim=2)], dim=2)
        second = self.again(first) + self.over_kernels(summary)[:, None]
        second = second + self.over_slices(peers)[:, :, None]
        return torch.relu(second) * mask, summary


class Scorer(nn.Module):
    """Scores [B, S, kernels_max + 1] of an input [B, size]; the last column is shed."""

    def __init__(self, layout: InputLayout, width: int = 32, stay_bonus: float = 8.0) -> None:
        super().__init__()
        self.layout, self.width = layout, width
        self.reader = Reader(width)
        self.rule = _rule(feature_names(Scope.KERNEL_SLICE) + list(CELL_MEMORY), RULE)
        self.kernel_rule = _rule(feature_names(Scope.KERNEL), KERNEL_RULE)
        self.score = nn.Linear(width, 1)
        self.shed = nn.Linear(3 * width, 1)
        self.stay = nn.Parameter(torch.tensor(float(stay_bonus)))
        nn.init.normal_(self.score.weight, std=0.01)
        nn.init.zeros_(self.score.bias)
        nn.init.zeros_(self.shed.weight)
        nn.init.constant_(self.shed.bias, SHED_SCORE)

    def forward(self, inputs: Tensor, kernels: int | None = None) -> Tensor:
        """Scores; ``kernels``: rows to read (the others are padding, with scores ``-BLOCKED``)."""
        parts = take_apart(inputs, self.layout, kernels)
        pairs, summary = self.reader(parts)
        rule = self.rule(parts.cells) + self.kernel_rule(parts.kernels)[:, :, None]
        moving = (self.score(pairs) + rule).squeeze(3) - BLOCKED * parts.blocked + BOUND * parts.bound
        scores = (moving + self.stay * parts.chosen).transpose(1, 2)
        shed = self.shed(summary) + (self.stay * parts.shed_chosen)[..., None]
        missing = self.layout.encoder.kernels_max - scores.shape[2]
        padding = scores.new_full((*scores.shape[:2], missing), -BLOCKED)
        return torch.cat([scores, padding, shed], dim=2)


def _rule(names: list[str], values: dict[str, float]) -> nn.Linear:
    """A linear term with the initial weights ``values``."""
    term = nn.Linear(len(names), 1, bias=False)
    with torch.no_grad():
        term.weight.copy_(torch.tensor([[values.get(name, 0.0) for name in names]]))
    return term


class Critic(nn.Module):
    """Value [B] of an input [B, size]."""

    def __init__(self, layout: InputLayout, width: int = 32) -> None:
        super().__init__()
        self.layout = layout
        self.reader = Reader(width)
        self.hidden = nn.Linear(5 * width, width)
        self.value = nn.Linear(width, 1)

    def forward(self, inputs: Tensor, kernels: int | None = None) -> Tensor:
        """Value of the state, [B]."""
        parts = take_apart(inputs, self.layout, kernels)
        pairs, summary = self.reader(parts)
        count = parts.present.sum(dim=1, keepdim=True).clamp(min=1.0) * pairs.shape[2]
        mean = pairs.sum(dim=(1, 2)) / count
        pooled = torch.cat([mean, pairs.amax(dim=(1, 2)), summary.mean(dim=1)], dim=1)
        out: Tensor = self.value(torch.relu(self.hidden(pooled))).squeeze(1)
        return out


def rows_in_use(inputs: Tensor, layout: InputLayout) -> int:
    """Number of kernels of the largest pool in ``inputs``; further rows are padding."""
    rows = inputs[:, : layout.encoder.kernels_max * layout.encoder.row_size]
    present = rows.reshape(inputs.shape[0], layout.encoder.kernels_max, -1)[:, :, 0]
    return max(1, int((present > 0.0).any(dim=0).sum()))
