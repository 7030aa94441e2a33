"""Public docstrings are complete: a function with two or more parameters says what each is, what
comes back, what is raised, and whether it may be called again; a value says what each field is."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

import magic_committer
import magic_committer.testing
from tests.tidy.sources import PACKAGE, ROOT

ENGINES = ("spark/write.py", "engines/ray.py", "engines/dask.py")
"""Read, not imported: PySpark, Ray and Dask are extras."""
PARAMETERS_MIN = 2
ROW = re.compile(r"^ {4}(\w+(?:, \w+)*): ", re.MULTILINE)


@dataclass(frozen=True)
class Said:
    """What a public function takes and gives, and what its docstring says."""

    name: str
    parameters: tuple[str, ...]
    gives: bool
    text: str

    def missing(self) -> list[str]:
        """What the docstring does not say."""
        missing = [name for name in self.parameters if name not in rows(self.text, "Args")]
        if self.gives and "Returns:" not in self.text:
            missing.append("Returns")
        if "Raises:" not in self.text:
            missing.append("Raises")
        if not re.search(r"repeatable", self.text, re.IGNORECASE):
            missing.append("whether it is repeatable")
        return missing


def rows(text: str, section: str) -> set[str]:
    """The names that a section of a docstring has a row for."""
    found = re.search(rf"^{section}:\n((?:(?: {{4}}.*)?\n?)*)", text, re.MULTILINE)
    if found is None:
        return set()
    return {name for row in ROW.findall(found[1]) for name in row.split(", ")}


def of_a_tree(function: ast.FunctionDef, name: str) -> Said:
    """A function as its source has it."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    gives = not (isinstance(function.returns, ast.Constant) and function.returns.value is None)
    return Said(
        name, tuple(one for one in names if one not in ("self", "cls")), gives,
        inspect.cleandoc(ast.get_docstring(function) or ""),
    )  # fmt: skip


def public_functions() -> Iterator[Said]:
    """Functions and methods of magic_committer, of its testing module and of engines."""
    values = [getattr(magic_committer, name) for name in vars(magic_committer)["__all__"]]
    values.append(magic_committer.testing.memory_store)
    for value in values:
        if inspect.isfunction(value):
            yield of_a_function(value)
        elif inspect.isclass(value) and not issubclass(value, Exception):
            for name, member in vars(value).items():
                function = getattr(member, "__func__", member)
                if inspect.isfunction(function) and not name.startswith("_"):
                    yield of_a_function(function)
    for file in ENGINES:
        tree = ast.parse((ROOT / PACKAGE / file).read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith(("write_", "to_")):
                yield of_a_tree(node, node.name)


def of_a_function(function: object) -> Said:
    """A function as it was imported."""
    assert inspect.isfunction(function)
    signature = inspect.signature(inspect.unwrap(function))
    return Said(
        function.__qualname__,
        tuple(name for name in signature.parameters if name not in ("self", "cls")),
        signature.return_annotation not in (None, "None"),
        inspect.getdoc(function) or "",
    )


def test_a_public_function_says_all_that_its_caller_needs() -> None:
    """Every public function with two or more parameters documents each, its result, its errors,
    and whether it may be repeated."""
    functions = [one for one in public_functions() if len(one.parameters) >= PARAMETERS_MIN]
    assert len(functions) >= 18
    assert {one.name: one.missing() for one in functions if one.missing()} == {}


def test_a_public_value_says_what_its_fields_are() -> None:
    """Every field of every public dataclass has a row under Attributes, its own or its base's."""
    silent = []
    for name in vars(magic_committer)["__all__"]:
        value = getattr(magic_committer, name)
        if inspect.isclass(value) and dataclasses.is_dataclass(value):
            said = {
                row
                for one in value.__mro__
                for row in rows(inspect.cleandoc(one.__doc__ or ""), "Attributes")
            }
            silent += [
                f"{name}.{one.name}"
                for one in dataclasses.fields(value)
                if one.name not in said and not one.name.startswith("_")
            ]
    assert silent == []


def test_a_docstring_that_leaves_something_out_is_noticed() -> None:
    """A parameter without a row, a missing result, missing errors and a missing word on a second
    call are each named."""
    tree = ast.parse(
        'def f(a, b, *, c) -> int:\n    """Do.\n\n    Args:\n        a, c: x.\n    """'
    )
    assert isinstance(tree.body[0], ast.FunctionDef)
    missing = of_a_tree(tree.body[0], "f").missing()
    assert missing == ["b", "Returns", "Raises", "whether it is repeatable"]
