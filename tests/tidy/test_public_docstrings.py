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
from magic_committer import Options, S3Options
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
    defaults: tuple[tuple[str, float], ...] = ()

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
        numbers_of(signature),
    )


def numbers_of(signature: inspect.Signature) -> tuple[tuple[str, float], ...]:
    """The parameters whose default is a number other than 0, with it."""
    given = ((name, one.default) for name, one in signature.parameters.items())
    return tuple((n, v) for n, v in given if type(v) in (int, float) and v > 0)


def says(text: str, name: str, default: float) -> bool:
    """Whether the row of a parameter gives its default, as a number, a size or a time."""
    row = re.search(rf"^ {{4}}(?:\w+, )*{name}(?:, \w+)*: (.*(?:\n {{8}}.*)*)", text, re.MULTILINE)
    amounts = (
        (default / 2**20, "MiB"),
        (default / 86_400, "days"),
        *((default / 3600, hours) for hours in ("h", "hour", "hours")),
    )
    words = {f"{default:g}", f"{default:g} seconds", *(f"{n:g} {unit}" for n, unit in amounts)}
    told = " ".join(row[1].split()) if row else ""
    return any(re.search(rf"(?<![\d.]){one} by default", told) for one in words)


def test_a_public_function_says_all_that_its_caller_needs() -> None:
    """Every public function with two or more parameters documents each, its result, its errors,
    and whether it may be repeated."""
    functions = [one for one in public_functions() if len(one.parameters) >= PARAMETERS_MIN]
    assert len(functions) >= 18
    assert {one.name: one.missing() for one in functions if one.missing()} == {}


def test_a_default_that_is_a_number_is_the_one_that_is_told() -> None:
    """``3 by default``, ``64 MiB by default``, ``24 hours by default``: of each function, and of
    both kinds of options."""
    functions = [one for one in public_functions() if len(one.parameters) >= PARAMETERS_MIN]
    told = [(one.name, one.text, one.defaults) for one in functions]
    for kind in (Options, S3Options):
        told.append(
            (kind.__name__, inspect.getdoc(kind) or "", numbers_of(inspect.signature(kind)))
        )
    numbers = [(name, text, *one) for name, text, defaults in told for one in defaults]
    assert len(numbers) >= 20
    assert [(name, n, v) for name, text, n, v in numbers if not says(text, n, v)] == []


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
