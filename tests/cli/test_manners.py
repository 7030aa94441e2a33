"""What every command keeps to: formats, exit codes, paths, questions, silence about secrets."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import click
import orjson
import pytest

from magic_committer import start
from magic_committer.cli import exits, output
from magic_committer.cli.app import FORMATS, clean
from magic_committer.cli.output import FORMULA_STARTS, SCHEMA, Output
from magic_committer.cli.values import parse_duration
from magic_committer.errors import OptionError
from magic_committer.errors.messages import age_words, bytes_words
from magic_committer.testing import MemoryStore
from tests.cli import reference
from tests.cli.conftest import Command
from tests.servers import Asked, Reply, error, scripted_server

PATH = "s3://bucket/table"
COMMANDS = {path.removeprefix("magic-committer "): one for path, one, _ in reference.commands()}


@pytest.mark.parametrize("words", ["", "job", "lifecycle", "uploads", *sorted(COMMANDS)])
def test_every_help_has_examples_that_a_parser_accepts(command: Command, words: str) -> None:
    """At most three, of 80 places; each command has a sentence, and one for each option."""
    ran = command(*words.split(), "--help")
    assert (ran.code, ran.err) == (exits.OK, "")
    assert ran.out.index("\nExamples:") < ran.out.index("\nOptions of every command:")
    lines = re.findall(r"^(  magic-committer (.*))$", ran.out, re.MULTILINE)
    assert 1 <= len(lines) <= 3
    for line, told in lines:
        assert len(line) <= 80
        assert told.startswith(words)
        (name,) = [name for name in COMMANDS if told.startswith(f"{name} ")]
        COMMANDS[name].make_context(name, shlex.split(told.removeprefix(name)))
    if words in COMMANDS:
        assert COMMANDS[words].help
        assert all(p.help for p in COMMANDS[words].params if isinstance(p, click.Option))


def test_the_reference_is_what_the_commands_say() -> None:
    """docs/cli-reference.md is up to date (``python -m tests.cli.reference`` writes it): it has the
    fields of every type that a command prints."""
    assert reference.FILE.read_text(encoding="utf-8") == reference.text()
    package = Path(output.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in package.glob("*.py"))
    kinds = set(re.findall(r"output\.(?:rows|document)\(\s*\"([\w.]+)\"", source))
    assert len(kinds) > 8
    assert kinds <= {kind for kind, _ in reference.documents()}


def test_a_shell_that_asks_is_told_the_commands() -> None:
    """The installed command answers a shell's question."""
    asked = {"COMP_WORDS": "magic-committer job li", "COMP_CWORD": "2"}
    code = "import sys; sys.argv = ['magic-committer']; from magic_committer.cli.main import main"
    told = python("-c", f"{code}; main()", _MAGIC_COMMITTER_COMPLETE="bash_complete", **asked)
    assert told.stdout.split() == ["plain,list"]


