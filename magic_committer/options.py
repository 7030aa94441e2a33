"""Options: two frozen, serialisable values, one for the work (`Options`), one for the way to the
store (`S3Options`). Components (store, pool, clock, progress) are arguments, never options.

Unknown keys raise. Hadoop's keys are accepted as aliases by `Options.from_mapping`. Every number
carries its unit in its name. Secrets live only in `S3Options`, are left out of its ``repr`` and of
its pickle, and are never part of anything stored: in another process the environment supplies them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from magic_committer._pool import THREADS_MAX
from magic_committer.errors import OptionError
from magic_committer.stores.base import PART_BYTES_MAX, PART_BYTES_MIN, ChecksumAlgorithm

__all__ = [
    "Accept",
    "ChecksumAlgorithm",
    "ChecksumOption",
    "ConditionalWrites",
    "Encryption",
    "EtagForm",
    "Mode",
    "Options",
    "S3Options",
    "Track",
]

MiB = 1024**2

Mode = Literal["append", "fail", "fail_partitions", "replace", "replace_partitions"]
"""The modes, in the library's own words; `modes` knows Spark's."""
EXCLUDING: frozenset[Mode] = frozenset({"fail", "fail_partitions", "replace", "replace_partitions"})
"""Modes that exclude each other."""
BY_PARTITION: frozenset[Mode] = frozenset({"fail_partitions", "replace_partitions"})
FAILING: frozenset[Mode] = frozenset({"fail", "fail_partitions"})
REPLACING: frozenset[Mode] = frozenset({"replace", "replace_partitions"})
Accept = Literal["listing", "results"]
Track = Literal["s3", "memory"]
ConditionalWrites = Literal["on", "off"]
ChecksumOption = ChecksumAlgorithm | Literal["off"]
EtagForm = Literal["objects", "strings"]


@dataclass(frozen=True, slots=True)
class Options:
    """How the work is done. All have defaults that need no thought.

    Attributes:
        block_bytes: bytes of one part, for the first 1,000 parts of a file; then doubled every
            1,000 parts. 5 MiB to 5 GiB. Memory of an open file is
            ``block_bytes * (parts_in_flight + 2)``.
        parts_in_flight: parts of one file that are being sent at once.
        uniform_parts: never grow the parts (Cloudflare R2 wants equal ones): a file then ends at
            ``10,000 * block_bytes``.
        buffer: where blocks wait: ``"memory"`` or ``"disk"``.
        buffer_bytes_max: memory for the blocks of all open files of the process; what goes beyond
            it waits on disk.
        buffer_dir: directory for blocks on disk; None: the system's temporary directory.
        checksum: algorithm for every part and, for the CRCs, the whole object; ``"off"`` for stores
            that refuse checksums. Fixed in the job's record.
        etag_form: how etags are written in `.pending` and `.pendingset`: ``"objects"`` (Hadoop
            3.4.2 and later) or ``"strings"`` (up to 3.4.1), which has no room for checksums and so
            needs ``checksum="off"``: see `refuse_lost_checksums`.
        commit_threads: requests in flight while a job is committed or swept; 1 to 64, which is how
            many threads a process has for them.
        conditional_writes: ``"off"`` decides jobs without compare-and-swap on stores that have
            none: S3A's guarantees only, with a warning.
    """

    block_bytes: int = 8 * MiB
    parts_in_flight: int = 3
    uniform_parts: bool = False
    buffer: Literal["memory", "disk"] = "memory"
    buffer_bytes_max: int = 256 * MiB
    buffer_dir: str | None = None
    checksum: ChecksumOption = "CRC32"
    etag_form: EtagForm = "objects"
    commit_threads: int = 32
    conditional_writes: ConditionalWrites = "on"

    def __post_init__(self) -> None:
        _in_range("block_bytes", self.block_bytes, PART_BYTES_MIN, PART_BYTES_MAX)
        _in_range("parts_in_flight", self.parts_in_flight, 1, 64)
        _in_range("buffer_bytes_max", self.buffer_bytes_max, 0, 2**50)
        _in_range("commit_threads", self.commit_threads, 1, THREADS_MAX)
        _one_of("buffer", self.buffer, ("memory", "disk"))
        _one_of("checksum", self.checksum, (*get_args(ChecksumAlgorithm), "off"))
        _one_of("etag_form", self.etag_form, get_args(EtagForm))
        _one_of("conditional_writes", self.conditional_writes, get_args(ConditionalWrites))

    @property
    def checksum_algorithm(self) -> ChecksumAlgorithm | None:
        """The algorithm, None for ``"off"``."""
        return None if self.checksum == "off" else self.checksum

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Options:
        """Build from names of this class or Hadoop's keys; text is read as Hadoop reads it.

        Raises:
            OptionError: an unknown key, a value out of range, or the same option named twice.
        """
        known = {f.name for f in fields(cls)}
        built: dict[str, Any] = {}
        for key, value in values.items():
            name, read = HADOOP_KEYS.get(key, (key, None))
            if name not in known:
                close = ", ".join(sorted(known))
                raise OptionError(f"unknown option {key!r}", hint=f"Known are: {close}")
            if name in built:
                raise OptionError(f"option {name!r} is given twice, once as {key!r}")
            built[name] = read(key, value) if read else value
        return cls(**built)


def refuse_lost_checksums(
    etag_form: EtagForm, checksum: ChecksumOption, *, hadoop_commits: bool = False
) -> None:
    """Refuse options by which an upload is made with checksums that its `.pending` does not carry:
    a store that wants them in Complete (AWS, versitygw) would refuse that for ever. Pure.

    Args:
        hadoop_commits: the upload is left for Hadoop's committer, which knows no CRC64NVME (run
            against 3.5.0).

    Raises:
        OptionError: with the options that go together.
    """
    if etag_form == "strings" and checksum != "off":
        raise OptionError(
            f"etag_form='strings' does not go with checksum={checksum!r}: strings carry no"
            " checksums, and S3 wants each part's when the upload is completed",
            hint="For Hadoop up to 3.4.1: Options(etag_form='strings', checksum='off')",
        )
    if hadoop_commits and checksum == "CRC64NVME":
        raise OptionError(
            "checksum='CRC64NVME' does not go with fence=False: Hadoop's committer does not know"
            " it, and S3 would refuse to complete the file",
            hint="Leave it out, or take another: Options(checksum='CRC32C')",
        )


def _size(key: str, value: Any) -> int:
    """Hadoop's sizes: a number with K, M, G, T or P (binary)."""
    text = str(value).strip().upper()
    factor = 1
    if text and text[-1] in "KMGTP":
        factor = 1024 ** ("KMGTP".index(text[-1]) + 1)
        text = text[:-1]
    try:
        return int(text) * factor
    except ValueError:
        raise OptionError(f"{key}: {value!r} is not a size", hint="Write 8388608 or 8M") from None


