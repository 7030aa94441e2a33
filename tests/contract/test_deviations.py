"""The table of deviations: what the page prints is what the tests hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import deviations

TESTS = Path(deviations.__file__).parent


def test_the_page_prints_the_table() -> None:
    """The page has the table as it is; `python -m tests.deviations` writes it."""
    document = deviations.PAGE.read_text(encoding="utf-8")
    assert deviations.with_table(document) == document


def test_every_rule_is_a_test() -> None:
    """No line of the table names a test that is not there."""
    tests = {
        name
        for folder in ("contract", "real_servers")
        for file in (TESTS / folder).glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    rules = {rule for of_store in deviations.DEVIATIONS.values() for rule in of_store}
    assert rules <= tests


def test_a_document_without_a_place_for_the_table_is_refused() -> None:
    """A lost marker is an error, not a table that is never written again."""
    with pytest.raises(ValueError, match="0 places"):
        deviations.with_table("# Stores\n")
