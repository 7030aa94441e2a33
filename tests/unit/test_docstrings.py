"""The examples in public docstrings run, each against an in-memory store of its own."""

from __future__ import annotations

import doctest
import inspect
import logging
from collections.abc import Iterator

import pytest

import magic_committer as mc
from magic_committer.testing import memory_store

WITH_EXAMPLE = (
    mc.start,
    mc.attach,
    mc.write,
    mc.open_magic,
    mc.Job.task,
    mc.Job.commit,
    mc.Job.abort,
    mc.Job.__enter__,
    mc.Job.to_dict,
    mc.Task.open,
    mc.Task.commit,
    mc.Writing.open,
)
"""What must have an example; others may."""


def documented() -> Iterator[tuple[str, object]]:
    """Everything public with a docstring: name and object."""
    for name in vars(mc)["__all__"]:
        value = getattr(mc, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        yield name, value
        if inspect.isclass(value):
            for member, function in vars(value).items():
                function = getattr(function, "__func__", function)
                if inspect.isfunction(function) and (member[0] != "_" or member == "__enter__"):
                    yield f"{name}.{member}", function


def examples(value: object, name: str) -> doctest.DocTest | None:
    """The example in a docstring; None if there is none."""
    text = inspect.getdoc(value) or ""
    if ">>>" not in text:
        return None
    return doctest.DocTestParser().get_doctest(text, {"mc": mc}, name, None, 0)


EXAMPLES = {name: test for name, value in documented() if (test := examples(value, name))}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_runs_as_it_is_written(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """What a docstring shows is what a user gets, without a warning in the log."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    told: list[str] = []
    with memory_store(), caplog.at_level(logging.WARNING):
        failed, tried = runner.run(EXAMPLES[name], out=told.append)
    assert tried
    assert not failed, "".join(told)
    assert caplog.text == ""


def test_the_calls_that_everybody_makes_have_an_example() -> None:
    """Each of them shows at least one."""
    without = [one.__qualname__ for one in WITH_EXAMPLE if examples(one, "") is None]
    assert without == []
