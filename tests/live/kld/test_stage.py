"""Preparation of a server, access to the plug-in, and allowed requests."""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import distributions
from pathlib import Path

import pytest

from live.kld.inside.gate import FLAG, FOLDER, TOKEN_FILE, gate, refusal
from live.kld.inside.orders import (
    MOST_POSITIONS,
    MOST_PROMPTS,
    TOKEN_HEADER,
    CheckedFiles,
    ModelLimits,
    OrderRefusedError,
    object_of,
    prompts_of,
    reduce_orders,
    row_orders,
)
from live.kld.stage import PACKAGE, stage

LIMITS = ModelLimits(tokens=500, vocabulary=100)


def test_a_staged_server_finds_both_entry_points_and_keeps_what_it_had(tmp_path: Path) -> None:
    """By vLLM's group names, from the folder on its path; earlier paths and plug-ins stay."""
    staged = stage(tmp_path / "here", before={"PYTHONPATH": "/before", "VLLM_PLUGINS": "mine"})
    assert staged.environment["VLLM_PLUGINS"] == f"mine,{PACKAGE}"
    first, second = staged.environment["PYTHONPATH"].split(os.pathsep)
    assert second == "/before"
    points = {point.group: point.value for each in distributions(path=[first]) for point in each.entry_points}
    assert points == {
        "vllm.general_plugins": f"{PACKAGE}.worker:install",
        "vllm.endpoint_plugins": f"{PACKAGE}.endpoint:KldPlugin",
    }
    staged_names = {path.name for path in (Path(first) / PACKAGE).iterdir()}
    assert {"worker.py", "endpoint.py", "gate.py", "reduce.py"} <= staged_names


def test_the_token_is_its_owner_s_and_new_every_time(tmp_path: Path) -> None:
    """The token is readable by its owner only, and an older client cannot call a new server."""
    tokens = []
    for _ in range(2):
        staged = stage(tmp_path / "here")
        assert staged.token_file is not None
        assert staged.token_file.stat().st_mode & 0o077 == 0
        tokens.append(staged.token_file.read_text())
    assert tokens[0] != tokens[1]


def test_the_gate_is_shut_unless_everything_is_there(tmp_path: Path) -> None:
    """No flag, no folder, or an unreadable or short token: nothing answers, and the reason is said."""
    whole = stage(tmp_path / "here").environment
    assert gate(whole).enabled
    for name in (FLAG, FOLDER):
        shut = gate({key: value for key, value in whole.items() if key != name})
        assert not shut.enabled
        assert name in refusal(shut, "127.0.0.1", {})
    (tmp_path / "short").write_text("abc")
    for file in ("short", "missing"):
        assert not gate(whole | {TOKEN_FILE: str(tmp_path / file)}).enabled


def test_with_a_token_requests_are_allowed_from_anywhere(tmp_path: Path) -> None:
    """The header decides, not the address."""
    staged = stage(tmp_path / "here")
    assert staged.token_file is not None
    now, token = gate(staged.environment), staged.token_file.read_text()
    assert refusal(now, "10.0.0.7", {TOKEN_HEADER: token}) == ""
    assert TOKEN_HEADER in refusal(now, "127.0.0.1", {})
    assert TOKEN_HEADER in refusal(now, "127.0.0.1", {TOKEN_HEADER: token + "x"})
    assert token not in repr(now)


def test_without_a_token_the_loopback_interface_alone_may_ask(tmp_path: Path) -> None:
    """Through no proxy, because a proxy on this machine speaks for others."""
    now = gate(stage(tmp_path / "here", with_token=False).environment)
    assert refusal(now, "127.0.0.1", {}) == ""
    assert refusal(now, "::1", {}) == ""
    assert refusal(now, None, {}) == ""
    assert refusal(now, "10.0.0.7", {})
    assert refusal(now, "127.0.0.1", {"x-forwarded-for": "10.0.0.7"})
    assert refusal(now, "testclient", {})


@pytest.mark.parametrize(
    "prompts",
    [
        [],
        "abc",
        [[1]],
        [[1, "2"]],
        [[1, True]],
        [[1, 100]],
        [[1, -1]],
        [[1] * 500],
        [[1, 2]] * (MOST_PROMPTS + 1),
        [[1] * 400] * (MOST_POSITIONS // 399 + 1),
    ],
)
def test_prompts_that_are_none_or_too_many_are_refused(prompts: object) -> None:
    """Before the engine hears of them."""
    with pytest.raises(OrderRefusedError):
        prompts_of({"prompts": prompts}, LIMITS)


def test_whole_rows_are_limited_by_their_numbers() -> None:
    """A large vocabulary allows fewer positions in one answer."""
    body = {"prompts": [[1] * 400] * 10, "type": "f4"}
    assert len(row_orders(body, LIMITS)) == 10
    with pytest.raises(OrderRefusedError, match="numbers in one answer"):
        row_orders(body, ModelLimits(tokens=500, vocabulary=200_000))
    with pytest.raises(OrderRefusedError, match="f4, f2"):
        row_orders(body | {"type": "f8"}, LIMITS)


def test_references_come_from_one_folder_and_are_what_was_named(tmp_path: Path) -> None:
    """No path outside, no link that leads there, no other content, no other vocabulary."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.f32").write_bytes(b"\0" * 400)
    (inside / "link.f32").symlink_to(outside / "a.f32")
    sha256 = hashlib.sha256(b"\0" * 400).hexdigest()
    told = {"path": str(inside / "a.f32"), "sha256": sha256, "vocabulary": 100, "first_rows": [0]}
    files = CheckedFiles(inside.resolve())

    def orders(**other: object) -> list[dict[str, object]]:
        return reduce_orders({"prompts": [[1, 2]], "reference": told | other}, LIMITS, files)

    assert orders()[0]["size"] == 400
    for path in (outside / "a.f32", inside / "link.f32", inside / "none.f32", inside):
        with pytest.raises(OrderRefusedError, match="below this server's folder"):
            orders(path=str(path))
    for wrong in ({"sha256": "0" * 64}, {"vocabulary": 99}, {"first_rows": [0, 1]}, {"first_rows": [-1]}):
        with pytest.raises(OrderRefusedError):
            orders(**wrong)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000])
def test_bodies_that_are_no_object_are_refused(body: bytes) -> None:
    """Whatever comes, it is a refusal."""
    with pytest.raises(OrderRefusedError):
        object_of(body)