def python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python, with more variables in its environment."""
    return subprocess.run(
        [sys.executable, *words], env={**os.environ, **variables}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


def test_programs_are_told_a_versioned_schema(command: Command, memory_s3: MemoryStore) -> None:
    """JSON, lines of JSON and CSV hold the same fields; both kinds of JSON say the version."""
    start(PATH, job_id="mine")
    start(f"{PATH}2", job_id="other")  # `table` never means `table2`
    told = command("job", "list", PATH)
    assert ("\x1b" in told.out, told.err) == (False, "")  # no colour and no progress bar in a pipe
    for path in (PATH, f"{PATH}/", PATH.replace("s3:", "s3a:")):
        whole = command("job", "list", path, "--format", "json").json()
        assert (whole["schema"], whole["type"]) == (SCHEMA, "jobs")
        (row,) = whole["rows"]
        assert row["id"] == "mine"
    lines = command("job", "list", PATH, "--format", "jsonl").out.splitlines()
    first, last = map(orjson.loads, lines)
    assert first == {**row, "schema": SCHEMA, "type": "job", "age": first["age"]}
    assert last["type"] == "jobs.summary"
    (read,) = csv.DictReader(io.StringIO(command("job", "list", PATH, "--format", "csv").out))
    assert (read["id"], read.keys()) == (row["id"], row.keys())


ODD_IDS = ("\x1b[2Jx", "\u202etxt.exe", "\x9b31mx", "\u2066x\u2069", "x\ufeffy", "\U000e0001x")


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize(
    "words", ["uploads list", "uploads expect 9", "job list", "cleanup", "uploads abort"]
)
def test_no_command_obeys_a_key(
    command: Command, memory_s3: MemoryStore, words: str, how: str
) -> None:
    """Escapes and invisible marks are shown as text; JSON gives the very value."""
    for odd in ODD_IDS:
        memory_s3.start_upload(f"table/{odd}.csv")
        memory_s3.put_object(f"table/__magic_job-{odd}/_job.json", odd.encode())
    name, *more = words.split()
    told = command(name, *more[:1], PATH, *more[1:], "--format", how)
    assert told.out + told.err
    assert all(line.isprintable() for line in (told.out + told.err).split("\n"))
    if words == "job list" and how.startswith("json"):
        lines = [orjson.loads(line) for line in told.out.splitlines()] if how == "jsonl" else []
        rows = lines[:-1] if how == "jsonl" else told.json()["rows"]
        assert {row["id"] for row in rows} == set(ODD_IDS)


@pytest.mark.parametrize("first", sorted(FORMULA_STARTS), ids=ascii)
def test_a_spreadsheet_computes_nothing(first: str) -> None:
    """A text that begins as a formula begins with ' in CSV; numbers below 0 stay numbers."""
    odd, out = f"{first}HYPERLINK(1)", io.StringIO()
    output = Output("csv", out)
    row = {"id": odd, "number": -1.5, "whole": -2, "list": [odd], "plain": f"a{first.strip()}b"}
    output.rows("row", (), [row], fields=list(row))
    output.document("row", row)
    for read in list(csv.reader(io.StringIO(out.getvalue())))[1::2]:
        assert read[0] == f"'{clean(odd)}"
        assert read[1:3] == ["-1.5", "-2"]
        assert read[3][0] == "["
        assert read[4] == f"a{first.strip()}b"


def test_text_keeps_letters_and_loses_controls() -> None:
    """Letters of all scripts stay; escapes, new lines and marks that turn text round do not."""
    assert clean("Müller 表 a b") == "Müller 表 a b"
    assert clean("a\x1b[31mb\nc\u202ed") == "a\\x1b[31mb\\nc\\u202ed"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("job lst", "No such command 'lst'"),
        ("job list", "Missing argument"),
        ("cleanup", "Missing argument"),
        (f"job list {PATH} --fast", "No such option"),
        (f"job list {PATH} --format xml", "is not one of 'table'"),
        (f"uploads abort {PATH} --max-aborts -1", "x>=0"),
        (f"uploads abort {PATH} --foreign", "older_than"),
        ("job list ftp://x/y", "s3://bucket/path"),
        (f"cleanup {PATH} --dead-after soon", "36h"),
        (f"cleanup {PATH} --dead-after 36", "36h"),
        ("cleanup table", "table"),
        (f"job list {PATH} --format prometheus", "`cleanup`"),
        ("job list s3://bucket/__magic_job-1/x", "own directory"),
        (f"put no/such/directory {PATH}", "is no directory"),
        (f"put no/such {PATH} --yes --content-type é", "no content type"),
        (f"job list {PATH} --endpoint-url ftp://x", "no http:// or https:// URL"),
        ("lifecycle ensure bucket --yes", "--days"),
        ("lifecycle ensure gs://bucket --days 7 --yes", "gs://bucket"),
    ],
)
def test_a_usage_error_ends_with_2(
    command: Command, memory_s3: MemoryStore, words: str, says: str
) -> None:
    """Whatever is wrong: one code, a sentence that says what to do, no request."""
    told = command(*words.split())
    assert told.code == exits.USAGE == 2
    assert says in told.err
    assert "Traceback" not in told.err
    assert memory_s3.requests.total() == ("--foreign" in words)  # which is looked at first


