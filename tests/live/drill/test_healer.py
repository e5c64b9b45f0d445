"""Causes of moves, from a growing log: capacity alone or more; unreadable lines are ignored."""

from __future__ import annotations

from pathlib import Path

from live.control.chain import ChainWriter
from live.drill.healer import MoveReasons

SLICES = ("code", "numbers")


def moved(slice_name: str, *because: str) -> dict[str, object]:
    """A record in which ``slice_name`` moved."""
    weights = [{"slice": slice_name, "target": name, "because": list(because)} for name in ("fast", "good")]
    return {"kind": "tick", "moves": weights}


def test_the_newest_move_of_a_slice_counts(tmp_path: Path) -> None:
    """For capacity alone, until the slice moves for another reason too; over consecutive files."""
    reasons = MoveReasons(tmp_path, SLICES)
    assert reasons.for_capacity().tolist() == [False, False]
    first = ChainWriter(tmp_path / "decisions-000001.jsonl")
    first.append({"kind": "start"})
    first.append(moved("code", "capacity"))
    assert reasons.for_capacity().tolist() == [True, False]
    second = ChainWriter(tmp_path / "decisions-000002.jsonl", first.last_sha256)
    second.append(moved("code", "N-kl-mean on fast", "capacity"))
    second.append(moved("numbers", "capacity"))
    assert reasons.for_capacity().tolist() == [False, True]
    second.append({"kind": "tick", "moves": []})
    assert reasons.for_capacity().tolist() == [False, True]
    first.close()
    second.close()


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """Torn lines, other JSON, slices of another fleet: no error, and no move counts as one for capacity."""
    log = tmp_path / "decisions-000001.jsonl"
    log.write_bytes(b'{"moves": [{"slice": "code"\n[]\n{"moves": 3}\n{"moves": [{"slice": "code"}]}\n\xff\n')
    with log.open("ab") as stream:
        stream.write(b'{"moves": [{"slice": "other", "because": ["capacity"]}]}\n')
    assert MoveReasons(tmp_path, SLICES).for_capacity().tolist() == [False, False]
