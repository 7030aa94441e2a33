"""Children of the mutation suite: what they find is told, and none outlives its time or parent."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.children import Answer, Work
from tests.mutants.forks import Forks, Steps
from tests.mutants.source import PACKAGE, ROOT
from tests.processes import is_gone, pids_in


@dataclass(frozen=True)
class Does(Work):
    """Work for a child: starts a process of its own, notes both, then does what is asked."""

    what: str
    notes: str
    _: KW_ONLY
    name: str = "some work"
    wall_seconds: float = 60.0
    cpu_seconds: int = 20

    def done(self, scratch: Path) -> Answer:
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(self.notes).write_text(f"{os.getpid()} {sleeper.pid}\n")
        while self.what == "sleeps":
            time.sleep(1)
        while self.what == "turns":
            pass
        if self.what == "dies":
            os._exit(3)
        return Answer(True, "it was seen", 1)


def one(work: Does) -> Steps[Answer]:
    answer = yield None, work
    return answer


def answer_of(work: Does) -> Answer:
    with Forks(1) as forks:
        (answer,) = forks.run([one(work)])
    return answer


ENDLESS = Answer(True, "it does not end (some work)")


@pytest.mark.parametrize(
    ("what", "limits", "answer"),
    [
        ("answers", {}, Answer(True, "it was seen", 1)),
        ("sleeps", {"wall_seconds": 3.0}, ENDLESS),
        ("turns", {"cpu_seconds": 2}, ENDLESS),
        ("dies", {}, Answer(broken="a child ended with 3\n")),
    ],
)
def test_a_child_tells_what_it_found_and_leaves_nothing(
    tmp_path: Path, what: str, limits: dict[str, Any], answer: Answer
) -> None:
    """The answer of a child arrives, and what it started has ended with it. One past its time, or
    past its processor's, is killed, and the mutant with it; one that dies is a fault of the suite,
    and no kill."""
    notes = tmp_path / "notes"
    assert answer_of(Does(what, str(notes), **limits)) == answer
    assert all(is_gone(pid) for pid in pids_in(notes))


def test_no_child_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    """When the suite is killed with -9 its children end, what they have started too, and no file of
    theirs stays."""
    notes = tmp_path / "notes"
    program = (
        "from tests.mutants.test_forks import Does, answer_of\n"
        f"answer_of(Does('sleeps', {str(notes)!r}))"
    )
    files = tmp_path / "files"
    files.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "TMPDIR": str(files)}
    )
    found = pids_in(notes)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert len(found) == 2
    assert all(is_gone(pid) for pid in found)
    assert list(files.iterdir()) == []


def test_the_suite_kills_a_mutant_and_touches_no_file() -> None:
    """A whole run on one mutant names the test that killed it, and no source file has changed."""
    before = _state()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--only", "hand:any marker may be replaced"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 mutants (1 by hand): 1 killed, 0 survived" in ran.stdout
    assert _state() == before


def _state() -> str:
    seen = hashlib.blake2b()
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        seen.update(file.read_bytes())
    return seen.hexdigest()
