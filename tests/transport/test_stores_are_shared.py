"""One store for each way to a bucket: kept, closed, looked up anew, and used after a fork."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.errors import PermissionDenied
from magic_committer.options import S3Options, Transport
from magic_committer.stores.s3 import client, connect
from magic_committer.stores.s3.client import STORES_MAX
from tests.servers import TRANSPORT, moto_server, scripted_server, way
from tests.transport.lab import Lab


def test_stores_that_nobody_uses_are_closed(lab: Lab) -> None:
    """Each has other keys. The descriptors of those that were wanted last stay open, no others; and
    a store that a job has, however many others are wanted: who wants it gets the same."""
    mine, counts = connect("mine", way(lab.url)), []
    mine.put("k", b"x")
    once = connect("once", way(lab.url)).once()
    for number in range(3 * STORES_MAX):
        connect("b", way(lab.url, access_key=f"key-{number}")).put("k", b"x")
        if number >= STORES_MAX:
            counts.append(len(os.listdir("/proc/self/fd")))
    # Some may end a moment sooner or later. A store that stays open would be one more each time.
    assert min(counts[-8:]) <= min(counts[:8]) + STORES_MAX
    assert len(client._connected) == STORES_MAX
    assert connect("mine", way(lab.url)) is mine
    assert connect("another", way(lab.url)) is not mine
    mine.put("k", b"x")
    once.put("k", b"x")


def test_threads_that_connect_at_once_share_a_store(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would have connections of their own, and one of them would be closed by nobody."""
    real, made = client.S3Store.__init__, list[str]()

    def slow(store: client.S3Store, bucket: str, options: S3Options) -> None:
        made.append(bucket)
        time.sleep(0.1)  # for the other one to come
        real(store, bucket, options)

    monkeypatch.setattr(client.S3Store, "__init__", slow)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(
            lambda _: connect("b", way(lab.url, access_key="at-once")), "12"
        )
    assert (first is second, made) == (True, ["b"])


def test_credentials_that_come_later_are_found(lab: Lab, no_credentials: Path) -> None:
    """A look-up that found none is not kept: a notebook's next cell finds what the user has written
    meanwhile. So is a change of a variable, and another home directory."""
    wanted = S3Options(endpoint_url=lab.url, transport=TRANSPORT.get())
    with pytest.raises(PermissionDenied, match="credentials"):
        connect("b", wanted).put("k", b"x")
    no_credentials.parent.mkdir()
    no_credentials.write_text("[default]\naws_access_key_id = one\naws_secret_access_key = s\n")
    connect("b", wanted).put("k", b"x")
    with lab.patch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "two")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        connect("b", wanted).put("k", b"x")
    connect("b", wanted).put("k", b"x")
    others = no_credentials.parent / "other" / ".aws"
    others.mkdir(parents=True)
    (others / "credentials").write_text(no_credentials.read_text().replace("one", "three"))
    lab.patch.setenv("HOME", str(others.parent))
    connect("b", wanted).put("k", b"x")
    keys = [asked.headers["authorization"].partition("=")[2] for asked in lab.asked]
    assert [key.partition("/")[0] for key in keys] == ["one", "two", "one", "three"]


def test_the_endpoint_is_that_of_the_environment_now(lab: Lab) -> None:
    """A changed variable holds from the next job on; a store that is in use keeps its endpoint."""
    wanted = way(lab.url, endpoint_url=None)
    with scripted_server(lab.server.script) as other:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            lab.patch.setenv(name, other.url)
            before = connect("b", wanted)
            lab.patch.setenv(name, lab.url)
            connect("b", wanted).put("k", b"x")
            before.put("k", b"x")
        assert (len(other.asked), len(lab.asked)) == (2, 2)


def test_an_open_job_keeps_what_it_began_with(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that takes other credentials and another endpoint for a while, by the environment,
    does not take them from its open jobs."""
    with moto_server("bucket") as url:
        began = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        for name, value in began.items():
            monkeypatch.setenv(name, value)
        options = S3Options(region="us-east-1", transport=transport)
        job = mc.start("s3://bucket/t", s3=options)
        attached = mc.attach("s3://bucket/t", job.id, s3=options)
        for name in began:
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        with attached.task("1") as task, task.open("a", "w") as file:
            file.write("x")
        assert job.commit(expect=1).outcome == "committed"


def test_the_identity_names_endpoint_and_bucket(lab: Lab) -> None:
    """Without what a URL may carry of secrets; one with a user stays with the SDK."""
    with_user = lab.url.replace("http://", "http://user:password@")
    for url, transport in ((lab.url, TRANSPORT.get()), (with_user, "auto")):
        assert lab.make(url=url, transport=transport).identity == f"{lab.url}/b"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12: threads, fork
def test_a_store_works_after_a_fork(lab: Lab) -> None:
    """A forked child makes connections of its own, and leaves the parent's alone."""
    store = lab.make()
    store.put("before", b"x")
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=store.put, args=("child", b"x"))
    child.start()
    child.join(300)
    store.put("after", b"x")
    assert child.exitcode == 0
    assert [asked.path for asked in lab.asked] == ["/b/before", "/b/child", "/b/after"]
