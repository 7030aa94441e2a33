"""Importing the library with one module changed; the file stays as it is, and so do the caches."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from tests.mutants.source import PACKAGE, ROOT, Mutant


class _Changed(Loader):
    """Runs a module's changed code in place of the file's."""

    def __init__(self, code: CodeType) -> None:
        self._code = code

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


class _Finder(MetaPathFinder):
    """Finds one module, and no other."""

    def __init__(self, mutant: Mutant) -> None:
        self._module = mutant.module
        self._file = ROOT / PACKAGE / mutant.path
        self._code = compile(mutant.tree(), str(self._file), "exec", dont_inherit=True)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The changed module's spec."""
        if fullname != self._module:
            return None
        package = [str(self._file.parent)] if self._file.name == "__init__.py" else None
        return spec_from_file_location(
            fullname, self._file, loader=_Changed(self._code), submodule_search_locations=package
        )


def install(mutant: Mutant) -> None:
    """From now on, importing the mutant's module gives the changed one, in this process."""
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] == PACKAGE)
    if loaded:
        raise AssertionError(f"{loaded[0]} is imported already: the change would not be seen")
    sys.meta_path.insert(0, _Finder(mutant))


def is_whole(tree: ast.Module) -> bool:
    """Whether a changed module is a program at all."""
    try:
        compile(tree, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
