"""Training text: deterministic, split, and free of licence texts."""

from __future__ import annotations

from pathlib import Path

from live.measure.corpus import SLICES, build_corpus


def small_library(folder: Path) -> Path:
    """A library of three files, one of them to be skipped and one not readable as text."""
    (folder / "test").mkdir()
    (folder / "a.py").write_text('"""' + "A long docstring of a module. " * 20 + '"""\nx = 1\n')
    (folder / "b.py").write_text("def f():\n    return 2\n")
    (folder / "c.py").write_bytes(b"\xff\xfe broken")
    (folder / "test" / "d.py").write_text("skipped = True\n")
    return folder


def test_the_corpus_is_a_function_of_seed_and_library(tmp_path: Path) -> None:
    """Equal seeds give equal documents, another seed another split, and every slice has both sides."""
    library = small_library(tmp_path)
    first, second = build_corpus(0, library=library), build_corpus(0, library=library)
    assert first == second
    assert first.sha256 == second.sha256
    assert build_corpus(1, library=library).sha256 != first.sha256
    for name in SLICES:
        assert any(document.slice == name for document in first.train)
        assert any(document.slice == name for document in first.held_out)


def test_no_document_is_trained_on_and_held_out(tmp_path: Path) -> None:
    """A document's name stands on one side of the split only, and skipped folders on none."""
    corpus = build_corpus(0, library=small_library(tmp_path))
    trained = {(document.slice, document.name) for document in corpus.train}
    held_out = {(document.slice, document.name) for document in corpus.held_out}
    assert not trained & held_out
    assert not any("skipped" in document.text for document in (*corpus.train, *corpus.held_out))
