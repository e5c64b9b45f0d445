"""Finding a dose, and the record that undoes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.client.dose import LEAST, MOST, DoseError, bisect_dose, top_k_kl
from faults.client.record import RecordError, UndoRecord, load, open_records, path_for, save
from faults.client.replica import ReplicaFaults, undo_record
from faults.client.wire import DrillRefusedError, ReplicaGoneError, call
from tests.faults.inside.test_document import scheduled


@given(st.floats(0.5, 3.0), st.floats(1e-3, 10.0), st.floats(1e-6, 1e-2))
def test_a_dose_is_found_wherever_the_effect_grows(power: float, slope: float, wanted: float) -> None:
    """For effects like slope * size ** power the effect of the found dose is within the tolerance."""

    def effect(size: float) -> float:
        return float(slope * size**power)

    if not effect(LEAST) <= wanted <= effect(MOST):
        return
    dose = bisect_dose(effect, wanted, tolerance_ratio=0.1)
    assert abs(effect(dose.size) - wanted) <= 0.1 * wanted
    assert dose.effect == effect(dose.size)


def test_a_dose_beyond_the_largest_is_refused() -> None:
    """The error for a fault that cannot be strong enough names its largest effect."""
    with pytest.raises(DoseError, match="largest dose"):
        bisect_dose(lambda size: 0.01 * size, 1.0)


def test_an_effect_that_jumps_over_the_wanted_is_refused() -> None:
    """A dose with another effect than the wanted one is refused."""
    with pytest.raises(DoseError, match="nearest"):
        bisect_dose(lambda size: 0.0 if size < 0.5 else 9.0, 1.0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.floats(0.0, 5.0))
def test_the_bound_of_the_likeliest_tokens_is_one(seed: int, top_k: int, spread: float) -> None:
    """It never exceeds the full KL, and is 0 between equal rows."""
    rng = np.random.default_rng(seed)
    clean = rng.normal(0.0, 2.0, 40)
    seen = clean + rng.normal(0.0, spread, 40)
    log_p, log_q = (row - np.log(np.exp(row).sum()) for row in (clean, seen))
    rows = [{int(t): float(row[t]) for t in np.argsort(-row)[:top_k]} for row in (log_p, log_q)]
    full = float((np.exp(log_p) * (log_p - log_q)).sum())
    assert top_k_kl(rows[0], rows[1], top_k) <= full + 1e-9
    assert top_k_kl(rows[0], rows[0], top_k) == 0.0


def _record(**changes: Any) -> UndoRecord:
    plain: dict[str, Any] = {
        "url": "http://127.0.0.1:9",
        "token_file": "t",
        "fault": {"name": "f", "kind": "slow"},
        "written_at_s": 0.0,
        "ttl_s": 5.0,
    }
    return UndoRecord(**(plain | changes))


def test_open_records_excludes_closed_ones(tmp_path: Path) -> None:
    """A closed record needs no undo; an unreadable record is an error that names it."""
    save(tmp_path / "a.undo.json", _record())
    save(tmp_path / "b.undo.json", _record().closed("undone"))
    assert [path.name for path, _ in open_records(tmp_path)] == ["a.undo.json"]
    (tmp_path / "c.undo.json").write_text("{}")
    with pytest.raises(RecordError, match="undo record"):
        load(tmp_path / "c.undo.json")


def test_the_record_is_there_before_the_injection_and_another_process_closes_it(tmp_path: Path) -> None:
    """A replica with a closed port: nothing is injected, the record stays open, its undo finds it gone."""
    token = tmp_path / "token"
    token.write_text("t" * 20)
    replica = ReplicaFaults("http://127.0.0.1:9", token, tmp_path)
    with pytest.raises(ReplicaGoneError):
        replica.inject(scheduled("slow"), 5.0)
    path = path_for(tmp_path, "f", "http://127.0.0.1:9")
    assert load(path).state == "open"
    assert undo_record(path).gone
    assert load(path).state == "gone"
    assert undo_record(path).gone


def test_a_missing_token_file_is_a_refusal(tmp_path: Path) -> None:
    """Without the token nothing is sent, and the message names the file."""
    replica = ReplicaFaults("http://127.0.0.1:9", tmp_path / "none", tmp_path)
    with pytest.raises(DrillRefusedError, match="none"):
        replica.status()


def test_a_closed_port_differs_from_silence() -> None:
    """A call to a closed port raises ReplicaGoneError."""
    with pytest.raises(ReplicaGoneError):
        call("http://127.0.0.1:9/health", within_s=1.0)
