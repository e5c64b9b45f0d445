"""Certificates of built-in policies: what they cover, and the one that ships."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from contracts.documents import MetaContract
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from policies.artefacts import builtin_sha256
from policies.route import refuse_uncertified_baseline


def test_a_built_in_policys_certificate_covers_every_setting() -> None:
    """Defaults count as settings, written out or not; any other value is another subject."""
    assert builtin_sha256("hysteresis") == builtin_sha256("hysteresis:dwell_s=120")
    assert builtin_sha256("hysteresis") != builtin_sha256("hysteresis:dwell_s=121")
    assert builtin_sha256("hysteresis") != builtin_sha256("threshold")


def test_the_shipped_baseline_is_certified_with_its_present_settings() -> None:
    """Its certificate ships, keeps every clause of the shipped meta-contract and has its present settings."""
    place = resolve_uri(SHIPPED_META, "tests")
    refuse_uncertified_baseline(load_as(MetaContract, place), place)


def test_a_baseline_that_failed_is_named_with_an_alternative(tmp_path: Path) -> None:
    """The error names the clause that the baseline broke, and a baseline that needs no certificate."""
    shipped = resolve_uri(SHIPPED_META, "tests")
    place = Path(shutil.copy(shipped, tmp_path))
    name = "hysteresis-certificate.json"
    (tmp_path / "policies").mkdir()
    found = json.loads((shipped.parent / "policies" / name).read_text())
    found["passed"] = found["clauses"][0]["passed"] = False
    (tmp_path / "policies" / name).write_text(json.dumps(found))
    with pytest.raises(DocumentError) as caught:
        refuse_uncertified_baseline(load_as(MetaContract, place), place)
    told = str(caught.value)
    assert f"failed: {found['clauses'][0]['id']}" in told
    assert "--baseline fixed_known_good" in told
