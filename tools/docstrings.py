"""Docstrings as the documentation site shows them: a Griffe extension, named in mkdocs.yml.

The project's docstrings are Google's, read first of all in an editor. Four habits of theirs are
not what Griffe and Markdown read, and are made so here:

* ``text::`` before an indented block becomes ``text:`` and a block of Python;
* a name in single backquotes (`Job.commit`) becomes a link, where the reference has such an entry;
* a line under ``Args:`` or ``Attributes:`` may name several: each becomes a row;
* a line under ``Raises:`` may name several errors: each becomes a row; a sentence without a name
  ("otherwise as `start`") becomes a paragraph below the rows.

The functions are pure; ``tests/tidy/test_documentation.py`` runs them without Griffe.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from griffe import Extension
else:
    try:
        from griffe import Extension
    except ImportError:  # only `make docs` has it; the functions below do without
        Extension = object

PACKAGE = "magic_committer"
REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"

ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)
NAME = re.compile(r"(?<![`\[\w])`([A-Za-z_][\w.]*)`(?!`)")
NAMES_RAISED = re.compile(
    r"(?P<names>[A-Z]\w*(?:, ?[A-Z]\w*)*)(?P<note> \([^)]*\))?(?P<stop>[:.])\s*(?P<text>.*)", re.S
)
SECTION = re.compile(r"^(\s*)Raises:\s*$")
NAMED = re.compile(r"^(\s*)(?P<kind>Args|Attributes):\s*$")
SECOND = re.compile(r"(?<=\.) (?=[a-z_]+: )")
SEVERAL = re.compile(r"(?P<names>\w+(?:, \w+)+): (?P<text>.*)", re.S)


def blocks(text: str) -> str:
    """Make ``::`` and an indented block a fenced block of Python."""
    lines: list[str] = []
    rest = text.splitlines()
    while rest:
        line = rest.pop(0)
        if not line.rstrip().endswith("::"):
            lines.append(line)
            continue
        margin = len(line) - len(line.lstrip())
        said = line.rstrip().removesuffix("::")
        lines += [f"{said}:", ""] if said.strip() else []
        block: list[str] = []
        while rest and (not rest[0].strip() or _margin(rest[0]) > margin):
            block.append(rest.pop(0))
        least = min((_margin(one) for one in block if one.strip()), default=0)
        code = "\n".join(one[least:] for one in block).strip("\n").splitlines()
        indent = " " * margin
        language = "pycon" if code and code[0].startswith(">>>") else "python"
        lines += [f"{indent}{one}".rstrip() for one in (f"```{language}", *code, "```", "")]
    return "\n".join(lines).rstrip("\n")


def parameters(text: str) -> str:
    """Give each argument or attribute a row of its own, where a line names several: ``a, b: text``,
    and, of attributes, ``a: text. b: text``."""
    lines: list[str] = []
    rest = text.splitlines()
    while rest:
        lines.append(rest.pop(0))
        if not (found := NAMED.match(lines[-1])):
            continue
        items: list[list[str]] = []
        while rest and (not rest[0].strip() or _margin(rest[0]) > len(found[1])):
            line = rest.pop(0)
            if items and (not line.strip() or _margin(line) > _margin(items[0][0])):
                items[-1].append(line)
                continue
            indent = " " * _margin(line)
            said = line.strip()
            told = SECOND.split(said) if found["kind"] == "Attributes" else [said]
            items += [[f"{indent}{one}"] for one in told]
        for first, *more in items:
            several = SEVERAL.match(first.strip())
            names = several["names"].split(", ") if several else []
            indent = " " * _margin(first)
            rows = [f"{indent}{name}: {several['text']}" for name in names] if several else [first]
            for row in rows:
                lines += [row, *more]
    return "\n".join(lines)


def raises(text: str) -> str:
    """Give each error under ``Raises:`` a row of its own."""
    lines: list[str] = []
    rest = text.splitlines()
    while rest:
        line = rest.pop(0)
        lines.append(line)
        if not (found := SECTION.match(line)):
            continue
        body: list[str] = []
        while rest and (not rest[0].strip() or _margin(rest[0]) > len(found[1])):
            body.append(rest.pop(0))
        rows, sentences = _raised(body)
        indent = found[1]
        if rows:
            lines += [f"{indent}    {row}" for row in rows]
        else:
            lines.pop()
            sentences = [f"**Raises:** {sentences[0]}", *sentences[1:]]
        for sentence in sentences:
            lines += ["", f"{indent}{sentence}"]
        lines.append("")
    return "\n".join(lines).rstrip("\n")


def _raised(body: list[str]) -> tuple[list[str], list[str]]:
    """Rows ``Name: text``, and the sentences that name no error."""
    least = min((_margin(line) for line in body if line.strip()), default=0)
    entries: list[str] = []
    for line in (line for line in body if line.strip()):
        said = line.strip()
        begins = _margin(line) == least and (
            NAMES_RAISED.match(said) or said.startswith(("What", "Otherwise", "As "))
            or (not entries and bool(said))
        )  # fmt: skip
        if begins and not (entries and entries[-1].endswith(",")):
            entries.append(said)
        else:
            entries[-1] = f"{entries[-1]} {said}"
    rows: list[str] = []
    sentences: list[str] = []
    for entry in entries:
        if not (found := NAMES_RAISED.match(entry)):
            sentences.append(entry)
            continue
        note = f"{found['note'].strip()} " if found["note"] else ""
        told = f"{note}{found['text']}".strip() or "see above."
        rows += [f"{name.strip()}: {told}" for name in found["names"].split(",")]
    return rows, sentences


def links(text: str, target: Callable[[str], str | None]) -> str:
    """Make a name in single backquotes a link to its entry; ``target`` knows the entries."""
    fenced = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)
    for i in range(0, len(fenced), 2):
        fenced[i] = NAME.sub(
            lambda found: (
                f"[`{found[1]}`][{reached}]" if (reached := target(found[1])) else found[0]
            ),
            fenced[i],
        )
    return "".join(fenced)


def entries(folder: Path = REFERENCE) -> set[str]:
    """The names that the reference has entries for: the ``:::`` lines of its pages."""
    return {
        name
        for page in sorted(folder.glob("*.md"))
        for name in ENTRY.findall(page.read_text(encoding="utf-8"))
    }


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


class Docstrings(Extension):
    """Rewrites each docstring of the package before it is parsed."""

    def __init__(self) -> None:
        super().__init__()
        self._entries = entries()

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Griffe calls this once, when all of a package is loaded."""
        if pkg.path == PACKAGE:
            self._walk(pkg, pkg)

    def _walk(self, obj: Any, package: Any) -> None:
        if obj.docstring is not None:
            text = raises(parameters(blocks(obj.docstring.value)))
            obj.docstring.value = links(text, lambda name: self._target(name, obj, package))
        for member in obj.members.values():
            if not member.is_alias:
                self._walk(member, package)

    def _target(self, name: str, obj: Any, package: Any) -> str | None:
        """The entry that a name in an object's docstring means: of its class, of its module, or of
        the package's top."""
        name = name.removeprefix(f"{PACKAGE}.")
        first, _, member = name.partition(".")
        holders = [obj, obj.parent] if obj.is_class or obj.is_function or obj.is_attribute else []
        for holder in holders:
            if holder is None or not holder.is_class or name not in holder.members:
                continue
            for entry in self._entries:
                if entry.rpartition(".")[2] == holder.name and not name.startswith("_"):
                    return f"{entry}.{name}"
        for path in (f"{PACKAGE}.{first}", f"{PACKAGE}.errors.{first}"):
            if path in self._entries and (not member or self._has(package, path, member)):
                return f"{path}.{member}" if member else path
        return None

    def _has(self, package: Any, path: str, member: str) -> bool:
        return member in package[path.removeprefix(f"{PACKAGE}.")].members
