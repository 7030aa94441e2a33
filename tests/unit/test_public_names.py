"""What public signatures name can be imported from a public module, and is no `Any`."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import logging
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.filesystem.calls import FileCalls
from magic_committer.testing import memory_store
from tests.promises.hands import raises

PUBLIC = (
    "magic_committer",
    "magic_committer.errors",
    "magic_committer.options",
    "magic_committer.errors.messages",
    "magic_committer.testing",
)
WITH_SPARK = (*PUBLIC, "magic_committer.spark")
MADE_BY_THE_LIBRARY = {
    "Job", "Task", "Writing", "UploadStream", "TextUpload", "State", "FileState", "LocalFile",
    "FoundJob", "OpenUploads", "ActionPlan",
}  # fmt: skip
"""Their constructors are not for users: `start`, `Job.task`, `write` and `open` make them."""
JSON = {"dict[str, Any]", "Mapping[str, Any]"}
"""Where alone `Any` may stand: values of JSON."""


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function of `__all__`, and every public method and property of its classes."""
    for name in vars(mc)["__all__"]:
        value = getattr(mc, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and value.__module__.startswith("magic_committer"):
            for member, attribute in vars(value).items():
                if isinstance(attribute, property):
                    attribute = attribute.fget
                function = getattr(attribute, "__func__", attribute)
                if not inspect.isfunction(function) or function.__module__ != value.__module__:
                    continue
                made = member == "__init__" and name not in MADE_BY_THE_LIBRARY
                if member[0] != "_" or made or member == "__enter__":
                    yield f"{name}.{member}", function


def signatures() -> Iterator[tuple[str, str, ModuleType]]:
    """Place, text and module of each annotation of a public signature, overloads and fields too."""
    for place, function in public_functions():
        module = sys.modules[function.__module__]
        for one in (function, *typing.get_overloads(function)):
            for named, text in one.__annotations__.items():
                if named[0] != "_":
                    yield place, str(text), module
    for name in vars(mc)["__all__"]:
        value = getattr(mc, name)
        if inspect.isclass(value) and hasattr(value, "__dataclass_fields__"):
            for named, text in value.__annotations__.items():
                if named[0] != "_":
                    yield name, str(text), sys.modules[value.__module__]


def names_in(annotation: str) -> set[str]:
    """The names that an annotation is made of; those of what a `Literal` holds are none."""
    tree = ast.parse(annotation, mode="eval")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def is_ours(name: str, module: ModuleType) -> bool:
    """Whether a name in a module of ours is defined by the library: imported from it, or there."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(
            name in (alias.asname, alias.name) for alias in node.names
        ):
            return bool(node.module and node.module.startswith("magic_committer"))
    return not hasattr(builtins, name)


def unknown(modules: tuple[str, ...], found: Iterator[tuple[str, str, ModuleType]]) -> set[str]:
    """The names of ours in annotations that no public module hands out."""
    known: dict[str, Any] = {}
    for module in map(importlib.import_module, modules):
        for name in getattr(module, "__all__", [*vars(module)]):
            if name[0] != "_":
                known[name] = getattr(module, name)  # some are loaded when they are asked for
    return {
        f"{place}: {name}"
        for place, text, module in found
        for name in names_in(text)
        if is_ours(name, module)
        and not isinstance(getattr(module, name, None), typing.TypeVar)
        and (name not in known or known[name] is not getattr(module, name, known[name]))
    }


def test_what_public_signatures_name_is_public() -> None:
    """Every type of ours in an argument, a result or a field is in a public module, as itself."""
    module = sys.modules["magic_committer.job"]
    assert unknown(PUBLIC, iter([("f", "StartedJob | None", module)])) == {"f: StartedJob"}
    ignored = {"Buffer"}  # of type checkers, and of Python from 3.12 on
    found = {one for one in unknown(PUBLIC, signatures()) if one.split(": ")[1] not in ignored}
    assert found == set()


def test_what_sparks_signatures_name_is_public() -> None:
    """The same of `magic_committer.spark`."""
    pytest.importorskip("pyspark")
    spark = importlib.import_module("magic_committer.spark")
    found = (
        (name, str(text), sys.modules[function.__module__])
        for name in spark.__all__
        if inspect.isfunction(function := getattr(spark, name))
        for text in function.__annotations__.values()
    )
    assert unknown(WITH_SPARK, found) == set()


def test_no_public_signature_says_any() -> None:
    """`Any` turns a type checker off: only values of JSON have it."""
    found = {
        f"{place}: {text}"
        for place, text, _ in signatures()
        if "Any" in names_in(text) and not any(one in text for one in JSON)
    }
    assert found == set()


def test_a_job_shows_users_what_is_theirs() -> None:
    """`dir` of a job has the calls that the documentation has, and no others."""
    shown = {name for name in dir(mc.Job) if not name.startswith("_")}
    assert shown == {
        "abort", "commit", "committer", "dest", "from_dict", "id", "keep_alive", "outcome",
        "report", "state", "task", "to_dict", "track", "uuid",
    }  # fmt: skip


def test_a_class_below_an_error_has_the_attributes_of_that_error() -> None:
    """Users may derive from an error; a wrong name is a TypeError there, too."""

    class Ours(mc.JobNotRunning):
        """A user's own."""

    assert Ours("over", job_id="1", state="closed").state == "closed"
    raises(TypeError, Ours, "over", stat="closed", match="has no attribute 'stat'")


WITH_EXAMPLE = (
    "start", "attach", "write", "open_magic", "Job.task", "Job.commit", "Job.abort",
    "Job.__enter__", "Job.to_dict", "Task.open", "Task.commit",
)  # fmt: skip
"""What must have an example; others may."""


def documented() -> Iterator[tuple[str, object]]:
    """Everything public with a docstring: name and object."""
    for name in vars(mc)["__all__"]:
        value = getattr(mc, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        yield name, value
        if inspect.isclass(value):
            own = vars(value) | (vars(FileCalls) if value is mc.Task else {})
            for member, function in own.items():
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


@pytest.mark.parametrize("name", sorted({*EXAMPLES, *WITH_EXAMPLE}))
def test_an_example_runs_as_it_is_written(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """What a docstring shows is what a user gets, without a warning in the log."""
    if any("pyarrow" in one.source for one in EXAMPLES[name].examples):
        pytest.importorskip("pyarrow")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    told: list[str] = []
    with memory_store(), caplog.at_level(logging.WARNING):
        failed, tried = runner.run(EXAMPLES[name], out=told.append)
    assert tried
    assert not failed, "".join(told)
    assert caplog.text == ""
