"""Some things have one home each: the table says what is allowed where, and why."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, ROOT, package_files, references

BANS: dict[str, tuple[str, ...]] = {
    # The SDK and retries: one adapter, one retry layer. `run` tries a user's items again.
    "boto3": ("stores/s3/",),
    "botocore": ("stores/s3/",),
    "s3transfer": ("stores/s3/",),
    "tenacity": ("engines/",),
    "awscrt": ("stores/s3/", "stores/checksum.py"),
    "pyspark": ("spark/",),
    "ray": ("engines/ray.py",),
    "dask": ("engines/dask.py",),
    "pyarrow": ("spark/", "engines/ray.py"),
    "pandas": ("spark/",),
    "httptools": ("stores/s3/http.py",),
    "msgspec.json": ("hadoop/documents.py", "cli/inspecting.py"),  # readers are made at import
    "msgspec.convert": ("hadoop/documents.py",),
    "fsspec": ("filesystem/", "stores/trees/dialects.py"),
    # Threads: bounded, and replaceable by a scheduler. Spark's actions wait in one of Spark's own.
    "threading.Thread": ("runtime/threads.py", "spark/driver.py"),
    "threading.Timer": (),
    "concurrent.futures.ThreadPoolExecutor": (),  # the interpreter waits for its threads
    "concurrent.futures.ProcessPoolExecutor": (),
    "multiprocessing": (),
    "asyncio": (),
    # Time and chance: a simulator hands in its own. Real threads and sockets wait by real time.
    "time": (
        "__init__.py",
        "runtime/components.py",
        "runtime/threads.py",
        "stores/s3/http.py",
        "stores/s3/many.py",
        "spark/driver.py",
    ),
    "datetime.datetime.now": (),
    "uuid": ("runtime/components.py",),
    "random": ("stores/s3/retry.py",),
    "secrets": (),
    # A library logs and raises; it neither prints nor decides for the process. A command does.
    "print": (),
    "sys.exit": ("cli/main.py",),
    "signal.signal": (),
    "signal.setitimer": (),
    "signal.alarm": (),
    "atexit": ("upload/", "runtime/threads.py", "api.py"),
    # Readers of foreign bytes that can run code.
    "eval": (),
    "exec": (),
    "marshal": (),
    # Its view has an export: before Python 3.12.7 the collector crashes where it meets one.
    "pickle.PickleBuffer": (),
}
"""What is banned (a dotted name, and all below it): files and folders that may use it."""


def offences(path: str, source: str) -> list[str]:
    """Uses of banned things in a module; ``path`` is relative to the package."""
    found = set()
    for line, name in references(ast.parse(source)):
        for banned, homes in BANS.items():
            if (name == banned or name.startswith(f"{banned}.")) and not path.startswith(homes):
                found.add(f"{PACKAGE}/{path}:{line}: {name} belongs in {homes or 'no module'}")
    return sorted(found)


def test_each_banned_thing_stays_in_its_home() -> None:
    """SDK, threads, clocks, chance and printing are used in their own files only."""
    found = [
        offence
        for file in package_files()
        for offence in offences(
            str(file.relative_to(ROOT / PACKAGE)), file.read_text(encoding="utf-8")
        )
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("commit/sweep.py", "import time"),
        ("commit/sweep.py", "from time import sleep as wait"),
        ("upload/stream.py", "import threading as t\nt.Thread(target=f)"),
        ("job.py", "from datetime import datetime\ndatetime.now()"),
        ("stores/checksum.py", "def show():\n    print(1)"),
    ],
)
def test_an_offence_is_found(path: str, source: str) -> None:
    """A banned thing is found under every spelling of its import."""
    assert offences(path, source)


def test_every_home_exists() -> None:
    """The table allows nothing to files that are not there."""
    homes = {home for allowed in BANS.values() for home in allowed}
    assert [home for home in sorted(homes) if not Path(ROOT, PACKAGE, home).exists()] == []
