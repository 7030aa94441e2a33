"""What several of these tests do to a job."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import count, repeat
from typing import Any, TypeVar

import pytest

import magic_committer as mc
from magic_committer.committers.manifest import TreeFile
from magic_committer.errors import InvalidRequest, NotSupported, StoreError, Unanswered
from magic_committer.options import Mode
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import attempt_of, upload_of

DEST = "s3://bucket/t"


def write(task: mc.Task | mc.Writing, name: str = "a.csv", body: bytes = b"1", **terms: Any) -> Any:
    """A file of a task, or of a block, is written and closed."""
    file: Any
    with task.open(name, **terms) as file:
        file.write(body)
    return file


def committed_task(job: mc.Job, task: str, files: Mapping[str, bytes]) -> TaskCommit:
    """One attempt of a task that writes these files and commits."""
    with job.task(task) as attempt:
        for name, body in files.items():
            write(attempt, name, body)
    return attempt.result


def job_of(*tasks: Mapping[str, bytes], **terms: Any) -> mc.Job:
    """A job whose tasks, named from 1 on, have committed these files."""
    job = mc.start(DEST, **terms)
    for number, files in enumerate(tasks, 1):
        committed_task(job, str(number), files)
    return job


def visible(store: MemoryStore) -> dict[str, bytes]:
    """What a reader sees: all objects but markers and control objects."""
    found = {}
    for key in store.keys():
        if not key.endswith("_SUCCESS") and "/__magic" not in key and "/_temporary/" not in key:
            with suppress(KeyError):  # it is deleted at this moment
                found[key] = store.body(key)
    return found


def control(store: MemoryStore) -> list[str]:
    return [key for key in store.keys() if "/__magic" in key]


def remains(store: MemoryStore) -> tuple[dict[str, bytes], list[str], list[str]]:
    """What readers see, the keys of the open uploads, and the names of the control objects."""
    uploads = [upload.key for upload in store.open_uploads()]
    return visible(store), uploads, [key.rpartition("/")[2] for key in control(store)]


def open_ids(s3: MemoryStore) -> set[str]:
    return {upload.upload_id for upload in s3.open_uploads()}


def believing(s3: MemoryStore) -> list[str]:
    """From now on an abort of a completed upload deletes its object (docs/stores.md): the keys."""
    taken: list[str] = []
    abort = s3.abort_upload

    def costly(key: str, upload_id: str) -> Any:
        if upload_id not in open_ids(s3) and key in s3.keys():
            taken.append(key)
            s3.delete_object(key)
        return abort(key, upload_id)

    s3.abort_upload = costly  # type: ignore[method-assign]
    return taken


def deaf(s3: MemoryStore, times: int = 99) -> None:
    """From now on so many aborts of each upload are answered with success and take no effect."""
    heard: Counter[str] = Counter()

    def abort(key: str, upload_id: str) -> None:
        heard[upload_id] += 1
        if heard[upload_id] > times:
            type(s3).abort_upload(s3, key, upload_id)

    s3.abort_upload = abort  # type: ignore[method-assign]


def record_of(job: mc.Job | str) -> str:
    """The key of a job's record."""
    return f"t/__magic_job-{job if isinstance(job, str) else job.id}/_job.json"


E = TypeVar("E", bound=BaseException)


def raises(
    error: type[E] | tuple[type[E], ...],
    call: Callable[..., object],
    *args: object,
    match: str | None = None,
    **named: object,
) -> E:
    """The error that a call raises, for its fields."""
    with pytest.raises(error, match=match) as caught:
        call(*args, **named)
    return caught.value


class StillClock:
    """Stands still but for sleeps, so that no read of the fence falls due by chance."""

    def __init__(self) -> None:
        self.time = 1_795_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


_killed: list[Any] = []


def killed(job: mc.Job, task: str, name: str, *, unique: bool = False) -> Any:
    """A file whose attempt was killed while it wrote: its upload is open, and nothing ends it."""
    file = job.task(task).open(name, unique=unique)
    file.write(b"cut")
    if isinstance(file, TreeFile):
        file.flush()
    else:
        upload_of(file)._sender.created()  # its Create was answered: nothing is in flight
    _killed.append(file)
    return file


def stored(task: mc.Task) -> None:
    """Wait until the files that a task has closed are stored: nothing is in flight."""
    attempt_of(task._attempt)._closings.settle()


def bury() -> None:
    """Abort what was killed, at last."""
    while _killed:
        _killed.pop().abort()


Fits = str | Callable[[Request], object]
"""Which requests: a function says, or words do, as ``"put *_job.json"``: verbs, and keys."""


def fitting(fits: Fits) -> Callable[[Request], object]:
    if not isinstance(fits, str):
        return fits
    verbs, _, keys = fits.partition(" ")
    return lambda request: (
        (verbs == "*" or request.verb in verbs.split("|")) and fnmatchcase(request.key, keys or "*")
    )


