"""The examples in examples/cron run, or are accepted by our parser."""

from __future__ import annotations

import configparser
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from magic_committer.cli.cleanup import METRICS, cleanup
from tests.servers import moto_server
from tools.moto_server import CREDENTIALS

CRON = Path(__file__).resolve().parents[2] / "examples" / "cron"


def unit(name: str) -> configparser.ConfigParser:
    """A systemd unit, with its continued lines joined."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(re.sub(r"\\\n\s*", " ", (CRON / name).read_text()))
    return parser


def test_the_units_run_a_command_that_exists() -> None:
    """The service's ExecStart is accepted by our parser, and the timer has a schedule."""
    service = unit("magic-committer-cleanup.service")["Service"]
    program, name, *arguments = shlex.split(service["ExecStart"])
    assert (Path(program).name, name) == ("magic-committer", cleanup.name)
    assert cleanup.make_context("cleanup", arguments).params["dead_after"] == 36 * 3600
    assert service["Type"] == "oneshot"
    timer = unit("magic-committer-cleanup.timer")
    assert timer["Timer"]["OnCalendar"]
    assert timer["Install"]["WantedBy"] == "timers.target"


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is a program of util-linux")
def test_the_crontab_runs(tmp_path: Path) -> None:
    """No %, which cron takes for a line end; while its lock is held a line ends with 1."""
    text = re.sub(r"/var/(lib|log)/\w[\w-]*", str(tmp_path), (CRON / "crontab").read_text())
    lines = [line for line in text.splitlines() if re.match(r"[\d*]", line)]
    assert all(re.match(r"([\d*/,-]+ ){5}flock -n ", line) and "%" not in line for line in lines)
    commands = [line.split(maxsplit=5)[5] for line in lines]
    log = tmp_path / "cleanup.jsonl"
    with moto_server("lake") as url:
        bin = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": url, "PATH": bin}

        def run(line: str) -> int:
            return subprocess.run(["/bin/sh", "-c", line], env=environment, check=False).returncode

        assert [run(line) for line in commands] == [0, 0]
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        cleaned = [row["dest"] for row in rows if row["type"] == "cleanup"]
        assert cleaned == ["s3://lake/flights/", "s3://lake/sales/"]
        (metrics,) = tmp_path.glob("*.prom")
        assert 'success{destination="s3://lake/events/clicks/"} 1' in metrics.read_text()
        before = log.read_text()
        with ExitStack() as held:
            for lock in {line.split()[2] for line in commands}:
                fcntl.flock(held.enter_context(open(lock)), fcntl.LOCK_EX)
            assert [run(line) for line in commands] == [1, 1]
        assert log.read_text() == before


def test_the_alerts_ask_for_metrics_that_are_written() -> None:
    """The example rules are YAML, and each metric in an expression is one of ours."""
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((CRON / "alerts.yml").read_text())["groups"]
    written = {f"magic_committer_cleanup_{name}" for name in METRICS}
    asked = {name for r in group["rules"] for name in re.findall(r"magic_\w+", r["expr"])}
    assert len(group["rules"]) == len({rule["alert"] for rule in group["rules"]}) == 2
    assert asked <= written
    assert len(asked) == 2
