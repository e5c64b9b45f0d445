"""``selvage policy route``: a document that some world would refuse is not written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.loading.shipped import SHIPPED_ARTEFACT
from scripts.cli.main import app
from tests.support.documents.own_fleet import KERNELS, write_own_fleet


@pytest.mark.parametrize("slices", [("support",), ("a", "b"), ("a", "b", "c", "d", "e", "f")], ids=len)
def test_a_route_is_not_written_for_a_fleet_that_the_network_does_not_read(
    slices: tuple[str, ...], tmp_path: Path
) -> None:
    """The refusal comes when the document is made, with the command that helps."""
    kernels = tuple(replace(kernel, slices=slices) for kernel in KERNELS)
    scenario = write_own_fleet(tmp_path, kernels=kernels)
    place = tmp_path / "route.yaml"
    found = CliRunner().invoke(app, ["policy", "route", SHIPPED_ARTEFACT, str(scenario), "--out", str(place)])
    assert found.exit_code == 2
    assert f"exactly 5 slices, got 2 kernels and {len(slices)} slices" in found.stderr
    assert "selvage policy export MANIFEST --scenario SCENARIO" in found.stderr
    assert not place.exists()