def _threads(key: str, value: Any) -> int:
    """Hadoop's thread counts: negative means that many for each processor."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise OptionError(f"{key}: {value!r} is not a number of threads") from None
    return number if number > 0 else min(THREADS_MAX, max(1, -number * (os.cpu_count() or 1)))


def _count(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise OptionError(f"{key}: {value!r} is not a number") from None


def _buffer(key: str, value: Any) -> str:
    names = {"disk": "disk", "array": "memory", "bytebuffer": "memory"}
    if value not in names:
        raise OptionError(f"{key}: {value!r} is none of disk, array, bytebuffer")
    return names[value]


def _text(key: str, value: Any) -> str:
    return str(value).strip()


def _upper(key: str, value: Any) -> str:
    return str(value).strip().upper()


HADOOP_KEYS: Mapping[str, tuple[str, Any]] = {
    "fs.s3a.committer.threads": ("commit_threads", _threads),
    "fs.s3a.multipart.size": ("block_bytes", _size),
    "fs.s3a.fast.upload.active.blocks": ("parts_in_flight", _count),
    "fs.s3a.fast.upload.buffer": ("buffer", _buffer),
    "fs.s3a.buffer.dir": ("buffer_dir", _text),
    "fs.s3a.create.checksum.algorithm": ("checksum", _upper),
}
"""Hadoop's key: our name, and how its value is read."""


Encryption = Literal["AES256", "aws:kms", "aws:kms:dsse", "SSE-C"]


