"""`cleanup --config` and the examples in examples/cron: what is read, and what is refused."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import click
import pytest

from magic_committer.cli import exits
from magic_committer.cli.cleanup import cleanup, metrics
from magic_committer.cli.cleanup_config import LIMITS, read_config
from magic_committer.maintenance.cleanup import Limits
from magic_committer.testing import MemoryStore
from tests.cli.conftest import Command

CRON = Path(__file__).resolve().parents[2] / "examples" / "cron"
HOUR = 3600.0
DAY = 24 * HOUR


def test_limits_come_from_the_nearest(tmp_path: Path) -> None:
    """The command line wins over the destination, that over the defaults, those over ours."""
    file = tmp_path / "c.toml"
    file.write_text(
        """
        [defaults]
        dead_after = "36h"
        leftover_after = "2h"
        forget_given_after = "1d"
        [[destinations]]
        path = "s3://bucket/a"
        [[destinations]]
        path = "s3a://bucket/b/"
        dead_after = "3d"
        forget_given_after = "60d"
        finish = false
        """
    )
    a, b = read_config(str(file), {"leftover_after": 60.0})
    assert (a.dest.url, b.dest.url) == ("s3://bucket/a/", "s3://bucket/b/")
    assert a.limits == Limits(36 * HOUR, 60, LIMITS.forget_after, DAY, True)
    assert b.limits == Limits(3 * DAY, 60, LIMITS.forget_after, 60 * DAY, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[defaults", "is no TOML"),
        ("", "names no destinations"),
        ("destinations = 1", "names no destinations"),
        ("destinations = [1]", "destination 1 is no table"),
        ("default = 1\ndestinations = [1]", "default is not known; known: defaults, destinations"),
        ('defaults = 1\n[[destinations]]\npath = "s3://b/t"', "defaults is a table"),
        ("[[destinations]]", "destination 1 has no path"),
        ("[[destinations]]\npath = 1", "destination 1 has no path"),
        ('[[destinations]]\npath = "b/t"', "destination 1, path: "),
        ('[[destinations]]\npath = "s3://b/t"\ndead-after = "1h"', "known: path, dead_after, "),
        ('[[destinations]]\npath = "s3://b/t"\ndead_after = 36', 'dead_after: a duration is text'),
        ('[[destinations]]\npath = "s3://b/t"\ndead_after = "36"', "'36' is no duration"),
        ('[[destinations]]\npath = "s3://b/t"\nfinish = "no"', "finish: it is true or false"),
        ('[defaults]\npath = "s3://b/t"', "[defaults]: path is not known"),
        (
            '[[destinations]]\npath = "s3://b/t"\n[[destinations]]\npath = "s3a://b/t/"',
            "destination 2: s3://b/t/ is there twice",
        ),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(
    command: Command, memory_s3: MemoryStore, tmp_path: Path, text: str, told: str
) -> None:
    """A file with anything wrong in it ends with 40 and a sentence that says where; no request."""
    file = tmp_path / "c.toml"
    file.write_text(text)
    ran = command("cleanup", "--config", file)
    assert ran.code == exits.BAD_ARGUMENT
    assert f"{file}" in ran.err
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_a_file_that_is_no_text_is_refused(command: Command, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are told as such."""
    file = tmp_path / "c.toml"
    file.write_bytes(b"\xff\xfe")
    assert command("cleanup", "--config", file).code == exits.BAD_ARGUMENT


# The examples -------------------------------------------------------------------------------------


def accepted(line: str) -> dict[str, object]:
    """A command line's options, as our own parser reads them."""
    program, name, *arguments = shlex.split(line)
    assert (Path(program).name, name) == ("magic-committer", cleanup.name)
    context = cleanup.make_context("cleanup", arguments)
    assert isinstance(context, click.Context)
    return context.params


def unit(name: str) -> configparser.ConfigParser:
    """A systemd unit, with its continued lines joined."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(re.sub(r"\\\n\s*", " ", (CRON / name).read_text()))
    return parser


def test_the_example_config_loads() -> None:
    """examples/cron/cleanup.toml names two destinations, with limits of their own."""
    first, second = read_config(str(CRON / "cleanup.toml"), {})
    assert first.limits == Limits(36 * HOUR, 2 * HOUR, 7 * DAY, 60 * DAY, True)
    assert second.limits.dead_after == 3 * DAY


def test_the_units_run_a_command_that_exists() -> None:
    """The service's ExecStart is accepted by our parser, its lock's exit code is no failure, and
    the timer has a schedule."""
    service = unit("magic-committer-cleanup.service")["Service"]
    params = accepted(service["ExecStart"])
    assert params["config"] == "/etc/magic-committer/cleanup.toml"
    assert str(params["lock"]).startswith(f"/var/lib/{service['StateDirectory']}/")
    assert str(params["prometheus"]).startswith(service["ReadWritePaths"])
    assert service["Type"] == "oneshot"
    assert int(service["SuccessExitStatus"]) == exits.BUSY
    timer = unit("magic-committer-cleanup.timer")
    assert timer["Timer"]["OnCalendar"]
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_the_crontab_runs_a_command_that_exists() -> None:
    """Its one line has five fields of time and a command that our parser accepts; no %, which cron
    takes for a line end."""
    text = (CRON / "crontab").read_text()
    (line,) = (line for line in text.splitlines() if re.match(r"[\d*]", line))
    assert "%" not in line
    *times, command_line = line.split(maxsplit=5)
    assert [re.fullmatch(r"[\d*/,-]+", field) is not None for field in times] == [True] * 5
    assert accepted(command_line.partition(" >> ")[0])["how"] == "jsonl"


def test_the_alerts_ask_for_metrics_that_are_written() -> None:
    """The example rules are YAML, and each metric in an expression is one of ours."""
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((CRON / "alerts.yml").read_text())["groups"]
    written = {metric.name for metric in metrics(0.0, [])}
    asked = {name for r in group["rules"] for name in re.findall(r"magic_\w+", r["expr"])}
    assert len(group["rules"]) == len({rule["alert"] for rule in group["rules"]}) == 3
    assert asked <= written
    assert len(asked) == 3
