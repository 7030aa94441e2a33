"""The port's contract on real file systems: every test of tests/unit that takes any tree."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from magic_committer.stores.trees.base import FileTree
from tests.unit import test_file_trees

Rule = Callable[[FileTree], None]
RULES: dict[str, Rule] = {
    name: rule
    for name, rule in vars(test_file_trees).items()
    if name.startswith("test_") and [*inspect.signature(rule).parameters] == ["tree"]
}


assert len(RULES) >= 8, "they are taken by their signature: none may go by a change of names"


@pytest.mark.parametrize("rule", RULES)
def test_the_file_system_keeps_the_contract(rule: str, tree: FileTree) -> None:
    """What the committers rest on is so, not only in stand-ins."""
    RULES[rule](tree)
