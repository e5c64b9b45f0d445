"""The page of the meta-contract shows the shipped certificates."""

from __future__ import annotations

from contracts.loading.shipped import LIVE_ARTEFACT
from scripts.train.certificates import LIVE_PAGE, PAGE, certificate_table
from tests.support.paths import DOCS


def test_the_page_shows_the_certificates_that_ship() -> None:
    """The table is made of the shipped files; ``python -m scripts.train.certificates docs`` writes it."""
    assert "\n".join(certificate_table()) in (DOCS / PAGE).read_text()
    assert "\n".join(certificate_table(LIVE_ARTEFACT)) in (DOCS / LIVE_PAGE).read_text()
