"""A process that writes files, one after the other, as the JSON on its command line says.

    python -m tests.process.writing '{"way": "attach", ...}'

Its first write is the first thing that it asks of its store. It prints a line of JSON for each
file, and what of it only the collector could free.
"""

from __future__ import annotations

import array
import base64
import gc
import io
import json
import mmap
import pickle
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import magic_committer as mc

FILE_BYTES = 17 * 1024**2
"""Three parts."""
BODY_BYTES_MIN = 64 * 1024
Cell = tuple[str, int]
"""A kind of piece, and the bytes of one."""


@dataclass
class Program:
    """What a process does.

    Attributes:
        way: how it gets its job. dest, job: which. handle: what the job's starter handed over.
        cells: a file each.
        transport: what sends its requests.
        trouble: its store fails in mid-file: each file must fail.
        collector: when it looks. "late": only after each file, where it meets all in the order in
            which it was made; "usual"; "always": at every new object; "told": as late, and what
            it finds is told, not freed.
    """

    way: str
    dest: str
    job: str = ""
    handle: str = ""
    cells: list[Cell] = field(default_factory=list)
    transport: str = "auto"
    trouble: str = ""
    collector: str = "late"

    def json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @property
    def s3(self) -> mc.S3Options:
        """Quick to give up where the store is silent."""
        quick = ("connect_seconds_max", "read_seconds_max", "retry_seconds_max")
        bounds: dict[str, Any] = dict.fromkeys(quick, 1) if self.trouble else {}
        return mc.S3Options(transport=self.transport, **bounds)  # type: ignore[arg-type]


# What is written ----------------------------------------------------------------------------------


def _numpy(size: int) -> Any:
    import numpy

    return numpy.zeros(size // 8)


def _pyarrow(size: int) -> Any:
    import pyarrow

    return pyarrow.py_buffer(bytes(size))


PIECES: dict[str, Callable[[int], Any]] = {
    "bytes": bytes, "text": lambda size: "a" * size, "bytearray": bytearray,
    "memoryview": lambda size: memoryview(bytes(size)), "numpy": _numpy, "pyarrow": _pyarrow,
    "array": lambda size: array.array("d", bytes(size // 8 * 8)),
}  # fmt: skip


def fill(file: Any, kind: str, size: int) -> None:
    """Write all of a file."""
    if kind == "copyfileobj":
        shutil.copyfileobj(io.BytesIO(bytes(FILE_BYTES)), file, size)
    elif kind == "to_csv":
        import pandas

        frame = pandas.DataFrame({"a": range(FILE_BYTES // 14), "b": "abcdef"})
        frame.to_csv(file, chunksize=max(1, size // 14))
    else:
        for _ in range(0, FILE_BYTES, size):
            file.write(PIECES[kind](size))


def mode_of(kind: str) -> Any:
    """How the file is opened."""
    return "w" if kind in ("text", "to_csv") else "wb"


# Ways to a job ------------------------------------------------------------------------------------


def job_of(program: Program) -> mc.Job:
    """The job, by the program's way."""
    if program.way == "start":
        return mc.start(program.dest, s3=program.s3)
    if program.way == "attach":
        return mc.attach(program.dest, program.job, s3=program.s3)
    if program.way == "from_dict":
        return mc.Job.from_dict(json.loads(program.handle), s3=program.s3)
    assert program.way == "pickle", program.way
    job: mc.Job = pickle.loads(base64.b64decode(program.handle))
    return job


def write(program: Program, number: int, cell: Cell) -> str:
    """Write one file; gives the name of its error, or "". All of its own is gone afterwards."""
    kind, size = cell
    try:
        if program.way == "open_magic":
            folder = f"{program.dest}/__magic_job-{program.job}/job-{program.job}/00/tasks"
            path = f"{folder}/attempt_{number}/__base/x"
            with mc.open_magic(path, mode_of(kind), s3=program.s3) as file:
                fill(file, kind, size)
        else:
            with job_of(program).task(number) as task, task.open("x", mode_of(kind)) as file:
                fill(file, kind, size)
    except mc.MagicError as error:
        return type(error).__name__
    return ""


# The collector ------------------------------------------------------------------------------------

HELD = (memoryview, mmap.mmap, socket.socket, socket.SocketIO, io.FileIO)
"""What no garbage may hold; and bodies of parts. A file of the library has none of them once it has
ended."""


def left_behind() -> list[str]:
    """What the garbage held that was kept to be told."""
    found = [_shown(one) for one in gc.garbage if isinstance(one, HELD)]
    found += [
        f"{type(body).__name__} of {len(body)} in {_shown(one)}"
        for one in gc.garbage
        for body in gc.get_referents(one)
        if type(body) in (bytes, bytearray, str) and len(body) >= BODY_BYTES_MIN
    ]
    if found:
        found += sorted({_shown(one) for one in gc.garbage if hasattr(one, "f_code")})
    gc.garbage.clear()
    return found


def _shown(one: Any) -> str:
    code = getattr(one, "f_code", None)
    return f"frame {code.co_filename}:{code.co_qualname}" if code else type(one).__qualname__


def main(program: Program) -> None:
    """Write all files of a program."""
    if program.collector == "always":
        gc.set_threshold(1, 1, 1)
    elif program.collector != "usual":
        gc.collect()
        gc.disable()
    if program.collector == "told":
        gc.set_debug(gc.DEBUG_SAVEALL)
    for number, cell in enumerate(program.cells):
        error = write(program, number, cell)
        gc.collect()
        print(json.dumps([*cell, error, left_behind()]), flush=True)


if __name__ == "__main__":
    main(Program(**json.loads(sys.argv[1])))
