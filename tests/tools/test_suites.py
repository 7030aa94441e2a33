"""`tools.suites`: a suite that fails or hangs fails the whole, and a slow one does not."""

from __future__ import annotations

import sys

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
    """A suite has passed when all of its commands have."""
    assert suites.run(Suite("some", 60, commands=commands)).failed == failed


def test_a_suite_past_its_cap_has_not_failed() -> None:
    """A suite that takes longer than its cap passes; its line says that it was over it."""
    outcome = suites.run(Suite("slow", 0, commands=(OK,)))
    assert not outcome.failed
    assert "over its cap" in str(outcome)


def test_a_suite_that_hangs_is_ended_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suite that prints nothing for ten minutes is ended, and says so."""
    assert lifeline.HANGS_SECONDS == 600
    monkeypatch.setattr(lifeline, "HANGS_SECONDS", 0.0)
    assert suites.run(Suite("stuck", 9, commands=(ENDLESS,))).failed
    assert "stuck: ended: nothing printed for 0 min" in capsys.readouterr().out


def test_the_whole_fails_with_one_suite(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All suites run and are listed; the exit code says that one failed."""
    monkeypatch.setattr(
        suites, "SUITES", (Suite("one", 9, commands=(BAD,)), Suite("two", 9, commands=(OK,)))
    )
    monkeypatch.setattr(sys, "argv", ["suites", "test"])
    assert suites.main() == 1
    told = capsys.readouterr().out
    assert "one         FAILED" in told
    assert "two         ok" in told


def test_tests_are_dealt_out_as_their_suite_says() -> None:
    """A suite that is spread runs in two processes; the tests of one server stay in one of them."""
    alone = Suite("one", 9, ("tools",)).all_commands()[-1]
    spread = Suite("one", 9, ("tools",), spread="groups").all_commands()[-1]
    assert set(spread) - set(alone) == {"--numprocesses=2", "--dist=loadgroup"}


def test_an_unknown_suite_is_refused() -> None:
    """A name that is no suite ends the program with those that are."""
    with pytest.raises(SystemExit, match="no suite unti; suites: test, ci, or some of check, unit"):
        suites.choose(["unti"])


def test_the_caps_fit_into_their_time() -> None:
    """By its caps `make test` takes a quarter of an hour, and CI's slower suites an hour."""
    assert sum(suite.cap for suite in suites.choose(["test"])) <= 15 * 60
    assert sum(suite.cap for suite in suites.choose(["ci"])) <= 60 * 60
