"""`tools.venv`: whatever became of `.venv`, the next run makes it whole.

The steps are played here (they take half a minute in life; tests/demo does them for real): making
it gives a directory with a Python, installing leaves a file behind.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT
from tools.venv import Venv


class Killed(BaseException):
    """Stands for kill -9: nobody catches it."""


class PlayedVenv(Venv):
    """A `.venv` whose steps cost nothing. ``die_at``: the step, counted from 1, to be killed in."""

    def __init__(self, root: Path, die_at: int = 0, folder: str = ".venv") -> None:
        super().__init__(root, folder)
        self.steps: list[str] = []
        self.asked: tuple[str, ...] = ()
        self.die_at = die_at

    def _step(self, *module_and_arguments: str, python: Path) -> None:
        step = module_and_arguments[0]
        self.steps.append(step)
        if step == "venv":
            self.python.parent.mkdir(parents=True)
            self.python.symlink_to(sys.executable)
        if len(self.steps) == self.die_at:
            raise Killed
        if step == "pip":
            assert self.python.exists()
            self.asked = module_and_arguments
            for argument in module_and_arguments:
                if argument.startswith("needed-"):
                    (self.path / argument).touch()

    def installed(self) -> set[str]:
        """What was installed to the end."""
        return {file.name for file in self.path.glob("needed-*")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose profiles need a thing each."""
    groups = "\n".join(f'{name} = ["needed-{name}"]' for name in ("dev", "bench", "docs", "trees"))
    (tmp_path / "pyproject.toml").write_text(f"[dependency-groups]\n{groups}\n")
    return tmp_path


def steps(project: Path, profile: str = "test") -> list[str]:
    """What it takes to have a profile whole now. Afterwards nothing more is to be done."""
    venv = PlayedVenv(project)
    venv.ensure(profile)
    again = PlayedVenv(project)
    again.ensure(profile)
    assert again.steps == []
    return venv.steps


def test_another_profile_is_added(project: Path) -> None:
    """A second profile is installed next to the first; neither is lost. pip refuses empty brackets:
    the project is named by its path alone, or with its extras."""
    steps(project, "docs")
    venv = PlayedVenv(project)
    assert venv.installed() == {"needed-docs"}
    venv.ensure("test")
    assert (venv.steps, f"{project}[demo,crt]" in venv.asked) == (["pip"], True)
    assert steps(project, "docs") == []
    assert venv.installed() == {"needed-dev", "needed-docs", "needed-trees"}


def killed(project: Path, die_at: int, *, anew: bool = True) -> None:
    """It is made anew, or grows, and is killed in a step."""
    if anew:
        shutil.rmtree(project / ".venv")
    with pytest.raises(Killed):
        PlayedVenv(project, die_at).ensure("test" if anew else "docs")


def moved(project: Path) -> None:
    """Its Python leads to a directory that is not there any more, as in a copied checkout."""
    python = Venv(project).python
    python.unlink()
    python.symlink_to(project / "no-python-here")


def replaced(project: Path) -> None:
    """Something else of that name is there."""
    shutil.rmtree(project / ".venv")
    (project / ".venv").write_text("not a directory")


def outdated(project: Path) -> None:
    """What it was made from has changed."""
    with open(project / "pyproject.toml", "a") as file:
        file.write("# one more line\n")


def stamped(project: Path, text: str) -> None:
    (project / ".venv" / "complete.json").write_text(text)


@pytest.mark.parametrize(
    "damage",
    [
        outdated,
        moved,
        replaced,
        *(partial(killed, die_at=step) for step in (1, 2)),
        partial(killed, die_at=1, anew=False),
        *(partial(stamped, text=text) for text in ("", "{", "[]", '{"profiles": ["test"]}')),
    ],
)
def test_a_damaged_one_is_made_anew(project: Path, damage: Callable[[Path], object]) -> None:
    """Made once, it is found done; outdated, broken, moved or half made, it does not count as
    made."""
    assert steps(project) == ["venv", "pip"]
    damage(project)
    assert steps(project) == ["venv", "pip"]


def test_a_step_that_fails_says_which(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A failing step ends the program with a word, after its own; nothing counts as made."""
    venv = Venv(project)
    with venv._locked(), pytest.raises(SystemExit, match="python -m no_such_module"):
        venv._step("no_such_module", python=Path(sys.executable))
    assert "No module named" in capfd.readouterr().err


def test_an_old_python_is_told_so(tmp_path: Path) -> None:
    """Run by a Python older than 3.11, it says which is needed and how to name another."""
    old = tmp_path / "old.py"
    source = (ROOT / "tools" / "venv.py").read_text()
    old.write_text(source.replace("import sys\n", "import sys\nsys.version_info = (3, 9)\n", 1))
    told = subprocess.run([sys.executable, old], capture_output=True, text=True)
    assert told.returncode == 1
    assert "needs Python 3.11 or newer" in told.stderr
    assert "make PYTHON=" in told.stderr
