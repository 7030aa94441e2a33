"""Options that contradict each other, or that cannot be honoured, are refused at once."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.options import COMMIT_THREADS_MAX, SECONDS_FIELDS, ConditionalWrites
from magic_committer.runtime.threads import THREADS_MAX
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock
from tests.promises.hands import raises

DEST = "s3://bucket/t"
PLAIN = f"{DEST}/__magic/job-1/x/__base/a.csv"


@pytest.mark.parametrize("checksum", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_strings_do_not_go_with_a_checksum(memory_s3: MemoryStore, checksum: str) -> None:
    """AWS never completes such an upload: refused at once, with the options that go together."""
    options = mc.Options(etag_form="strings", checksum=checksum)  # type: ignore[arg-type]
    with pytest.raises(mc.OptionError, match=r"etag_form='strings', checksum='off'"):
        mc.start(DEST, options=options)
    assert not memory_s3.requests
    mc.start(DEST, options=mc.Options(etag_form="strings", checksum="off"))


@pytest.mark.parametrize(
    "options", [mc.Options(etag_form="strings"), mc.Options(checksum="CRC64NVME")]
)
def test_what_hadoop_cannot_complete_is_refused(
    memory_s3: MemoryStore, options: mc.Options
) -> None:
    """``fence=False``: no checksums for 3.4.1, no CRC64NVME for 3.5.0: refused at once."""
    with pytest.raises(mc.OptionError, match="does not go with"):
        mc.open_magic(PLAIN, fence=False, options=options)
    assert not memory_s3.requests


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"buffer_dir": 5}, "buffer_dir is text, not int"),
        ({"uniform_parts": "no"}, "uniform_parts is True or False, not str"),
        ({"block_bytes": "8M"}, "block_bytes is a whole number, not '8M'"),
    ],
)
def test_a_value_of_another_type_is_refused(given: dict[str, Any], says: str) -> None:
    """Where the options are made."""
    with pytest.raises(mc.OptionError, match=says):
        mc.Options(**given)


def test_more_requests_at_once_than_the_limit_are_refused() -> None:
    """No store takes so many from one client."""
    with pytest.raises(mc.OptionError, match="commit_threads=1025 is not between 1 and 1024"):
        mc.Options(commit_threads=COMMIT_THREADS_MAX + 1)


KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"encryption": "AES"}, "encryption='AES' is none of AES256"),
        ({"kms_key_id": "k"}, "kms_key_id needs encryption='aws:kms'"),
        ({"kms_key_id": "k", "encryption": "AES256"}, "kms_key_id needs encryption='aws:kms'"),
        ({"sse_customer_key": KEY}, "sse_customer_key needs encryption='SSE-C'"),
        ({"sse_customer_key": KEY[:16], "encryption": "SSE-C"}, "has 32 bytes"),
        ({"access_key": "a"}, "go together"), ({"secret_key": "s"}, "go together"),
        ({"transport": "curl"}, "transport='curl' is none of"),
        *[({name: seconds}, f"{name} is a number above 0, not {seconds!r}")
          for name in SECONDS_FIELDS for seconds in (0, -1, float("nan"), "5", None)],
        ({"endpoint_url": 5}, "endpoint_url is text, not int"),
        *[({"endpoint_url": url}, "no http:// or https:// URL of a host")
          for url in ("ftp://x", "host:9000", "http://", "http://a:b")],
        ({"access_key": "a", "secret_key": b"secret"}, "secret_key is text, not bytes"),
        ({"anonymous": "yes"}, "anonymous is True or False, not str"),
        ({"retry_attempts_max": 0}, "retry_attempts_max=0 is not between 1 and 100"),
        ({"connections_max": 4097}, "connections_max=4097 is not between 1 and 4096"),
        ({"connections_max": True}, "connections_max is a whole number, not True"),
        ({"connections_max": "64"}, "connections_max is a whole number, not '64'"),
        ({"tags": {"team": "data"}}, "tags is pairs, such as (('team', 'data'),), not dict"),
        ({"tags": ("team", "data")}, "tags are pairs of texts, and 'team' is none"),
        ({"tags": (("n", 1),)}, "tags are pairs of texts, and ('n', 1) is none"),
    ],
)  # fmt: skip
def test_how_no_store_can_be_reached_is_refused(given: dict[str, Any], says: str) -> None:
    """Where the options are made, with the name of the one that is wrong."""
    with pytest.raises(mc.OptionError, match=re.escape(says)):
        mc.S3Options(**given)


class OneByOne(MemoryStore):
    """A store that could take many requests from one thread, but not as it is set up."""

    transport = ("boto3", "a proxy")

    def many(self) -> None:
        """There is no way."""


def test_more_requests_than_threads_are_refused_where_each_needs_a_thread() -> None:
    """Before the store is asked anything, with the number that is right; it ends no job."""
    store, clock = OneByOne(), PatientClock()
    many = mc.Options(commit_threads=THREADS_MAX + 1)
    register_store(store, clock)
    try:
        raised = raises(mc.OptionError, mc.start, DEST, options=many, match="64 threads")
        assert "commit_threads=64" in raised.hint
        assert not store.requests
        job = mc.start(DEST, options=mc.Options(commit_threads=THREADS_MAX))
        other = mc.attach(DEST, job.id, options=many)
        recover = partial(mc.recover, DEST, job.id, dead_after=0, options=many)
        for end in (partial(other.commit, expect=0), other.abort, recover):
            raises(mc.OptionError, end, match="64 threads")
        assert job.state == "running"
    finally:
        unregister_store(store)


@pytest.mark.parametrize("conditions", ["on", "off"])
def test_a_directory_accepts_many_requests(conditions: ConditionalWrites, tmp_path: Path) -> None:
    """No request of a directory goes by boto3: what is above the pool's threads waits."""
    many = mc.Options(commit_threads=THREADS_MAX + 1, conditional_writes=conditions)
    mc.start(tmp_path.as_uri(), options=many).abort()


def test_another_store_takes_more_requests_than_threads(memory_s3: MemoryStore) -> None:
    """A job of 200 files is committed with 1,024 requests at once."""
    options = mc.Options(commit_threads=COMMIT_THREADS_MAX)
    with mc.write("s3://bucket/t", options=options) as task:
        for number in range(200):
            with task.open(f"{number}.csv") as f:
                f.write(b"1")
    assert len(memory_s3.keys("t/")) == 201
