"""`tools.suites`: a suite that fails or hangs fails the whole, and a slow one does not."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import lifeline, suites
from tools.suites import Suite

OK = (sys.executable, "-c", "print('fine')")
BAD = (sys.executable, "-c", "exit(1)")
ENDLESS = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.mark.parametrize(
    ("commands", "failed"), [((OK,), False), ((BAD,), True), ((BAD, OK), True), ((OK, BAD), True)]
)
def test_one_command_that_fails_fails_its_suite(
    commands: tuple[tuple[str, ...], ...], failed: bool
) -> None:
    """A suite has passed when all of its commands have; one that takes longer than its cap passes,
    and its line says so."""
    outcome = suites.run(Suite("slow", 0, commands=commands))
    assert outcome.failed == failed
    assert failed or "over its cap" in str(outcome)


def test_a_suite_that_hangs_is_ended_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suite that prints nothing for ten minutes is ended, and says so."""
    assert lifeline.HANGS_SECONDS == 600
    monkeypatch.setattr(lifeline, "HANGS_SECONDS", 0.0)
    assert suites.run(Suite("stuck", 9, commands=(ENDLESS,))).failed
    assert "stuck: ended: nothing printed for 0 min" in capsys.readouterr().out


@pytest.fixture
def of_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Suites ``one``, ``two`` and ``three``, each of which runs a shell script with its name."""

    def given(script: str) -> None:
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\nname="$3"\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        several = tuple(Suite(name, cap) for cap, name in enumerate(("three", "two", "one")))
        monkeypatch.setattr(suites, "SUITES", several)
        monkeypatch.setattr(sys, "argv", ["suites", "test"])

    return given


def test_the_whole_fails_with_one_suite(
    of_scripts: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """All suites run and are listed, also one that was killed; the exit code says that one
    failed."""
    of_scripts('[ $name = one ] && kill -9 $$; echo "--- $name ok"')
    assert suites.main() == 1
    told = capsys.readouterr().out
    _, table = told.split("--- all")
    assert "one         FAILED" in table
    assert "two ok" in table
    assert "three ok" in table


def test_two_suites_run_at_once(
    of_scripts: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two longest wait for each other; what one prints stands together."""
    of_scripts(
        f'[ $name = three ] && exit; echo "from $name"; touch {tmp_path}/$name\n'
        f"while [ ! -e {tmp_path}/one ] || [ ! -e {tmp_path}/two ]; do sleep 0.1; done\n"
        'echo "--- $name ok"'
    )
    assert suites.main() == 0
    told = capsys.readouterr().out
    assert "from one\n--- one ok\n" in told
    assert "from two\n--- two ok\n" in told


def test_ctrl_c_ends_both(of_scripts: Callable[[str], None], tmp_path: Path) -> None:
    """Each suite hears of it, and is waited for."""
    of_scripts(
        f"cd {tmp_path}; trap 'touch $name; exit 1' TERM; touch $name-began\n"
        "while [ ! -e one-began ] || [ ! -e two-began ]; do sleep 0.1; done\n"
        "sleep 0.5; [ $name = one ] && kill -INT $PPID; while sleep 0.1; do :; done"
    )
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            suites.main()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()


def test_the_caps_fit_into_their_time() -> None:
    """By its caps `make test` takes ten minutes, and CI with it three quarters of an hour. A name
    that is no suite ends the program with those that are."""
    quick, slow = (sum(one.cap for one in suites.choose([name])) for name in ("test", "ci"))
    assert quick <= 10 * 60
    assert quick + slow <= 50 * 60
    with pytest.raises(SystemExit, match="no suite unti; suites: test, ci, nightly, or some of"):
        suites.choose(["unti"])


def test_a_night_runs_everything_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """All suites, told by the environment that nothing is a sample, and the longer commands. A
    suite that is spread runs in two processes, dealt out as it says."""
    monkeypatch.setenv(suites.NIGHTLY, "")
    night = {suite.name: suite for suite in suites.choose(["nightly"])}
    assert list(night) == [suite.name for suite in suites.SUITES]
    assert os.environ[suites.NIGHTLY] == "1"
    assert {suite.share for suite in night.values()} == {1.0}
    assert night["mutants"].commands == (suites.MUTANTS,)
    assert night["apart"].commands == (suites.APART,)
    assert {"--numprocesses=2", "--dist=loadgroup"} < set(night["real"].all_commands()[-1])