@dataclass(frozen=True, slots=True)
class S3Options:
    """The way to the store. Everything left out comes from the environment as for every AWS tool
    (``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ``AWS_REGION``, instance roles, …).

    Attributes:
        endpoint_url, region, profile: as in the AWS SDKs. What stands before the ``@`` of a URL is
            not shown, and does not travel.
        path_style: address buckets in the path; None: for endpoints that are not AWS's.
        anonymous: send unsigned requests.
        requester_pays: accept the costs of a requester-pays bucket.
        access_key, secret_key, session_token: secrets; better left to the environment. They do not
            travel: in another process the environment supplies credentials.
        encryption: server-side encryption of everything written.
        kms_key_id: with ``aws:kms`` and ``aws:kms:dsse``; None: the bucket's key.
        sse_customer_key: 32 bytes for ``SSE-C``. A secret: does not travel; other processes read it
            from ``MAGIC_COMMITTER_SSE_CUSTOMER_KEY`` (base64).
        storage_class, acl, tags: of data objects; control objects stay plain.
        connect_seconds_max: for a connection to one address of the store.
        read_seconds_max: for one try of a request as a whole: for its body to be sent, and then for
            its answer. Bytes that move earn time: what is faster than 16 KiB/s is not cut off.
        complete_seconds_max: the same for Complete, which may take minutes (S3 API). Some stores
            lose an upload whose client hangs up during Complete (docs/stores.md).
        retry_seconds_max: for how long a request is tried before the job is decided, its last try
            included; and how long a phase (setup, a task's commit, a job's commit up to its
            decision, an abort) puts up with a silent store. Cleaning up after a failure takes a
            quarter of it.
        decided_seconds_max: the same once a job is decided: then it is `CommitIncomplete`. An
            answer begins the time anew, so no work is cut short that goes on.
        retry_attempts_max: a second bound: how often a request is sent at most.
        connections_max: open connections of one process.
        user_agent: appended to the SDK's.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool | None = None
    anonymous: bool = False
    requester_pays: bool = False
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    encryption: Encryption | None = None
    kms_key_id: str | None = None
    sse_customer_key: bytes | None = field(default=None, repr=False)
    storage_class: str | None = None
    acl: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    connect_seconds_max: float = 10.0
    read_seconds_max: float = 30.0
    complete_seconds_max: float = 300.0
    retry_seconds_max: float = 60.0
    decided_seconds_max: float = 300.0
    retry_attempts_max: int = 100
    connections_max: int = 64
    user_agent: str = ""

    def __post_init__(self) -> None:
        if self.encryption is not None:
            _one_of("encryption", self.encryption, get_args(Encryption))
        if self.kms_key_id and self.encryption not in ("aws:kms", "aws:kms:dsse"):
            raise OptionError("kms_key_id needs encryption='aws:kms' or 'aws:kms:dsse'")
        if self.sse_customer_key is not None:
            if self.encryption != "SSE-C":
                raise OptionError("sse_customer_key needs encryption='SSE-C'")
            if len(self.sse_customer_key) != 32:
                raise OptionError("sse_customer_key has 32 bytes (AES-256)")
        if (self.access_key is None) != (self.secret_key is None):
            raise OptionError("access_key and secret_key go together")
        for name in SECONDS_FIELDS:
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} is above 0")
        _in_range("retry_attempts_max", self.retry_attempts_max, 1, 100)
        _in_range("connections_max", self.connections_max, 1, 4096)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.travelling().items())
        return f"S3Options({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Secrets stay behind (also for copy and for every library that pickles jobs to workers).
        return (_s3_options, (self.travelling(),))

    def travelling(self) -> dict[str, Any]:
        """Its fields without the secrets: what other processes are told."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        url = self.endpoint_url
        if url and "@" in url:
            scheme, slashes, rest = url.rpartition("://")
            values["endpoint_url"] = f"{scheme}{slashes}{rest.rpartition('@')[2]}"
        return {name: value for name, value in values.items() if name not in SECRET_FIELDS}


SECONDS_FIELDS = (
    "connect_seconds_max",
    "read_seconds_max",
    "complete_seconds_max",
    "retry_seconds_max",
    "decided_seconds_max",
)
SECRET_FIELDS = frozenset({"access_key", "secret_key", "session_token", "sse_customer_key"})


def _s3_options(values: dict[str, Any]) -> S3Options:
    return S3Options(**values)


def _in_range(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} is a whole number, not {value!r}")
    if not low <= value <= high:
        raise OptionError(f"{name}={value} is not between {low} and {high}")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(f"{name}={value!r} is none of {', '.join(allowed)}")
