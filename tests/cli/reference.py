"""Writes docs/cli-reference.md, the help of every command and the fields of what it prints:
``python -m tests.cli.reference``."""

from __future__ import annotations

import io
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path

import click
import orjson

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.cli.app import COMMON, Explained, load_all, root
from magic_committer.cli.main import run
from magic_committer.errors import Unanswered
from magic_committer.runtime.wiring import register_store, unregister_store
from tests.cli.test_lifecycle import Bucket
from tests.promises.hands import committed_task, raising

FILE = Path(__file__).resolve().parents[2] / "docs" / "cli-reference.md"
WIDTH = 100

T = "s3://bucket/t"
RUNS = (
    f"uploads list {T}", f"uploads abort {T} --older-than 0 --dry-run", f"uploads expect {T} 1",
    f"job list {T}", f"job commit {T} a --dry-run", f"job commit {T} a --yes",
    f"job recover {T} b --dead-after 0 --yes", f"job abort {T} c --force --dead-after 0 --dry-run",
    f"job abort {T} d --force --dead-after 0 --yes",
    f"promote {T} {T}2 --dry-run", f"promote {T} {T}2 --yes", f"cleanup {T}", f"doctor {T}",
    f"doctor {T} --policy writer", f"lifecycle ensure {T} --days 7 --yes", f"lifecycle show {T}",
    f"job commit {T} e --yes",
)  # fmt: skip
"""They print a document of each type but those of files; the last one while no Complete works."""
CLASSES = (mc.FoundJob, mc.JobReport, mc.Recovery, mc.GivenUp)
"""What some documents are: their fields are in the reference of Python."""
COMMON_MIN, LACKING_MAX = 6, 2
"""If another type has so many of the fields, and at most so many more, only others are named."""

load_all()


def commands(
    command: click.Command = root, above: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command that does something, with the words that name it."""
    name = "magic-committer" if above is None else command.name
    context = click.Context(
        command, info_name=name, parent=above, terminal_width=WIDTH, max_content_width=WIDTH,
        help_option_names=root.context_settings["help_option_names"],
    )  # fmt: skip
    if not isinstance(command, click.Group):
        yield context.command_path, command, context
        return
    for child in sorted(command.commands):
        yield from commands(command.commands[child], context)


Record = tuple[str, str]


def _options(command: click.Command, context: click.Context) -> list[Record]:
    """What the help says of each option that is not of every command."""
    mine = [p for p in command.params if isinstance(p, click.Option) and p.name not in COMMON]
    return [told for one in mine if (told := one.get_help_record(context))]


def _help(command: click.Command, context: click.Context, several: set[Record]) -> str:
    """A command's own help; options that stand above are named only. Without its examples."""
    assert isinstance(command, Explained)
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    told = _options(command, context)
    if own := [one for one in told if one not in several]:
        with formatter.section("Options"):
            formatter.write_dl(own)
    names = (name.split(", ")[-1].split()[0] for name, words in told if (name, words) in several)
    if above := ", ".join(names):
        formatter.write_paragraph()
        formatter.write_text(f"And, as above: {above}")
    return formatter.getvalue().strip("\n")


def documents() -> Iterator[tuple[str, list[str]]]:
    """The type and the fields of each line that the commands print for programs."""
    bucket = Bucket()
    register_store(bucket, bucket.time)
    try:
        bucket.start_upload(f"t/x.csv-mcj{'5' * 32}")
        for name in "abcde":
            job = mc.start(T, job_id=name, accept="listing")
            committed_task(job, "t", {f"{name}.csv": b"1"})
        for words in RUNS:
            if words == RUNS[-1]:
                bucket.before = raising("complete_upload", Unanswered("no answer"))
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
                run([*words.split(), "--format", "jsonl"])
            for line in map(orjson.loads, out.getvalue().splitlines()):
                kind = line.pop("type")
                given_up = " --force" * (kind == "job.dry_run" and "--force" in words)
                yield kind + given_up, [name for name in line if name != "schema"]
    finally:
        unregister_store(bucket)


def typed() -> Iterator[str]:
    """Each type with its fields; of one that is hardly more than another, only the difference."""
    held = {one.__name__: [f.name for f in fields(one) if f.name[0] != "_"] for one in CLASSES}
    seen: dict[str, list[str]] = {}
    for kind, names in documents():  # a type may have fields that only some of its documents have
        seen[kind] = [*dict.fromkeys((*seen.get(kind, ()), *names))]
    for kind, names in seen.items():
        lacking = {one: [name for name in own if name not in names] for one, own in held.items()}
        near = min(lacking, key=lambda one: (len(lacking[one]), -len(held[one])))
        more, less = [name for name in names if name not in held[near]], lacking[near]
        told = ", ".join(names)
        if len(less) <= LACKING_MAX and len(names) - len(more) >= COMMON_MIN:
            told = f"as `{near}`{' without ' * bool(less)}{' and '.join(less)}"
            told += f"{'; ' * bool(more)}{', '.join(more)}"
        held[kind] = names
        line = f"* `{kind}`: {told}"
        yield textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def text() -> str:
    listed = list(commands())
    parts = [
        "# Commands",
        "What `magic-committer COMMAND --help` says, but for its examples; an option of\n"
        "several commands stands above them. Written by `python -m tests.cli.reference`;\n"
        "[cli.md](cli.md) shows the tasks.",
    ]
    _, some, context = next(one for one in listed if "how" in {p.name for p in one[1].params})
    assert isinstance(some, Explained)
    formatter = context.make_formatter()
    some.format_shared(context, formatter)
    counted = Counter(record for _, one, where in listed for record in _options(one, where))
    often = [record for record, times in counted.items() if times >= 2]
    meanings = Counter(name for name, _ in often)
    several = {record for record in often if meanings[record[0]] == 1}
    with formatter.section("Options of several commands"):
        formatter.write_dl(sorted(several))
    parts += ["## Options", f"```\n{formatter.getvalue().strip()}\n```"]
    rows = "\n".join(f"| {code} | {meaning} |" for code, meaning in exits.MEANINGS.items())
    parts += ["## Exit codes", f"| code | meaning |\n|---|---|\n{rows}"]
    parts += [
        "## Fields for programs",
        "Beside `schema` and `type`. Classes are in the [reference](reference/recovery.md), and\n"
        "`FoundUpload` explains `upload`. `by_class` and `old` are sums by class. `inspect`\n"
        "prints a file's own fields.",
        "\n".join(typed()),
    ]
    for path, command, context in listed:
        parts += [f"## {path}", f"```\n{_help(command, context, several)}\n```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
