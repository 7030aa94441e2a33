"""Keys with empty elements, which other programs write: data like any other (I7).

``t//x`` lies below ``t/``, and ``/x`` lies in the bucket's root. No job can write such a key, but a
table may hold one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.options import Mode
from magic_committer.stores.base import ObjectStore, objects
from magic_committer.stores.memory import MemoryStore
from magic_committer.stores.s3 import S3Store
from tests.promises.hands import committed_task, raises
from tests.servers import make_bucket, moto_options, moto_server

STRANGE = ("/x", "//y", "/dt=1//z", "dt=1//", "dt=1//z", "dt=1///z")
"""Below a destination: empty elements at the beginning, in the middle, at the end, and two."""
HIDDEN = ("/_x", "/.y", "dt=1//_z", "_x//z")
"""The same, below an element that readers pass over."""


@pytest.fixture(params=["t/", ""])
def prefix(request: pytest.FixtureRequest) -> str:
    """Of the destination: a directory, or the whole bucket."""
    return str(request.param)


def run(prefix: str, mode: Mode, bucket: str = "bucket", **terms: Any) -> mc.JobReport:
    job = mc.start(f"s3://{bucket}/{prefix}", mode=mode, **terms)
    committed_task(job, "1", {"dt=1/new.csv": b"new"})
    return job.commit()


@pytest.mark.parametrize("name", STRANGE)
def test_fail_sees_keys_with_empty_elements(s3: MemoryStore, prefix: str, name: str) -> None:
    """Such a key is data: mode ``fail`` is refused and names it, mode ``replace`` deletes it."""
    s3.put_object(prefix + name, b"old")
    assert f"e.g. {prefix}{name}." in str(raises(mc.DestinationExists, run, prefix, "fail"))
    assert s3.keys() == (prefix + name,)
    assert run(prefix, "replace").state == "absent"
    assert s3.keys() == (f"{prefix}_SUCCESS", f"{prefix}dt=1/new.csv")


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_stays_hidden_beside_an_empty_one(s3: MemoryStore, prefix: str, name: str) -> None:
    """Also beside an empty element; an object of the destination's own name is not below it."""
    keys = {prefix + name, prefix} - {""}
    for key in keys:
        s3.put_object(key, b"not data")
    assert run(prefix, "fail").outcome == "committed"
    assert run(prefix, "replace").outcome == "committed"
    assert keys < set(s3.keys())


def test_an_empty_marker_with_an_empty_element_is_no_data(s3: MemoryStore, prefix: str) -> None:
    """A directory marker of no bytes is no data, and one with bytes is: whatever its elements."""
    s3.put_object(f"{prefix}a//")
    s3.put_object(f"{prefix}b/")
    assert run(prefix, "fail").outcome == "committed"
    s3.put_object(f"{prefix}b/", b"old")
    run(prefix, "replace")
    assert set(s3.keys()) == {prefix + name for name in ("_SUCCESS", "a//", "dt=1/new.csv")}


@pytest.mark.parametrize("mode", ["fail_partitions", "replace_partitions"])
def test_a_partition_is_its_exact_directory(s3: MemoryStore, mode: Mode) -> None:
    """By partition, ``dt=1//z`` is not directly in ``dt=1/``: it is left, and not in the way."""
    s3.put_object("t/dt=1//z", b"other partition")
    s3.put_object("t//dt=1/z", b"other partition")
    assert run("t/", mode).outcome == "committed"
    assert set(s3.keys()) >= {"t/dt=1//z", "t//dt=1/z", "t/dt=1/new.csv"}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url:
        yield url


def test_a_real_client_keeps_empty_elements(moto: str, prefix: str) -> None:
    """Over HTTP too: listed, refused by ``fail``, deleted by ``replace``."""
    bucket = "bucket" if prefix else "bucket-root"
    make_bucket(moto, bucket)
    way = moto_options(moto)
    store: ObjectStore = S3Store(bucket, way)
    for name in STRANGE:
        store.put(prefix + name, b"old")
    raises(mc.DestinationExists, mc.start, f"s3://{bucket}/{prefix}", mode="fail", s3=way)
    run(prefix, "replace", bucket, s3=way)
    assert [one.key for one in objects(store, "")] == [
        f"{prefix}_SUCCESS",
        f"{prefix}dt=1/new.csv",
    ]
