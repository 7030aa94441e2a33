"""`tools.suites`: a suite that fails or runs too long is told of, and fails the whole."""

from __future__ import annotations

import sys

import pytest

from tools import suites
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


def test_a_suite_past_its_cap_is_ended_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A suite that runs past 1.5 times its cap is ended; the line says that it was over its cap."""
    outcome = suites.run(Suite("slow", 1, commands=(ENDLESS,)))
    assert outcome.failed
    assert 1.5 <= outcome.seconds < 15
    assert "over its cap" in str(outcome)
    assert "ended after 2 s, 1.5 times its cap" in capsys.readouterr().out


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


def test_make_test_fits_into_its_time() -> None:
    """The caps of what `make test` runs stay within 15 minutes together."""
    assert sum(suite.seconds_max for suite in suites.choose(["test"])) <= 15 * 60


def test_ci_fits_into_its_time() -> None:
    """Within their caps the slower suites take an hour; and whatever the suites do, CI ends within
    78 minutes, of its 90."""
    wholes = suites.WHOLE_SECONDS_MAX
    assert sum(suite.seconds_max for suite in suites.choose(["ci"])) <= wholes["ci"]
    assert wholes["test"] + wholes["ci"] <= 78 * 60


def test_the_whole_is_ended_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suite is ended when the time for all is over, long before its own; those after it have no
    time, and fail."""
    endless = Suite("one", 600, commands=(ENDLESS,), slow=True)
    monkeypatch.setattr(suites, "SUITES", (endless, Suite("two", 9, commands=(OK,), slow=True)))
    monkeypatch.setattr(suites, "WHOLE_SECONDS_MAX", {"ci": 1.0})
    monkeypatch.setattr(sys, "argv", ["suites", "ci"])
    assert suites.main() == 1
    told = capsys.readouterr().out
    assert "one: ended after 1 s, the end of the time for all" in told
    assert "two: not run: no time is left" in told
    assert "two         FAILED" in told
