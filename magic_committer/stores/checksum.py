"""Checksums as S3 writes them, and the checksum of a whole object from those of its parts. Pure.

Theory. A CRC is a remainder of polynomials over GF(2). So the CRC of two joined byte strings
follows from theirs: multiply the first CRC by ``x ** (8 * length of the second)``, modulo the CRC's
polynomial, and add (xor) the second. The first and last inversion, which all three CRCs here have,
cancel out. So the CRC of the whole object is known when the last part is, whatever the order in
which the parts were read, and no byte is read twice.

Invariants:

* The same bytes give the same value, whatever packages are installed and however the bytes are cut
  into updates.
* A value is the big-endian digest in base64 (S3 API, ``x-amz-checksum-*``).
* SHA sums cannot be joined. S3 gives such an object a composite: the sum of its parts' sums, with
  their number. It is never sent at Complete.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from magic_committer.errors import OptionError
from magic_committer.stores.base import Checksum, ChecksumAlgorithm

Buffer = bytes | bytearray | memoryview

OPERATORS_CACHED_MAX = 256
"""How many operators are kept. There is one for each length of a part; files have few such
lengths."""


_CRCS: dict[str, tuple[int, int]] = {
    "CRC32": (32, 0xEDB88320),
    "CRC32C": (32, 0x82F63B78),
    "CRC64NVME": (64, 0x9A6C9329AC4BC9B5),
}
"""Width and polynomial of CRCs whose bits are reflected, with all ones at both ends. The polynomial
is reflected as well: the bit of ``x**0`` is the highest one."""
_LIBRARIES: dict[str, tuple[tuple[str, str], ...]] = {
    "CRC32": (("isal.isal_zlib", "crc32"), ("zlib_ng.zlib_ng", "crc32"), ("zlib", "crc32")),
    "CRC32C": (("awscrt.checksums", "crc32c"), ("crc32c", "crc32c")),
    "CRC64NVME": (("awscrt.checksums", "crc64nvme"),),
}
"""For each CRC the modules and functions that compute it, the fastest first. GiB/s in one run: isal
17.8, zlib_ng 17.3, zlib 2.8, awscrt's CRC32 1.8 (so it is not here); CRC32C: awscrt 16.9, crc32c
15.6; CRC64NVME 18.7."""
_SHAS = {"SHA1": hashlib.sha1, "SHA256": hashlib.sha256}


@cache
def fastest() -> ChecksumAlgorithm:
    """The algorithm of ``checksum="auto"`` in this process: CRC32C where a package computes it,
    CRC32 elsewhere. An upload keeps the algorithm that its Create named. Files of one job may have
    different ones: nothing asks for one algorithm per job."""
    try:
        _crc_function("CRC32C")
    except OptionError:
        return "CRC32"
    return "CRC32C"


def require(algorithm: ChecksumAlgorithm) -> None:
    """Check, before the first byte, whether ``algorithm`` can be computed here."""
    if algorithm in _CRCS:
        _crc_function(algorithm)


def joins(algorithm: ChecksumAlgorithm) -> bool:
    """Whether the whole object's checksum follows from those of its parts (``FULL_OBJECT``, S3
    API)."""
    return algorithm in _CRCS


@cache
def keeps_up(algorithm: ChecksumAlgorithm) -> bool:
    """Whether it is computed much faster than bytes are sent: more than 10 GB/s."""
    return algorithm in _CRCS and _crc_function(algorithm).__module__ != "zlib"


class Running:
    """A checksum that is being computed."""

    def __init__(self, algorithm: ChecksumAlgorithm) -> None:
        self.algorithm = algorithm
        self._crc = 0
        self._add = _crc_function(algorithm) if algorithm in _CRCS else None
        self._sha = None if self._add else _SHAS[algorithm]()

    def update(self, data: Buffer) -> None:
        """Add more bytes; ``data`` is contiguous."""
        if self._add is not None:
            self._crc = self._add(data, self._crc)
        elif self._sha is not None:
            self._sha.update(data)

    def checksum(self) -> Checksum:
        """The checksum of all bytes so far."""
        if self._sha is None:
            return _written(self.algorithm, self._crc)
        return Checksum(self.algorithm, _base64(self._sha.digest()))


def of(algorithm: ChecksumAlgorithm, data: Buffer) -> Checksum:
    """The checksum of ``data``."""
    running = Running(algorithm)
    running.update(data)
    return running.checksum()


def combine(first: Checksum, second: Checksum, second_bytes: int) -> Checksum:
    """The checksum of two joined byte strings, from theirs and the length of the second."""
    if first.algorithm not in _CRCS or first.algorithm != second.algorithm:
        raise ValueError(f"{first.algorithm} and {second.algorithm} cannot be joined")
    one, other = (int.from_bytes(base64.b64decode(sum.value)) for sum in (first, second))
    shifted = _multiply(first.algorithm, _operator(first.algorithm, second_bytes), one)
    return _written(first.algorithm, shifted ^ other)


def whole(parts: Iterable[tuple[Checksum, int]]) -> Checksum | None:
    """The whole object's checksum, from the checksum and the length in bytes of each part, in the
    parts' order. None without parts."""
    total: Checksum | None = None
    for checksum, length in parts:
        total = checksum if total is None else combine(total, checksum, length)
    return total


def composite(parts: Sequence[Checksum]) -> Checksum:
    """What HEAD says about an object whose whole has no checksum of its own: the checksum of the
    parts' digests, a dash, and their number (S3 API)."""
    if not parts:
        raise ValueError("an object has at least one part")
    running = Running(parts[0].algorithm)
    for part in parts:
        running.update(base64.b64decode(part.value))
    return Checksum(running.algorithm, f"{running.checksum().value}-{len(parts)}")


@lru_cache(maxsize=OPERATORS_CACHED_MAX)
def _operator(algorithm: str, length: int) -> int:
    """``x ** (8 * length)`` modulo the polynomial, by squaring."""
    one = 1 << (_CRCS[algorithm][0] - 1)
    power, result = one >> 8, one
    while length:
        if length & 1:
            result = _multiply(algorithm, result, power)
        power = _multiply(algorithm, power, power)
        length >>= 1
    return result


def _multiply(algorithm: str, a: int, b: int) -> int:
    """``a * b`` modulo the polynomial."""
    width, polynomial = _CRCS[algorithm]
    product, bit = 0, 1 << (width - 1)
    while a:
        if a & bit:
            product ^= b
            a ^= bit
        bit >>= 1
        b = (b >> 1) ^ polynomial if b & 1 else b >> 1
    return product


def _written(algorithm: ChecksumAlgorithm, crc: int) -> Checksum:
    return Checksum(algorithm, _base64(crc.to_bytes(_CRCS[algorithm][0] // 8, "big")))


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode("ascii")


@cache
def _crc_function(algorithm: str) -> Callable[[Any, int], int]:
    """The fastest function that is installed: of the bytes, and of the CRC of those before them."""
    for module, name in _LIBRARIES[algorithm]:
        with suppress(ImportError, AttributeError):  # not installed, or too old to have it
            function: Callable[[Any, int], int] = getattr(import_module(module), name)
            return function
    raise OptionError(
        f"checksum {algorithm} needs the package awscrt",
        hint="Install magic-committer[crt], or choose checksum='CRC32'",
    )
