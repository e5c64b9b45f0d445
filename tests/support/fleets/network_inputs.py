"""Inputs of the scoring network for tests: random but legal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from controller.encoding.encoder import Encoder
from policies.learned.choosing import CELL_MEMORY, InputLayout

LAYOUT = InputLayout(encoder=Encoder(kernels_max=4, slices=3))


def random_inputs(
    batch: int, kernels: int, seed: int = 0, layout: InputLayout = LAYOUT
) -> NDArray[np.float32]:
    """Float32 [B, size] of a pool of ``kernels``: within bounds, flags 0 or 1, one choice per slice."""
    rng, encoder = stream(seed, "network-inputs"), layout.encoder
    low, high = encoder.bounds()
    inputs = np.zeros((batch, layout.size), dtype=np.float32)
    seen = low + (high - low) * rng.random((batch, encoder.size), dtype=np.float32)
    flags = np.array([name.endswith(_FLAGS) for name in encoder.names()])
    inputs[:, : encoder.size] = np.where(flags, seen > 0.3, seen)
    rows, _ = encoder.split(inputs[:, : encoder.size])
    rows[:, :, 0] = 1.0
    rows[:, kernels:] = 0.0
    memory = inputs[:, encoder.size : encoder.size + layout.cell_memory_size]
    cells = memory.reshape(batch, encoder.kernels_max, encoder.slices, len(CELL_MEMORY))
    cells[:, :kernels, :, 1:] = rng.random((batch, kernels, encoder.slices, 2))
    choice = rng.integers(kernels, size=(batch, encoder.slices))
    cells[..., 0] = choice[:, None] == np.arange(encoder.kernels_max)[None, :, None]
    inputs[:, encoder.size :][:, : layout.cell_memory_size] = cells.reshape(batch, -1)
    return inputs


_FLAGS = ("present", "known_good", "home", "guard", "fallback", "hard_violated", "certified")


def permuted(
    inputs: NDArray[np.float32], order: NDArray[np.int64], layout: InputLayout = LAYOUT
) -> NDArray[np.float32]:
    """The same fleets with their kernels in another order."""
    encoder, out = layout.encoder, inputs.copy()
    rows, _ = encoder.split(out[:, : encoder.size])
    rows[:] = rows[:, order].copy()
    memory = out[:, encoder.size : encoder.size + layout.cell_memory_size]
    cells = memory.reshape(len(out), encoder.kernels_max, -1)
    memory[:] = cells[:, order].reshape(len(out), -1)
    return out
