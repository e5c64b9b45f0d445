"""A server compared by each route: the fastest that works, and why no faster one does."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest

from contracts.errors import DocumentError, MeasurementError
from live.kld.measure import Comparison, ComparisonRoute
from live.kld.positions import PromptPositions
from live.kld.reference import ReferencePlan, reference_for
from live.kld.server import batches, local_folder
from live.measure.endpoint import Endpoint
from live.measure.reference import ReferenceScores, TopReference
from tests.support.servers.bigram_server import VOCABULARY, prompts, reached
from tests.support.servers.kld_server import KldFake, stored


def compared(server: KldFake, folder: Path, token: str = "") -> Comparison:
    """The fake server against the bigram model itself, stored in ``folder``."""
    return Comparison(endpoint=reached(server), token=token, prompts=prompts(), reference=stored(folder))


def kl(found: list[PromptPositions]) -> np.ndarray:
    """All positions' KL."""
    return np.concatenate([each.column("kl") for each in found])


def test_all_routes_tell_one_story(tmp_path: Path) -> None:
    """Reduced on the server or here the numbers are the same; the public route gives lower bounds."""
    comparison = compared(KldFake(drift=0.3, folder=tmp_path), tmp_path)
    assert comparison.choose().route is ComparisonRoute.REDUCED
    done: list[int] = []
    reduced, rows, public = (comparison.run(route, done.append) for route in ComparisonRoute)
    assert kl(reduced) == pytest.approx(kl(rows), rel=1e-4, abs=1e-7)
    assert (kl(public) <= kl(rows) + 1e-6).all()
    assert kl(public).mean() > 0.1 * kl(rows).mean()
    assert sum(done) == 3 * sum(prompt.positions for prompt in prompts())
    assert [each.exact for each in (reduced[0], rows[0], public[0])] == [True, True, False]


def test_a_server_that_cannot_read_the_file_answers_rows(tmp_path: Path) -> None:
    """The reason is the server's own message."""
    (tmp_path / "theirs").mkdir()
    choice = compared(KldFake(folder=tmp_path / "theirs"), tmp_path).choose()
    assert choice.route is ComparisonRoute.ROWS
    assert "no file below this folder" in choice.reason


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (KldFake(token="right", folder=Path("/")), "x-selvage-kld-token"),
        (KldFake(unfit="no such runner", folder=Path("/")), "no such runner"),
        (KldFake(protocol=2, folder=Path("/")), "protocol 2"),
    ],
)
def test_a_plug_in_that_cannot_serve_leaves_the_public_route(
    server: KldFake, reason: str, tmp_path: Path
) -> None:
    """It says why; a missing route cannot be forced."""
    comparison = compared(server, tmp_path, token="wrong")
    choice = comparison.choose()
    assert choice.route is ComparisonRoute.PUBLIC
    assert reason in choice.reason
    with pytest.raises(MeasurementError, match="does not offer the route rows"):
        comparison.choose(ComparisonRoute.ROWS)
    assert not server.asked.count("/selvage/kld/reduce")


def test_a_slower_route_can_be_asked_for(tmp_path: Path) -> None:
    """To compare them, or to spare the engine."""
    comparison = compared(KldFake(folder=tmp_path), tmp_path)
    assert comparison.choose(ComparisonRoute.PUBLIC).route is ComparisonRoute.PUBLIC


def test_two_vocabularies_are_no_comparison(tmp_path: Path) -> None:
    """A reference of another model is refused before anything is measured."""
    rows = stored(tmp_path)
    other = ReferenceScores(
        rows=np.zeros((48, VOCABULARY + 1), dtype=np.float32),
        starts=rows.starts,
        sha256="0" * 64,
        versions=(),
        path=rows.path,
    )
    comparison = Comparison(
        endpoint=reached(KldFake(folder=tmp_path)), token="", prompts=prompts(), reference=other
    )
    with pytest.raises(MeasurementError, match="no two kernels of one model"):
        comparison.choose()


def test_a_reference_server_with_the_plug_in_gives_whole_rows_once(tmp_path: Path) -> None:
    """They are stored, equal to the served distribution, and not asked for again; float16 costs precision."""
    server = KldFake(folder=tmp_path)
    plan = ReferencePlan(store=tmp_path / "store", model=tmp_path, endpoint=reached(server))
    first = reference_for(plan, prompts(), lambda: None)
    assert isinstance(first, ReferenceScores)
    asked = server.asked.count("/selvage/kld/rows")
    assert asked == len(prompts())
    again = reference_for(plan, prompts(), lambda: None)
    assert again.sha256 == first.sha256
    assert server.asked.count("/selvage/kld/rows") == asked
    assert first.of(2) == pytest.approx(stored(tmp_path).of(2), abs=1e-6)
    half = ReferencePlan(store=tmp_path / "store", model=tmp_path, endpoint=reached(server), half=True)
    rounded = reference_for(half, prompts(), lambda: None)
    assert isinstance(rounded, ReferenceScores)
    assert rounded.sha256 != first.sha256
    assert rounded.of(2) == pytest.approx(first.of(2), rel=5e-4)


def test_a_reference_server_without_it_gives_its_most_probable_tokens(tmp_path: Path) -> None:
    """Then only the public route is open."""
    server = KldFake(unfit="none", folder=tmp_path)
    plan = ReferencePlan(store=tmp_path / "store", model=tmp_path, endpoint=reached(server))
    reference = reference_for(plan, prompts(), lambda: None)
    assert isinstance(reference, TopReference)
    candidate = KldFake(drift=0.3, folder=tmp_path)
    comparison = Comparison(endpoint=reached(candidate), token="", prompts=prompts(), reference=reference)
    assert comparison.choose().route is ComparisonRoute.PUBLIC
    assert kl(comparison.run(ComparisonRoute.PUBLIC, lambda _: None)).mean() > 0.0


def test_a_stored_file_must_hold_distributions(tmp_path: Path) -> None:
    """Logits, or rows of another width, are refused with the file's name."""
    good = stored(tmp_path)
    assert good.path is not None
    plan = ReferencePlan(store=tmp_path, model=tmp_path, file=good.path)
    assert reference_for(plan, prompts(), lambda: None).sha256 == good.sha256
    (tmp_path / "logits.f32").write_bytes((np.asarray(good.rows) + 1.0).astype("<f4").tobytes())
    with pytest.raises(DocumentError, match=r"logits\.f32"):
        reference_for(
            ReferencePlan(store=tmp_path, model=tmp_path, file=tmp_path / "logits.f32"),
            prompts(),
            lambda: None,
        )


def test_requests_keep_the_server_s_limits() -> None:
    """Every prompt comes once, in order, and no batch is larger than allowed."""
    for most_prompts, most_positions in ((1, 1000), (4, 17), (100, 8), (100, 100)):
        found = list(batches(prompts(), most_prompts, most_positions))
        assert [index for batch in found for index in batch] == list(range(len(prompts())))
        assert all(len(batch) <= most_prompts for batch in found)
        assert all(len(batch) == 1 or len(batch) * 8 <= most_positions for batch in found)


def test_references_are_put_beside_a_server_of_this_machine_alone(tmp_path: Path) -> None:
    """The folder name of a server elsewhere says nothing about ours."""
    server = KldFake(folder=tmp_path)
    near = Endpoint(url="http://127.0.0.1:9", transport=httpx.MockTransport(server))
    assert local_folder(near, "") == tmp_path
    far = Endpoint(url="http://10.0.0.7:9", transport=httpx.MockTransport(server))
    assert local_folder(far, "") is None
