"""The examples in examples/cron: our parser accepts them."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import click
import pytest

from magic_committer.cli.cleanup import cleanup, metrics

CRON = Path(__file__).resolve().parents[2] / "examples" / "cron"


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


def test_the_units_run_a_command_that_exists() -> None:
    """The service's ExecStart is accepted by our parser, and the timer has a schedule."""
    service = unit("magic-committer-cleanup.service")["Service"]
    params = accepted(service["ExecStart"])
    assert str(params["prometheus"]).startswith(service["ReadWritePaths"])
    assert service["Type"] == "oneshot"
    timer = unit("magic-committer-cleanup.timer")
    assert timer["Timer"]["OnCalendar"]
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_the_crontab_runs_commands_that_exist() -> None:
    """Each line has five fields of time, a lock of its own by flock and a command that our parser
    accepts; no %, which cron takes for a line end."""
    text = (CRON / "crontab").read_text()
    lines = [line for line in text.splitlines() if re.match(r"[\d*]", line)]
    locks = set()
    for line in lines:
        assert "%" not in line
        *times, flock, once, lock, command_line = line.split(maxsplit=8)
        assert [re.fullmatch(r"[\d*/,-]+", field) is not None for field in times] == [True] * 5
        assert (flock, once) == ("flock", "-n")
        locks.add(lock)
        assert accepted(command_line.partition(" >> ")[0])["how"] == "jsonl"
    assert len(locks) == len(lines) == 2


def test_the_alerts_ask_for_metrics_that_are_written() -> None:
    """The example rules are YAML, and each metric in an expression is one of ours."""
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((CRON / "alerts.yml").read_text())["groups"]
    written = {metric.name for metric in metrics(0.0, [])}
    asked = {name for r in group["rules"] for name in re.findall(r"magic_\w+", r["expr"])}
    assert len(group["rules"]) == len({rule["alert"] for rule in group["rules"]}) == 3
    assert asked <= written
    assert len(asked) == 3
