"""What processes run for `run`: functions of a module, as users write them. An item is a directory
for marks, and a number."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import magic_committer as mc
from magic_committer.stores.s3 import retry

Item = tuple[str, int]


def write(task: mc.Task, item: Item) -> int:
    """A file with the number in it."""
    with task.open(f"{item[1]}.txt", "w", unique=True) as file:
        file.write(str(item[1]))
    return item[1]


def first_time(marks: str, number: int) -> bool:
    """Whether nobody was here before, in any process."""
    try:
        Path(marks, str(number)).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def fail_twice(task: mc.Task, item: Item) -> int:
    """Raises in its first two tries, with a file half written."""
    marks, number = item
    with task.open(f"{number}.txt", "w", unique=True) as file:
        file.write(str(number))
        if first_time(marks, number) or first_time(marks, number + 1000):
            raise OSError("flaky")
    return number


def be_killed_once(task: mc.Task, item: Item) -> int:
    """Kills its own process -9 the first time that item 3 is tried."""
    marks, number = item
    with task.open(f"{number}.txt", "w", unique=True) as file:
        file.write(str(number))
        if number == 3 and first_time(marks, number):
            os.kill(os.getpid(), signal.SIGKILL)
    return number


def be_killed(task: mc.Task, item: Item) -> None:
    """Kills its own process -9 in every try of item 3."""
    if write(task, item) == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def be_slow_once(task: mc.Task, item: Item) -> int:
    """The first try of item 0 takes five minutes. Gives the process."""
    marks, number = item
    with task.open(f"{number}.txt", "w") as file:
        file.write(str(os.getpid()))
        if number == 0 and first_time(marks, number):
            until = time.monotonic() + 300
            while time.monotonic() < until and not Path(marks, "go").exists():
                time.sleep(0.05)
            Path(marks, "went").touch()
    return os.getpid()


class Peculiar(Exception):
    """An error that pickles, and cannot be unpickled: a process pool breaks of it."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raise_peculiar(task: mc.Task, number: int) -> None:
    raise Peculiar(1, 2)


def write_and_wait(task: mc.Task, item: Item) -> None:
    """Holds a file open, and tells by a mark that it does, until it is ended."""
    marks, number = item
    with task.open(f"{number}.txt", unique=True) as file:
        file.write(b"x" * 6 * 1024**2)
        file.flush()
        Path(marks, f"at-{number}").touch()
        time.sleep(600)


def drive(dest: str, marks: str, method: str) -> None:
    """A driver that its test interrupts or kills."""
    retry.HURRIED_SECONDS = 60.0  # a busy machine's store is slower than users are patient
    items = [(marks, number) for number in range(20)]
    blocks = mc.Options(block_bytes=5 * 1024**2)
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as executor:
        mc.run(dest, write_and_wait, items, executor=executor, options=blocks)
