"""Names that stores, file systems and URLs take for something else; and files without a byte."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.options import ChecksumOption, Mode
from magic_committer.stores.s3 import S3Store
from tests.real_servers.server import Server, options
from tests.real_servers.visible import visible

ODD_NAMES = (
    "a b", " before", "after ", "a+b", "100%", "p=a%2Fb", "%41", "é", "e\N{COMBINING ACUTE ACCENT}",
    "日本語", "😀", "a&b;c", "a?b=c", "a#b", "a:b", "a*b", "a'b", 'a"b', "<a>", "a\\b", "a|b", "~a",
    "a@b,c$d!e", "(a)[b]{c}", "a..b", "..a", "-", "^`", "Upper", "upper", "n" * 255,
    "/".join(["d" * 90] * 7),
)  # fmt: skip
"""Each is an element, or more, of a legal key."""


def test_odd_names_are_published_as_they_are(server: Server, bucket: str, store: S3Store) -> None:
    """All of them at once, as directories and as files: the keys are the names, byte for byte."""
    names = [f"{name}/{name[-100:]}.csv" for name in ODD_NAMES]
    with mc.write(f"s3://{bucket}/t", s3=options(server.url)) as job:
        for name in names:
            with job.open(name) as file:
                file.write(name.encode())
    assert visible(store) == {f"t/{name}": name.encode() for name in names}


DECIDED_SECONDS_MAX = 3.0
"""How long a driver tries to complete a file that a server refuses."""

ODD_DESTINATIONS = ("a b", "a+b", "p=a%2Fb", "é", "a'b", "a?b#c")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["append", "replace"])
def test_odd_destinations(server: Server, bucket: str, store: S3Store, mode: Mode) -> None:
    """A destination's own name may be as odd, also where a job lists and deletes below it."""
    for number, name in enumerate(ODD_DESTINATIONS):
        dest = f"d{number}/{name}"
        store.put(f"{dest}/old.csv", b"old")
        job = mc.write(f"s3://{bucket}/{dest}", mode=mode, s3=options(server.url))
        with job, job.open("new.csv") as file:
            file.write(b"new")
        names = {key.removeprefix(f"{dest}/") for key in visible(store) if key.startswith(dest)}
        assert names == ({"new.csv"} if mode == "replace" else {"new.csv", "old.csv"})


def test_a_name_may_have_256_bytes(server: Server, bucket: str, store: S3Store) -> None:
    """S3 limits keys, not their elements; stores over file systems do."""
    job = mc.write(f"s3://{bucket}/t", s3=options(server.url))
    with job, job.open("n" * 256) as file:
        file.write(b"1")
    assert visible(store) == {f"t/{'n' * 256}": b"1"}


def test_a_file_may_lie_below_the_name_of_another(
    server: Server, bucket: str, store: S3Store
) -> None:
    """For S3 a key is no path: `f` and `f/x` are two objects."""
    store.put("t/f", b"f")
    write_one(server, bucket, "f/x")
    assert visible(store) == {"t/f": b"f", "t/f/x": b"f/x"}


def test_a_file_may_have_the_name_of_a_directory(
    server: Server, bucket: str, store: S3Store
) -> None:
    """The same, where `f/x` is there first."""
    store.put("t/f/x", b"f/x")
    write_one(server, bucket, "f")
    assert visible(store) == {"t/f": b"f", "t/f/x": b"f/x"}


def write_one(server: Server, bucket: str, name: str) -> None:
    """Commit a job of one file, on a store that may answer its Complete with 500 for ever."""
    soon = options(server.url, decided_seconds_max=DECIDED_SECONDS_MAX)
    with mc.write(f"s3://{bucket}/t", s3=soon) as job, job.open(name) as file:
        file.write(name.encode())


@pytest.mark.parametrize("checksum", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "off"])
@pytest.mark.parametrize("bodies", [[b""], [b"", b"b", b""]], ids=["alone", "beside"])
def test_empty_files(
    server: Server, bucket: str, store: S3Store, checksum: ChecksumOption, bodies: list[bytes]
) -> None:
    """A file without a byte is an object without a byte, and its job leaves nothing, whatever the
    checksum; the CRCs are FULL_OBJECT. MinIO answers the right one of no bytes with 400, after the
    decision, for ever: it is not sent."""
    opts = mc.Options(checksum=checksum)
    with mc.write(f"s3://{bucket}/t", s3=options(server.url), options=opts) as job:
        for number, body in enumerate(bodies):
            with job.open(f"{number}.csv") as file:
                file.write(body)
    assert (job.report.outcome, job.report.files) == ("committed", len(bodies))
    assert job.report.warnings == ()
    assert visible(store) == {f"t/{number}.csv": body for number, body in enumerate(bodies)}