def test_a_reader_that_has_enough_is_told_nothing() -> None:
    """``magic-committer … | head -1`` ends early and quietly."""
    code = (
        "from magic_committer.testing import memory_store\n"
        "from magic_committer import start\n"
        "from magic_committer.cli.main import run\n"
        "import sys\n"
        "with memory_store():\n"
        "    for number in range(500): start('s3://bucket/table', job_id=f'{number:0100}')\n"
        "    sys.exit(run(['job', 'list', 's3://bucket/table', '--format', 'jsonl']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith("{")
        running.stdout.close()
        told = running.stderr.read()
        assert running.wait(300) == exits.OK
    assert told == ""


@pytest.mark.parametrize(
    ("words", "where", "code", "says"),
    [
        ("put", ">/dev/full", exits.OK, "exit code 0), but its report could not be printed: No sp"),
        ("put", ">/dev/full 2>&1", exits.OK, ""),
        ("put", ">&-", exits.OK, ""),
        ("put", "2>&-", exits.OK, "committed"),
        ("put", "| true; exit ${PIPESTATUS[0]}", exits.OK, ""),
        ("put --json", "", exits.OK, r".\u00e9\ud83d\ude00"),
        ("put", "", exits.OK, r".\xe9\U0001f600"),
        ("cleanup", "<&- >&- 2>&-", exits.OK, ""),
        ("cleanup", ">/dev/full", exits.OK, "its report could not be printed: No space left"),
        ("job list", ">/dev/full", exits.FAILED, "the results could not be printed: No space left"),
    ],
)
def test_the_exit_code_is_of_what_was_done(
    tmp_path: Path, words: str, where: str, code: int, says: str
) -> None:
    """Whether or not it could be printed: who repeats a `put` appends the files again."""
    if "full" in where and not Path("/dev/full").exists():
        pytest.skip("no such device here")
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    for name in ("a.csv", ".é😀"):
        (source / name).touch()
    put = words.startswith("put")
    line = f"{words} {source} file://{dest} --yes" if put else f"{words} file://{dest}"
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m magic_committer {line} {where}"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    told = ran.stdout + ran.stderr
    assert (ran.returncode, bool(told)) == (code, bool(says)), told
    assert says in told
    assert {one.name for one in dest.glob("*.csv")} == ({"a.csv"} if put else set())


def refuse(asked: Asked) -> Reply:
    """What a store says that refuses everybody, and repeats what it was sent."""
    sent = f"{asked.path} {asked.query} {asked.headers.get('authorization')}"
    return error(403, "AccessDenied", sent)


@pytest.mark.parametrize("debug", [(), ("--debug",)])
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("s3://bucket/table", exits.FORBIDDEN),
        ("s3://verysecretverysecret@bucket/table", exits.USAGE),
    ],
)
def test_no_secret_is_printed(debug: tuple[str, ...], path: str, code: int) -> None:
    """Not in an error, nor with ``--debug``: keys and tokens of the environment, or in a URL."""
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "verysecretverysecret",
        "AWS_SESSION_TOKEN": "tokentokentokentoken",
    }
    with scripted_server(refuse) as server:
        words = ["job", "list", path, *debug, "--endpoint-url", server.url, "--region", "us-east-1"]
        identity = {**secrets, "AWS_ACCESS_KEY_ID": "AKIAEXAMPLEEXAMPLE00"}
        ran = python("-m", "magic_committer", *words, **identity)
    told = ran.stdout + ran.stderr
    assert ran.returncode == code, told
    assert not [secret for secret in secrets.values() if secret in told]
    assert ("Traceback" in told) == bool(debug and code == exits.FORBIDDEN)


def test_python_runs_the_command_by_the_packages_name() -> None:
    """Where the command is not on the path, ``python -m`` is the same: name, codes, output."""
    for words, code in ((("job", "list", "./nowhere"), exits.USAGE), (("--version",), exits.OK)):
        ran = python("-m", "magic_committer", *words)
        assert (ran.returncode, "magic-committer" in ran.stdout + ran.stderr) == (code, True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("36h", 129_600), ("2d", 172_800), ("1d12h", 129_600), ("90m", 5400), ("45s", 45),
     ("1.5h", 5400), ("0", 0), ("1 d 12 h", 129_600), ("10min", 600), ("1w", 604_800),
     *((wrong, None) for wrong in ("", "12", "-1h", "1h-", "h", "1y", "nan", "1e3s", "1h 2"))],
)  # fmt: skip
def test_durations_are_read_as_people_write_them(text: str, seconds: float | None) -> None:
    """Numbers with units, and sums of them; without a unit nobody knows what 12 would be."""
    with nullcontext() if seconds is not None else pytest.raises(OptionError, match="36h"):
        assert parse_duration(text) == seconds


def test_quantities_read_well() -> None:
    """Ages and sizes, and what is not known."""
    assert [age_words(x) for x in (None, 0, 59, 90, 7200, 36_000, 200_000, 2e6)] == [
        "?", "0 s", "59 s", "90 s", "2 h", "10 h", "2.3 d", "23 d",
    ]  # fmt: skip
    assert [bytes_words(x) for x in (None, 0, 1023, 1024, 3 * 1024**4)] == [
        "?", "0 B", "1023 B", "1.0 KiB", "3.0 TiB",
    ]  # fmt: skip
