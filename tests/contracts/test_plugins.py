"""Registries and the entry points that add to them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contracts.errors import PluginError
from contracts.plugins import Registry
from tests.support.documents.plugins import write_plugin

GROUP = "selvage_fleet.made_up"
REGISTRY: Registry[int] = Registry(GROUP)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[int]:
    """A registry with one entry, which made-up plug-ins reach as ``REGISTRY`` of this module."""
    found: Registry[int] = Registry(GROUP, [("own", 1)])
    monkeypatch.setattr(sys.modules[__name__], "REGISTRY", found)
    return found


def install(
    monkeypatch: pytest.MonkeyPatch, folder: Path, module: str, points: dict[str, str], source: str
) -> None:
    """Put a distribution ``acme`` with one module on the path."""
    write_plugin(folder, module, {GROUP: points}, source)
    monkeypatch.syspath_prepend(folder)


def test_plugin_is_loaded_when_its_name_is_asked_for(
    registry: Registry[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its name is known without an import; looking it up imports the module, which registers it."""
    source = f"import {__name__} as tests\ntests.REGISTRY.register('theirs', 2)\n"
    install(monkeypatch, tmp_path, "acme_good", {"theirs": "acme_good"}, source)
    assert "theirs" in registry
    assert registry.known() == ["own", "theirs"]
    assert (registry["own"], "acme_good" in sys.modules) == (1, False)
    assert (registry["theirs"], "acme_good" in sys.modules) == (2, True)


def test_plugin_that_registers_nothing_is_named(
    registry: Registry[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error says which entry point of which distribution should have registered which name."""
    install(monkeypatch, tmp_path, "acme_idle", {"theirs": "acme_idle"}, "")
    with pytest.raises(
        PluginError, match=r"'theirs' of group .*acme_idle, from acme 1\.0.* registers 'theirs'"
    ):
        registry["theirs"]


@pytest.mark.parametrize(
    ("value", "actual"), [("acme_absent", "No module named"), ("acme_broken:maker", "ZeroDivisionError")]
)
def test_plugin_that_cannot_be_imported_is_named(
    registry: Registry[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, actual: str
) -> None:
    """The exception of its import is in the error, with the distribution to mend."""
    install(monkeypatch, tmp_path, "acme_broken", {"theirs": value}, "1 / 0\n")
    with pytest.raises(PluginError, match=f"from acme 1.0.*{actual}.*mend or uninstall"):
        registry["theirs"]


def test_plugin_cannot_replace_a_registered_name(
    registry: Registry[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An entry point with a registered name is never loaded, and registering a name twice is refused."""
    install(monkeypatch, tmp_path, "acme_thief", {"own": "acme_thief"}, "raise SystemExit\n")
    assert registry["own"] == 1
    with pytest.raises(ValueError, match="'own' is registered already"):
        registry.register("own", 2)


def test_unknown_name_stays_a_key_error(registry: Registry[int]) -> None:
    """Without an entry point of that name, a missing entry is a KeyError as in any dict."""
    assert "nobodys" not in registry
    with pytest.raises(KeyError):
        registry["nobodys"]