class At:
    """Does something at the n-th request that fits, once; a context asserts that it was done."""

    def __init__(
        self,
        store: MemoryStore,
        fits: Fits,
        deed: Callable[[], Any] | BaseException,
        *,
        after: bool = False,
        nth: int = 1,
    ) -> None:
        """``deed``: a call, or an error to raise."""
        self._fits = fitting(fits)
        self._deed = deed
        self._count, self._nth = count(1), nth
        self.done = False
        if after:
            store.after = lambda request, reply: self._look(request)
        else:
            store.before = lambda request: self._look(request)

    def __enter__(self) -> None:
        """Begin a block in which it is done."""

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        assert error or self.done

    def _look(self, request: Request) -> None:
        if not self.done and self._fits(request) and next(self._count) == self._nth:
            self.done = True
            if isinstance(self._deed, BaseException):
                raise self._deed
            self._deed()


class Nth:
    """The n-th request from now on, from 1."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, request: Request) -> bool:
        self._left -= 1
        return self._left == 0


STATUS = {mc.PermissionDenied: 403, InvalidRequest: 400, NotSupported: 501}
"""Of the errors that a class stands for."""


def raising(
    fits: Fits, error: BaseException | type[BaseException], *, times: int | None = None
) -> Callable[..., None]:
    """A hook: each request that fits, or so many, fails, before or after it takes effect."""
    does = fitting(fits)
    left = iter(range(times)) if times is not None else repeat(0)
    if isinstance(error, type) and issubclass(error, StoreError):
        error = error("refused", status=STATUS.get(error, 0))

    def hook(request: Request, *_: object) -> None:
        if does(request) and next(left, None) is not None:
            raise error

    return hook


def noted(store: MemoryStore, fits: Fits) -> list[Request]:
    """The requests that fit, from now on."""
    does = fitting(fits)
    found: list[Request] = []
    store.before = lambda request: found.append(request) if does(request) else None
    return found


def failing(
    store: MemoryStore, verb: str, key: str, failure: BaseException | type[BaseException]
) -> None:
    """From now on each such request for a key fails, before it takes effect."""
    store.before = raising(lambda r: (r.verb, r.key) == (verb, key), failure)


@contextmanager
def full_disk(bytes_max: int = 1000) -> Iterator[None]:
    """In the block the system refuses what would make a file longer than so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def refusing(
    store: MemoryStore,
    fits: Fits,
    error: BaseException | type[BaseException],
    *,
    after: bool = False,
    times: int | None = None,
) -> Iterator[None]:
    """In the block each request that fits fails, before or after it takes effect."""
    setattr(store, "after" if after else "before", raising(fits, error, times=times))
    try:
        yield
    finally:
        setattr(store, "after" if after else "before", None)


def unanswered() -> None:
    raise Unanswered("no answer")


def record_put(state: str) -> Callable[[Request], bool]:
    """A PUT of the job's record whose content says ``state``: only swaps carry ``If-Match``."""
    return lambda r: (
        r.verb == "put"
        and r.key.endswith("_job.json")
        and (r.if_match is not None) == (state != "running")
    )


class Crash(BaseException):
    """The process is gone."""


def crash() -> None:
    raise Crash


def dies_at(
    s3: MemoryStore,
    fits: Fits,
    step: Callable[[], object],
    *,
    after: bool = False,
    nth: int = 1,
    silent: bool = False,
) -> None:
    """The process that takes a step is killed at such a request, before or after its effect.
    ``silent``: none of its threads sends anything from then on."""

    def die() -> None:
        if silent:
            s3.before = raising("*", Crash)
        raise Crash

    at = At(s3, fits, die, after=after, nth=nth)
    with pytest.raises(Crash):
        step()
    assert at.done
    s3.before = s3.after = None


def decided(s3: MemoryStore, **terms: Any) -> mc.Job:
    """A job of two tasks, ``a.csv`` and ``b.csv``, whose driver died before its first Complete."""
    job = job_of({"a.csv": b"1"}, {"b.csv": b"22"}, **terms)
    with refusing(s3, "complete_upload", Crash):
        raises(Crash, job.commit)
    return job


def half_completed(s3: MemoryStore, *, mode: Mode = "append") -> mc.Job:
    """A job of two files whose driver died after it had completed ``a.csv``."""
    job = mc.start(DEST, mode=mode)
    committed_task(job, "1", {"a.csv": b"1"})
    committed_task(job, "2", {"b.csv": b"2"})
    dies_at(s3, "complete_upload t/b.csv", job.commit)
    return job


def one_file(job: mc.Job, **handle: str) -> mc.Task:
    """An attempt with one closed file; one that others may share, if ``attempt`` names it."""
    task = job.task("1", **handle)
    write(task)
    return task


def until(happens: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    ends = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < ends
        time.sleep(0.001)
