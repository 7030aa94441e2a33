"""The mutants themselves: each still changes what it means, and nobody who survives goes unseen."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import selection
from tests.mutants.__main__ import TRIED_MIN, told
from tests.mutants.explained import EXPLAINED
from tests.mutants.handwork import HAND_MADE, Hand
from tests.mutants.judge import Verdict
from tests.mutants.loading import is_whole
from tests.mutants.operators import drawn_from
from tests.mutants.source import FOLDERS, GoneError, Mutant, files, text

ROOT = Path(__file__).resolve().parents[2]
COLLECT_SECONDS = 120

WORDS = Hand("some", "_quantities.py", "age_words", (("seconds >= 2 * size", "True"),), "nothing")


def verdict(mutant: Mutant, by: str, broken: str = "") -> Verdict:
    """A verdict on a mutant."""
    return Verdict(mutant, by, {}, 1, 0.1, broken)


@pytest.mark.parametrize("hand", HAND_MADE, ids=lambda hand: hand.name)
def test_a_hand_made_mutant_still_has_its_place(hand: Hand) -> None:
    """The old text of each hand-made mutant is in the code, and with the new one it is a program
    that differs."""
    mutant = hand.mutant()
    assert is_whole(mutant.tree())
    assert "\n+" in mutant.diff() or "\n-" in mutant.diff()


def test_each_named_killer_is_a_test() -> None:
    """A killer whose test has another name by now, or other parameters, would be passed over, and
    its mutant be tried with all tests, for minutes."""
    known = json.loads((Path(__file__).parent / "killers.json").read_text(encoding="utf-8"))
    named = {entry["test"]: mutant for mutant, entry in known.items() if "test" in entry}
    folders = sorted({test.partition("::")[0] for test in named})
    collecting = ("-m", "pytest", "--collect-only", "-q", "-o", "faulthandler_timeout=0")
    collected = subprocess.run(
        [sys.executable, *collecting, *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COLLECT_SECONDS,
    )
    assert collected.returncode == 0, collected.stdout[-2000:] + collected.stderr[-2000:]
    assert {test: named[test] for test in set(named) - set(collected.stdout.splitlines())} == {}


def test_a_mutant_whose_text_is_gone_is_told() -> None:
    """Of a hand-made mutant whose old text the code does not hold, the name and the text are
    told."""
    gone = Hand("some", WORDS.path, WORDS.place, (("seconds >= 3 * size", "True"),), "nothing")
    with pytest.raises(GoneError, match=r"hand:some: .* age_words holds 0 times: seconds"):
        gone.mutant()


def test_a_mutant_whose_text_is_there_twice_is_told() -> None:
    """A text that is there more often than the mutant says is not changed by chance."""
    twice = Hand("some", WORDS.path, WORDS.place, (("seconds", "0"),), "nothing")
    with pytest.raises(GoneError, match="holds 4 times"):
        twice.mutant()


def test_no_two_mutants_have_one_name() -> None:
    """Ids are unique, of the hand-made and of the operators' mutants together."""
    names = [f"hand:{one.name}" for one in HAND_MADE]
    names += [mutant.id for path in files() for mutant in drawn_from(path)]
    assert len(names) == len(set(names))


def test_a_name_stays_when_the_code_around_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of an operator's mutant does not depend on what stands before it in its module."""
    path = "commit/closed.py"
    before = {mutant.id for mutant in drawn_from(path)}
    source = ast.unparse(ast.parse(text(path)))
    moved = source.replace("def age_of", "def of_another(a: int) -> bool:\n    return a > 1\n\n"
                           "def age_of")  # fmt: skip
    monkeypatch.setattr("tests.mutants.operators.parsed", lambda _: ast.parse(moved))
    assert before < {mutant.id for mutant in drawn_from(path)}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_draw_takes_some_of_every_folder(folder: str) -> None:
    """Mutants are drawn of each folder, and every one is a program that differs."""
    drawn = [m for m in selection.whole() if not m.by_hand and m.path.startswith(f"{folder}/")]
    assert len(drawn) >= 20
    for mutant in drawn[:20]:
        assert is_whole(mutant.tree())


def test_there_are_enough() -> None:
    """The whole has at least 120 mutants, and the sample at least 40."""
    mutants = selection.whole()
    assert len(mutants) >= 120
    assert len(selection.sample(mutants, set(EXPLAINED), set())) >= TRIED_MIN


def test_the_sample_prefers_what_has_a_known_killer() -> None:
    """Of the drawn mutants CI tries those first whose killers are known."""
    mutants = selection.whole()
    known = {mutant.id for mutant in mutants if not mutant.by_hand and "maintenance" in mutant.path}
    drawn = [m.id for m in selection.sample(mutants, set(), known) if not m.by_hand]
    assert len(drawn) == selection.SAMPLE
    assert set(drawn) <= known


def test_a_run_that_is_out_of_time_says_how_many_were_not_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Too little time for all is fine, and told, where enough were tried."""
    mutant = WORDS.mutant()
    verdicts = [verdict(mutant, "tests/x.py::y")] * TRIED_MIN
    assert told([mutant] * (TRIED_MIN + 2), verdicts, gone=()) == 0
    assert "not tried, for want of time: 2" in capsys.readouterr().out


def test_what_is_explained_exists_and_says_why() -> None:
    """Every explanation is of a mutant that the whole tries, and has a reason."""
    names = {mutant.id for mutant in selection.whole()}
    assert sorted(set(EXPLAINED) - names) == []
    assert [name for name, why in EXPLAINED.items() if len(why) < 20] == []


def test_a_survivor_fails_with_its_change(capsys: pytest.CaptureFixture[str]) -> None:
    """A survivor that nobody explains is wrong, and its change is printed."""
    mutant = WORDS.mutant()
    assert told([mutant], [verdict(mutant, "")], gone=()) == 1
    printed = capsys.readouterr().out
    assert "survived, and not explained: hand:some" in printed
    assert "-        if seconds >= 2 * size:\n+        if True:" in printed


def test_an_explained_survivor_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A survivor that is explained is not wrong."""
    monkeypatch.setitem(EXPLAINED, "hand:some", "because")
    mutant = WORDS.mutant()
    assert told([mutant], [verdict(mutant, "")], gone=()) == 0


def test_an_explanation_of_what_is_killed_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An explanation must go once its mutant is killed."""
    monkeypatch.setitem(EXPLAINED, "hand:some", "because")
    mutant = WORDS.mutant()
    assert told([mutant], [verdict(mutant, "tests/x.py::y")], gone=()) == 1
    assert "explained, and killed by tests/x.py::y: hand:some" in capsys.readouterr().out


def test_an_explanation_of_what_is_gone_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """An explanation of a mutant that is not tried any more is wrong."""
    assert told([], [], gone=["hand:other"]) == 1
    assert "explained, and gone or not drawn: hand:other" in capsys.readouterr().out


def test_no_verdict_is_not_a_kill(capsys: pytest.CaptureFixture[str]) -> None:
    """A mutant for which the suite itself failed is wrong, and told as such."""
    mutant = WORDS.mutant()
    assert told([mutant], [verdict(mutant, "", "pytest ended with 3")], gone=()) == 1
    assert "no verdict: hand:some: pytest ended with 3" in capsys.readouterr().out
