"""What the supervisor counts: moves are E5's switch episodes, turns are changes of direction."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.scoring.switches import row_episodes
from controller.supervise.switch_counter import follow, forced_rows, initial_follow
from policies.supervised import shipped_meta
from tests.support.fleets.builders import make_layout
from tests.support.fleets.episodes import quiet_record

META = shipped_meta()


def random_tables(seed: int, ticks: int) -> NDArray[np.float64]:
    """float64 [T, S, K + 1] that rest, jump and creep."""
    rng = np.random.Generator(np.random.PCG64(seed))
    tables = np.zeros((ticks, 2, 4))
    row = np.tile(np.array([1.0, 0.0, 0.0, 0.0]), (2, 1))
    for t in range(ticks):
        if rng.random() < 0.02:
            row = rng.dirichlet(np.ones(4), 2)
        elif rng.random() < 0.1:
            row = 0.97 * row + 0.03 * rng.dirichlet(np.ones(4), 2)
        tables[t] = row
    return tables.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("seed", range(8))
def test_moves_are_the_switch_episodes_of_the_record(seed: int) -> None:
    """The running count of the supervisor equals what the scoring finds in the record afterwards."""
    tables = random_tables(seed, 900)
    memory = initial_follow(META, make_layout(2, 2, 1), 1)
    memory = {
        name: values if values.shape[-1] != 3 else np.zeros((1, 2, 4), values.dtype)
        for name, values in memory.items()
    }
    unforced = np.zeros((1, 2), dtype=np.bool_)
    for t in range(1, len(tables)):
        memory = follow(memory, tables[t : t + 1], unforced, np.array([float(t)]))
    record = quiet_record(
        900, table=tables.astype(np.float32), kernels=("a", "b", "c"), replica_kernel=np.array([0, 1, 2])
    )
    episodes = row_episodes(record)
    counted = [sum(e.index == s for e in episodes) for s in (0, 1)]
    assert memory["moves"][0].tolist() == counted
    assert sum(counted) > 4


@pytest.mark.parametrize(("swing", "turns"), [(1.0, 9), (0.2, 9), (0.04, 0)])
def test_turns_are_changes_of_direction_beyond_the_tolerance(swing: float, turns: int) -> None:
    """Ten alternating moves turn nine times if they are larger than 0.05, and never if they are smaller."""
    memory = initial_follow(META, make_layout(3, 2, 1), 1)
    unforced = np.zeros((1, 2), dtype=np.bool_)
    for t in range(11):
        table = np.zeros((1, 2, 4))
        table[:, :, 1] = swing * (t % 2)
        table[:, :, 0] = 1.0 - table[:, :, 1]
        memory = follow(memory, table, unforced, np.array([10.0 * t]))
    assert memory["turns"][0].tolist() == [turns, turns]
    assert memory["shortest_stay_s"][0] == (10.0 if turns else np.inf)
    assert memory["largest_move"][0] == pytest.approx(swing)


def test_forced_moves_are_neither_moves_nor_turns() -> None:
    """Weight driven out by a hard clause or an empty kernel that returns by itself counts once."""
    memory = initial_follow(META, make_layout(3, 2, 1), 1)
    hard, ready = np.zeros((1, 3, 2), dtype=np.bool_), np.ones((1, 3), dtype=np.int64)
    last = np.zeros((1, 2, 4))
    for t in range(12):
        table = np.zeros((1, 2, 4))
        away = t % 2
        table[:, :, away] = 1.0
        hard[:, 0, :] = bool(away)
        forced = forced_rows(table, last, hard, ready, (True, True))
        assert forced.all() == bool(away)
        memory, last = follow(memory, table, forced, np.array([200.0 * t])), table
    assert memory["turns"].sum() == 0
    assert memory["moves"][0].tolist() == [5, 5]
    assert not forced_rows(table, table, hard, ready, (True, True)).any()
