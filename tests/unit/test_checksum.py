from __future__ import annotations

import base64
import hashlib
import sys
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magic_committer.errors import OptionError
from magic_committer.options import Options
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import Checksum, ChecksumAlgorithm
from tests.promises.hands import raises

CRCS = ("CRC32", "CRC32C", "CRC64NVME")
ALL: tuple[ChecksumAlgorithm, ...] = get_args(ChecksumAlgorithm)


@pytest.fixture(scope="module", autouse=True)
def _crt() -> None:
    pytest.importorskip("awscrt.checksums")


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        ("CRC32", "cbf43926"),
        ("CRC32C", "e3069283"),
        ("CRC64NVME", "ae8b14860a799888"),
        ("SHA1", "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
        ("SHA256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
    ],
)
def test_the_published_check_values(algorithm: ChecksumAlgorithm, digest: str) -> None:
    """Each algorithm gives its standard's value for "123456789", in big-endian base64."""
    value = checksums.of(algorithm, b"123456789").value
    assert value == base64.b64encode(bytes.fromhex(digest)).decode()


@given(st.sampled_from(ALL), st.lists(st.binary(max_size=300), max_size=6))
def test_updates_may_be_cut_anywhere(algorithm: ChecksumAlgorithm, pieces: list[bytes]) -> None:
    """Running over pieces equals the checksum of the pieces joined."""
    running = checksums.Running(algorithm)
    for piece in pieces:
        running.update(memoryview(bytearray(piece)))
    assert running.checksum() == checksums.of(algorithm, b"".join(pieces))


@given(st.sampled_from(CRCS), st.lists(st.binary(max_size=3000), min_size=1, max_size=6))
def test_the_whole_follows_from_the_parts(algorithm: ChecksumAlgorithm, parts: list[bytes]) -> None:
    """Joining the parts' CRCs equals the CRC of all bytes, with empty parts among them too."""
    joined = checksums.whole((checksums.of(algorithm, part), len(part)) for part in parts)
    assert joined == checksums.of(algorithm, b"".join(parts))


@pytest.mark.parametrize("second", ["SHA256", "CRC32C"])
def test_what_cannot_be_joined_is_refused(second: ChecksumAlgorithm) -> None:
    """SHA sums, and CRCs of two kinds, are refused rather than joined to nonsense."""
    first: ChecksumAlgorithm = "SHA256" if second == "SHA256" else "CRC32"
    with pytest.raises(ValueError, match="cannot be joined"):
        checksums.combine(checksums.of(first, b"a"), checksums.of(second, b"b"), 1)
    assert checksums.joins("CRC32")
    assert not checksums.joins("SHA256")


def test_a_composite_is_the_sum_of_sums_and_their_number() -> None:
    """For SHA the object's value is the digest of the parts' digests, a dash and their count."""
    parts = [b"first", b"second"]
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    expected = base64.b64encode(hashlib.sha256(digests).digest()).decode() + "-2"
    made = checksums.composite([checksums.of("SHA256", part) for part in parts])
    assert made == Checksum("SHA256", expected)


def forget() -> None:
    """As in a process that has computed no checksum."""
    checksums._crc_function.cache_clear()
    checksums.fastest.cache_clear()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As where none of the optional packages is installed."""
    for module in ("awscrt.checksums", "crc32c", "isal.isal_zlib", "zlib_ng.zlib_ng"):
        monkeypatch.setitem(sys.modules, module, None)
    forget()
    yield monkeypatch
    forget()


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("algorithm", ["CRC32C", "CRC64NVME"])
def test_the_others_say_what_to_install(algorithm: ChecksumAlgorithm) -> None:
    """Without awscrt the other CRCs are refused before the first byte; zlib's CRC32 needs none."""
    raises(OptionError, checksums.require, algorithm, match=r"magic-committer\[crt\]")
    checksums.require("SHA256")
    checksums.require("CRC32")
    assert checksums.of("CRC32", b"123456789").value == "y/Q5Jg=="


def test_auto_is_crc32c_where_something_computes_it(bare: pytest.MonkeyPatch) -> None:
    """The default is CRC32 in a bare process, and CRC32C in one with awscrt or crc32c."""
    assert Options().checksum_algorithm == "CRC32"
    for module in ("awscrt.checksums", "crc32c"):
        bare.setitem(sys.modules, module, None)
        forget()
        assert Options().checksum_algorithm == "CRC32"
        with bare.context() as installed:
            installed.setitem(sys.modules, module, SimpleNamespace(crc32c=zlib.crc32))
            forget()
            assert Options().checksum_algorithm == "CRC32C"


@pytest.mark.parametrize("module", ["isal.isal_zlib", "zlib_ng.zlib_ng"])
def test_crc32_is_taken_from_a_faster_zlib(bare: pytest.MonkeyPatch, module: str) -> None:
    """isal and zlib_ng come before zlib; awscrt's CRC32 is slower than zlib's and is not used."""
    slower = SimpleNamespace(crc32=lambda data, crc: 1 / 0)
    bare.setitem(sys.modules, "awscrt.checksums", slower)
    assert checksums._crc_function("CRC32") is zlib.crc32
    faster = SimpleNamespace(crc32=lambda data, crc: zlib.crc32(data, crc))
    bare.setitem(sys.modules, module, faster)
    forget()
    assert checksums._crc_function("CRC32") is faster.crc32


def test_a_package_that_is_too_old_is_passed_over(bare: pytest.MonkeyPatch) -> None:
    """An awscrt without CRC32C is as none: the default is CRC32."""
    bare.setitem(sys.modules, "awscrt.checksums", SimpleNamespace(crc32=zlib.crc32))
    assert checksums.fastest() == "CRC32"


@pytest.mark.parametrize("power", [32, 40, 43])
@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_joining_holds_at_any_length(algorithm: Any, power: int) -> None:
    """Joining a long second piece at once is the same as joining its two halves, one by one."""
    half = 2 ** (power - 1)
    one, two, three = (checksums.of(algorithm, bytes([n])) for n in range(3))
    at_once = checksums.combine(one, checksums.combine(two, three, half), 2 * half)
    assert checksums.combine(checksums.combine(one, two, half), three, half) == at_once
    assert checksums.whole([]) is None
