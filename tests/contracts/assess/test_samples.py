"""The samples file: written values are read back, and broken files are refused."""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.assess.samples import KernelSamples, load_samples, save_samples
from contracts.errors import DocumentError
from contracts.rng import stream


def make(**changes: Any) -> KernelSamples:
    """Two conditions, six prompts of two slices, two repeats, two columns."""
    fields: dict[str, Any] = {
        "condition_names": ("healthy", "slow"),
        "prompt_ids": np.arange(10, 16),
        "prompt_slice": ("code", "prose") * 3,
        "prompt_split": ("certify", "certify", "probe", "probe", "traffic", "traffic"),
        "metric_names": ("kl_mean@full_vocab", "tv_mean@full_vocab"),
        "values": np.arange(48, dtype=np.float64).reshape(2, 6, 2, 2),
    }
    return KernelSamples(**(fields | changes))


def test_round_trip_and_same_bytes(tmp_path: Path) -> None:
    """Reading returns what was written, and writing twice gives the same bytes."""
    samples = make()
    first = save_samples(tmp_path / "a.npz", samples)
    assert save_samples(tmp_path / "b.npz", samples) == first
    found = load_samples(tmp_path / "a.npz", first)
    assert found.values.tobytes() == samples.values.tobytes()
    assert found.condition_names == samples.condition_names
    assert found.prompt_split == samples.prompt_split
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_units_are_means_over_repeats_of_one_slice_and_split() -> None:
    """A prompt's value is the mean over its repeats; an absent column is NaN."""
    samples = make()
    rows = samples.rows("probe", "code")
    assert rows.tolist() == [2]
    assert samples.prompt_values("tv_mean@full_vocab", "healthy", rows).tolist() == [10.0]
    assert np.isnan(samples.prompt_values("kl_max@full_vocab", "healthy", rows)).all()
    with pytest.raises(KeyError, match="measured: healthy, slow"):
        samples.condition("fast")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt_ids": np.array([1, 2, 3, 4, 5, 5])}, "prompt 5 more than once"),
        ({"prompt_split": ("certify",) * 5 + ("train",)}, "'train'"),
        ({"prompt_split": ("certify",) * 5}, "prompt_split: expected 6 entries"),
        ({"values": np.zeros((2, 6, 2, 3))}, "shape"),
        ({"values": np.full((2, 6, 2, 2), np.inf)}, "infinite"),
        ({"metric_names": ("a", "a")}, "unique names"),
        ({"prompt_slice": ("code", "\x1b[31m") * 3}, "printable"),
    ],
)
def test_inconsistent_samples_cannot_be_made(changes: dict[str, Any], said: str) -> None:
    """Overlapping splits, wrong shapes, infinities and double names are refused at construction."""
    with pytest.raises(ValueError, match=said):
        make(**changes)


def test_another_file_under_the_pinned_hash_is_refused(tmp_path: Path) -> None:
    """A file whose sha256 is not the pinned one is not read."""
    save_samples(tmp_path / "a.npz", make())
    with pytest.raises(DocumentError, match=r"a\.npz sha256: expected 00"):
        load_samples(tmp_path / "a.npz", "00")


def test_corruption_is_noticed_and_never_crashes(tmp_path: Path) -> None:
    """Any damaged byte either leaves the arrays unchanged or raises a DocumentError."""
    target = tmp_path / "a.npz"
    save_samples(target, make())
    good, original = target.read_bytes(), make()
    for place in range(0, len(good), 7):
        target.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            found = load_samples(target)
        except DocumentError:
            continue
        assert found.values.tobytes() == original.values.tobytes()


def test_damaged_headers_are_refused(tmp_path: Path) -> None:
    """Any damaged array header with a valid checksum is an array or raises a DocumentError."""
    target = tmp_path / "a.npz"
    save_samples(target, make())
    with zipfile.ZipFile(target) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    rng = stream(0, "damage")
    for number in range(300):
        name = list(parts)[number % len(parts)]
        damaged = bytearray(parts[name])
        for place in rng.integers(0, min(len(damaged), 128), size=2):
            damaged[place] = int(rng.choice(list(b"09(){}[],'<>fiU: \xff")))
        with zipfile.ZipFile(target, "w") as archive:
            for each, content in (parts | {name: bytes(damaged)}).items():
                archive.writestr(each, content)
        with contextlib.suppress(DocumentError):
            load_samples(target)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04"])
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    """A file that is no npz archive is refused with its name."""
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DocumentError, match=r"a\.npz: expected an npz archive"):
        load_samples(tmp_path / "a.npz")


def test_pickled_and_wrongly_typed_arrays_are_refused(tmp_path: Path) -> None:
    """Object arrays are never unpickled, and numbers in place of names are refused."""
    fields = {name: getattr(make(), name) for name in make().__slots__}
    pickled = fields | {"metric_names": np.array(["a", "b"], dtype=object)}
    np.savez(tmp_path / "a.npz", **pickled)
    with pytest.raises(DocumentError, match="Object arrays"):
        load_samples(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", **(fields | {"metric_names": np.array([1, 2])}))
    with pytest.raises(DocumentError, match="metric_names: expected an array of text"):
        load_samples(tmp_path / "a.npz")


def test_missing_file_is_bad_input(tmp_path: Path) -> None:
    """A missing file and a missing array are refused with their names."""
    with pytest.raises(DocumentError, match="readable file"):
        load_samples(tmp_path / "none.npz")
    np.savez(tmp_path / "a.npz", values=np.zeros(1))
    with pytest.raises(DocumentError, match="missing arrays"):
        load_samples(tmp_path / "a.npz")
