"""Options that contradict each other, or that cannot be honoured, are refused at once."""

from __future__ import annotations

import threading

import pytest

import magic_committer as mc
from magic_committer._pool import THREADS_MAX, ThreadPool
from magic_committer.options import refuse_lost_checksums
from magic_committer.stores.memory import MemoryStore

DEST = "s3://bucket/t"
PLAIN = f"{DEST}/__magic/job-1/x/__base/a.csv"


@pytest.mark.parametrize("checksum", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_strings_do_not_go_with_a_checksum(memory_s3: MemoryStore, checksum: str) -> None:
    """AWS refuses to complete what was made with checksums and names none, for ever: refused before
    anything is sent, with the options that go together."""
    options = mc.Options(etag_form="strings", checksum=checksum)  # type: ignore[arg-type]
    with pytest.raises(mc.OptionError, match=r"etag_form='strings', checksum='off'"):
        mc.start(DEST, options=options)
    assert not memory_s3.requests


def test_strings_without_checksums_are_fine(memory_s3: MemoryStore) -> None:
    """What the error advises works."""
    options = mc.Options(etag_form="strings", checksum="off")
    with mc.write(DEST, options=options) as job, job.open("a.csv", "w", unique=False) as f:
        f.write("x")
    assert memory_s3.body("t/a.csv") == b"x"


@pytest.mark.parametrize(
    "options",
    [
        mc.Options(etag_form="strings"),
        mc.Options(checksum="CRC64NVME"),
    ],
)
def test_what_hadoop_could_not_complete_is_not_left_for_it(
    memory_s3: MemoryStore, options: mc.Options
) -> None:
    """``fence=False``: Hadoop up to 3.4.1 names no checksums, 3.5.0 knows no CRC64NVME: refused
    before anything is sent."""
    with pytest.raises(mc.OptionError, match="does not go with"):
        mc.open_magic(PLAIN, fence=False, options=options)
    assert not memory_s3.requests


def test_a_job_of_our_own_may_take_crc64nvme() -> None:
    """This library's committer completes it: only files that are left for Hadoop's are refused."""
    refuse_lost_checksums("objects", "CRC64NVME")


def test_more_threads_than_there_are_are_refused() -> None:
    """The pool has 64: a greater number was taken, and did nothing."""
    with pytest.raises(mc.OptionError, match="commit_threads=65 is not between 1 and 64"):
        mc.Options(commit_threads=THREADS_MAX + 1)


def test_as_many_threads_as_may_be_asked_for_run_at_once() -> None:
    """The greatest number that the option takes is honoured by the pool."""
    gate = threading.Barrier(THREADS_MAX)
    pool = ThreadPool()
    waited = pool.each(lambda _: gate.wait(10), range(THREADS_MAX), in_flight=THREADS_MAX)
    assert sorted(outcome.unwrap() for outcome in waited) == list(range(THREADS_MAX))


def test_hadoops_threads_for_each_processor_stay_within_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``-8`` on 32 processors asks for 256: it is a wish for many, so it gets what there is."""
    monkeypatch.setattr("os.cpu_count", lambda: 32)
    read = mc.Options.from_mapping({"fs.s3a.committer.threads": "-8"})
    assert read.commit_threads == THREADS_MAX
