"""What is loaded at the start, and what is not: nobody waits for what is not used.

No test takes the time: each says which modules are there.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import magic_committer
from magic_committer.cli.app import LATER, WORDS, Later, load_all, root

HEAVY = {
    "awscrt", "boto3", "botocore", "httptools", "jinja2", "msgspec", "orjson", "rich",
    "s3transfer", "tenacity", "urllib3",
}  # fmt: skip
"""Each costs 10 to 300 ms of CPU."""
OF_HELP = {"", "cli", "cli.app", "cli.exits", "cli.main"}
"""The modules of ours that ``--help`` needs."""
TELL = "import sys; print('LOADED', *sys.modules)"


def loaded(code: str) -> set[str]:
    """The modules that a new process has loaded after some code."""
    told = subprocess.run(
        [sys.executable, "-c", f"{code}\n{TELL}"],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    return set(told.rpartition("LOADED")[2].split())


def called(*words: str) -> str:
    return f"from magic_committer.cli.main import run\nassert run({list(words)!r}) == 0"


def ours(modules: set[str]) -> set[str]:
    """Those of the library, without its name before them."""
    start = "magic_committer"
    return {m.removeprefix(start).lstrip(".") for m in modules if m.partition(".")[0] == start}


def test_an_import_loads_nothing_else() -> None:
    """``import magic_committer`` loads no other module, ours or not."""
    modules = loaded("import magic_committer")
    assert ours(modules) == {""}
    assert not modules & {*HEAVY, "click", "dataclasses", "logging"}


def test_a_writer_loads_no_maintenance() -> None:
    """Who asks for `write` gets neither the maintenance nor the command line nor the SDK."""
    modules = loaded("from magic_committer import write")
    assert "job" in ours(modules)
    others = {"cli", "doctor", "maintenance", "manifest", "spark", "trees"}
    assert not {m for m in ours(modules) if others & set(m.split("."))}
    assert not modules & (HEAVY - {"msgspec", "orjson"})


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_loads_no_command(word: str) -> None:
    """``--help`` and ``--version`` load the root, and neither a command nor what commands need."""
    modules = loaded(called(word))
    assert ours(modules) == OF_HELP
    assert not modules & HEAVY


def test_a_command_loads_no_other_command() -> None:
    """A command's help loads its module; the SDK, bars and pages are not loaded for it."""
    modules = loaded(called("job", "--help"))
    assert "cli.jobs" in ours(modules)
    assert not ours(modules) & {"cli.cleanup", "cli.doctor", "cli.report", "cli.uploads"}
    assert not modules & {"boto3", "botocore", "jinja2", "rich.console", "rich.progress"}


def test_every_command_is_in_its_module() -> None:
    """Once loaded, each command stands where its stand-in was, with the same line beside it."""
    load_all()
    assert set(root.commands) == set(WORDS)
    for one in LATER:
        command = root.commands[str(one.name)]
        assert not isinstance(command, Later)
        assert command.get_short_help_str(1000) == one.get_short_help_str(1000)


def test_type_checkers_see_every_public_name() -> None:
    """Each public name is imported for type checkers from the module that defines it."""
    tree = ast.parse(Path(str(magic_committer.__file__)).read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("magic_committer.")
        for alias in node.names
    }
    assert {*seen, "__version__"} == set(vars(magic_committer)["__all__"])
    home = magic_committer._HOME
    assert {name: f"magic_committer.{home[name]}" for name in home} == seen


def test_every_public_name_is_there() -> None:
    """By a star and in `dir`; another name is an AttributeError that names it."""
    code = (
        "from magic_committer import *\n"
        "import magic_committer as mc\n"
        "assert set(mc.__all__) <= set(globals())\n"
        "assert {*mc.__all__, 'errors', 'options'} <= set(dir(mc))\n"
        "assert mc.errors.MagicError is mc.MagicError is MagicError"
    )
    assert "magic_committer.api" in loaded(code)
    with pytest.raises(AttributeError, match="has no attribute 'wriet'"):
        magic_committer.wriet  # type: ignore[attr-defined]  # noqa: B018


def test_rows_of_an_rdd_need_no_pyarrow() -> None:
    """Where PySpark stands alone, `write_partitions` is there, on the driver and in a worker."""
    pytest.importorskip("pyspark")
    loaded("import sys; sys.modules['pyarrow'] = None; import magic_committer.spark")
