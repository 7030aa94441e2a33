"""Names that stores, file systems and URLs take for something else; and files without a byte."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.options import ChecksumOption, Mode
from tests.real_servers.conftest import SeenStore
from tests.real_servers.server import options

ODD_NAMES = (
    "a b", " before", "after ", "a+b", "100%", "p=a%2Fb", "%41", "é", "e\N{COMBINING ACUTE ACCENT}",
    "日本語", "😀", "a&b;c", "a?b=c", "a#b", "a:b", "a*b", "a'b", 'a"b', "<a>", "a\\b", "a|b", "~a",
    "a@b,c$d!e", "(a)[b]{c}", "a..b", "..a", "-", "^`", "Upper", "upper", "n" * 255,
    "/".join(["d" * 90] * 7),
)  # fmt: skip
"""Each is an element, or more, of a legal key."""
ODD_DESTINATIONS = ("a b", "a+b", "p=a%2Fb", "é", "a'b", "a?b#c")
DECIDED_SECONDS_MAX = 6.0
"""How long a driver tries to complete a file that a server refuses."""


def write(store: SeenStore, *names: str) -> None:
    """Commit a job of these files, which hold their names, on a store that may answer Complete with
    500 for ever."""
    soon = options(store.s3.endpoint_url or "", decided_seconds_max=DECIDED_SECONDS_MAX)
    with store.write(s3=soon) as job:
        for name in names:
            with job.open(name) as file:
                file.write(name.encode())


def test_odd_names_are_published_as_they_are(store: SeenStore) -> None:
    """All of them at once, as directories and as files: the keys are the names, byte for byte."""
    names = [f"{name}/{name[-100:]}.csv" for name in ODD_NAMES]
    write(store, *names)
    assert store.visible() == {f"t/{name}": name.encode() for name in names}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["append", "replace"])
def test_odd_destinations(store: SeenStore, mode: Mode) -> None:
    """A destination's own name may be as odd, also where a job lists and deletes below it."""
    for number, name in enumerate(ODD_DESTINATIONS):
        dest = f"d{number}/{name}"
        store.put(f"{dest}/old.csv", b"old")
        job = mc.write(f"s3://{store.bucket}/{dest}", mode=mode, s3=store.s3)
        with job, job.open("new.csv") as file:
            file.write(b"new")
        names = {key.removeprefix(f"{dest}/") for key in store.visible() if key.startswith(dest)}
        assert names == ({"new.csv"} if mode == "replace" else {"new.csv", "old.csv"})


def test_a_name_may_have_256_bytes(store: SeenStore) -> None:
    """S3 limits keys, not their elements; stores over file systems do."""
    write(store, "n" * 256)
    assert store.visible() == {f"t/{'n' * 256}": b"n" * 256}


def test_a_file_may_lie_below_the_name_of_another(store: SeenStore) -> None:
    """For S3 a key is no path: `f` and `f/x` are two objects."""
    store.put("t/f", b"f")
    write(store, "f/x")
    assert store.visible() == {"t/f": b"f", "t/f/x": b"f/x"}


def test_a_file_may_have_the_name_of_a_directory(store: SeenStore) -> None:
    """The same, where `f/x` is there first."""
    store.put("t/f/x", b"f/x")
    write(store, "f")
    assert store.visible() == {"t/f": b"f", "t/f/x": b"f/x"}


@pytest.mark.parametrize("checksum", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "off"])
@pytest.mark.parametrize("bodies", [[b""], [b"", b"b", b""]], ids=["alone", "beside"])
def test_empty_files(store: SeenStore, checksum: ChecksumOption, bodies: list[bytes]) -> None:
    """A file without a byte is an object without a byte, and its job leaves nothing, whatever the
    checksum; the CRCs are FULL_OBJECT. MinIO answers the right one of no bytes with 400, after the
    decision, for ever: it is not sent."""
    with store.write(options=mc.Options(checksum=checksum)) as job:
        for number, body in enumerate(bodies):
            with job.open(f"{number}.csv") as file:
                file.write(body)
    assert (job.report.outcome, job.report.files) == ("committed", len(bodies))
    assert job.report.warnings == ()
    assert store.visible() == {f"t/{number}.csv": body for number, body in enumerate(bodies)}
