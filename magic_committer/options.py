"""Options: two frozen values that can be serialised. `Options` says how the work is done,
`S3Options` how the store is reached. Components (store, pool, clock, progress) are arguments, never
options.

Every number has its unit in its name. Secrets are only in `S3Options`. Its ``repr`` and its pickle
leave them out, and nothing stored holds them: in another process the environment supplies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, TypedDict, TypeVar, get_args
from urllib.parse import urlsplit

from magic_committer.errors import OptionError, WrongType
from magic_committer.stores.base import (
    PART_BYTES_MAX,
    PART_BYTES_MIN,
    Attributes,
    ChecksumAlgorithm,
)
from magic_committer.stores.checksum import fastest

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
    "Transport",
]

MiB = 1024**2
COMMIT_THREADS_MAX = 1024
"""Requests in flight from one thread: 60 ms each, at 17,000 a second."""

Mode = Literal["append", "fail", "fail_partitions", "replace", "replace_partitions"]
"""The modes, in the library's own words."""
EXCLUDING: frozenset[Mode] = frozenset({"fail", "fail_partitions", "replace", "replace_partitions"})
"""Modes that exclude each other."""
BY_PARTITION: frozenset[Mode] = frozenset({"fail_partitions", "replace_partitions"})
FAILING: frozenset[Mode] = frozenset({"fail", "fail_partitions"})
REPLACING: frozenset[Mode] = frozenset({"replace", "replace_partitions"})
Accept = Literal["listing", "results"]
Track = Literal["s3", "memory"]
ConditionalWrites = Literal["on", "off"]
ChecksumOption = ChecksumAlgorithm | Literal["auto", "off"]
EtagForm = Literal["objects", "strings"]
Transport = Literal["auto", "fast", "boto3"]


@dataclass(frozen=True, slots=True)
class Options:
    """How the work is done. All fields have defaults, and few users need others.

    Attributes:
        block_bytes: bytes of one part: 8 MiB by default, 5 MiB to 5 GiB. It holds for the first
            1,000 parts of a file and doubles after every 1,000 parts. An open file needs
            ``block_bytes * (parts_in_flight + 2)`` bytes of memory at most.
        parts_in_flight: parts of one file that are sent at once, at most: 3 by default, 1 to 64.
            Two while each is stored within 12 ms: a third would make nothing faster there.
        uniform_parts: True: all parts of a file have the same size (Cloudflare R2 wants this). A
            file then has at most ``10,000 * block_bytes`` bytes. False (default): parts grow.
        buffer_bytes_max: bytes of memory for the blocks of all open files of the process: 256 MiB
            by default. Blocks beyond this limit wait on disk; 0: all do.
        buffer_dir: directory for blocks on disk and for the local files of tasks; None (default):
            the system's temporary directory.
        local_bytes_max: bytes that the local files of one attempt (`Task.directory`,
            `Task.local_file`) may have together, 0 or more. None (default): as many as fit on the
            disk.
        checksum: algorithm for every part and, for the CRCs, for the whole object: ``"CRC32"``,
            ``"CRC32C"``, ``"CRC64NVME"``, ``"SHA1"`` or ``"SHA256"``. ``"auto"`` (default): each
            process picks the one that it computes fastest, CRC32C with the package awscrt (or
            crc32c), CRC32 without it; files of one job may then have different ones, and what the
            store copies has none of ours. ``"off"`` for stores that refuse checksums. The job's
            record fixes this word for all processes.
        etag_form: how `.pending` and `.pendingset` hold ETags. ``"objects"`` (default): for Hadoop
            3.4.2 and later. ``"strings"``: for Hadoop up to 3.4.1; it has no room for checksums and
            needs ``checksum="off"`` (`refuse_lost_checksums`).
        commit_threads: requests in flight while a job is committed or swept: 64 by default, 1 to
            1024. A process has 64 threads; more than 64 need the fast transport, which sends many
            requests from one thread. Without it, starting, committing or aborting a job with more
            raises `OptionError`, and nothing is sent. While the store asks for fewer requests (503
            ``SlowDown``), fewer are in flight.
        conditional_writes: ``"on"`` (default): decide jobs by compare-and-swap. ``"off"``: for
            stores that have none; the job then has S3A's guarantees only, and a warning says so.
    """

    block_bytes: int = 8 * MiB
    parts_in_flight: int = 3
    uniform_parts: bool = False
    buffer_bytes_max: int = 256 * MiB
    buffer_dir: str | None = None
    local_bytes_max: int | None = None
    checksum: ChecksumOption = "auto"
    etag_form: EtagForm = "objects"
    commit_threads: int = 64
    conditional_writes: ConditionalWrites = "on"

    def __post_init__(self) -> None:
        _typed(self, str, "text", "buffer_dir")
        _typed(self, bool, "True or False", "uniform_parts")
        _in_range("block_bytes", self.block_bytes, PART_BYTES_MIN, PART_BYTES_MAX)
        _in_range("parts_in_flight", self.parts_in_flight, 1, 64)
        _in_range("buffer_bytes_max", self.buffer_bytes_max, 0, 2**50)
        _in_range("commit_threads", self.commit_threads, 1, COMMIT_THREADS_MAX)
        if self.local_bytes_max is not None:
            _in_range("local_bytes_max", self.local_bytes_max, 0, 2**63)
        _one_of("checksum", self.checksum, (*get_args(ChecksumAlgorithm), "auto", "off"))
        _one_of("etag_form", self.etag_form, get_args(EtagForm))
        _one_of("conditional_writes", self.conditional_writes, get_args(ConditionalWrites))

    @property
    def checksum_algorithm(self) -> ChecksumAlgorithm | None:
        """The checksum algorithm of uploads that this process creates; None for ``"off"``."""
        if self.checksum == "auto":
            return fastest()
        return None if self.checksum == "off" else self.checksum


def refuse_lost_checksums(
    etag_form: EtagForm, checksum: ChecksumOption, *, hadoop_commits: bool = False
) -> None:
    """Refuse options that give an upload checksums but leave them out of its `.pending`. A store
    that wants them in Complete (AWS, versitygw) would refuse that upload for ever. Pure.
    ``hadoop_commits``: the upload is left for Hadoop's committer, which does not know CRC64NVME
    (run against 3.5.0)."""
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


Encryption = Literal["AES256", "aws:kms", "aws:kms:dsse", "SSE-C"]


@dataclass(frozen=True, slots=True)
class S3Options:
    """How the store is reached. The environment supplies every field that is left out, as for every
    AWS tool (``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ``AWS_REGION``, instance roles, …).

    "Does not travel" means: a pickle and `Job.to_dict` leave the value out, and the environment of
    the other process supplies it.

    Attributes:
        endpoint_url, region, profile: as in the AWS SDKs; None (default): as the environment says.
            The part of a URL before its ``@`` is not shown and does not travel.
        path_style: True: put the bucket into the path. False: into the host name. None (default):
            into the path for all endpoints but AWS's.
        anonymous: True: send unsigned requests. False is the default.
        requester_pays: True: accept the costs of a requester-pays bucket. False is the default.
        access_key, secret_key, session_token: secrets; None (default): as the environment says,
            which is better. They do not travel.
        encryption: server-side encryption of everything that is written; None (default): as the
            bucket says.
        kms_key_id: the key for ``aws:kms`` and ``aws:kms:dsse``; None (default): the bucket's key.
        sse_customer_key: 32 bytes for ``SSE-C``; None by default. A secret: it does not travel.
            Other processes read it from ``MAGIC_COMMITTER_SSE_CUSTOMER_KEY`` (base64).
        storage_class, acl, tags: for data objects; control objects have none of them. Default:
            none. Tags are pairs: ``(("team", "data"),)``.
        connect_seconds_max: seconds for a connection to one address of the store: 5 by default.
        read_seconds_max: seconds for one try of a request: to send its body, and then to get its
            answer. 30 by default. Bytes that move add time: a transfer faster than 16 KiB/s is not
            cut off.
        complete_seconds_max: the same for Complete, and for a part that the store copies: 300
            seconds by default, because Complete may take minutes (S3 API). Some stores lose an
            upload whose client hangs up during Complete (docs/stores.md).
        retry_seconds_max: seconds for all tries of one request before the job is decided, with the
            last try: 60 by default. Also how long one phase waits for a silent store; the phases
            are setup, a task's commit, a job's commit up to its decision, and an abort. Cleaning up
            after a failure has a quarter of it. A store that has not answered yet in this process,
            and where nobody listens, has 5 seconds (docs/limits.md).
        decided_seconds_max: the same after the job is decided: 300 seconds by default. After that
            time `CommitIncomplete` is raised. Every answer of the store starts the time again, so
            work that makes progress is not cut short.
        retry_attempts_max: how often one request is sent at most: 100 by default, 1 to 100. A
            second limit, beside the seconds.
        connections_max: open connections of one process: 64 by default, 1 to 4096. While a job is
            committed there are as many as ``commit_threads`` besides.
        user_agent: text that is appended to ours, and to the SDK's; "" by default.
        transport: what sends the requests. ``"auto"`` (default): the library itself, where the
            set-up is plain, otherwise boto3, which `doctor` and the log explain (docs/stores.md).
            ``"boto3"``: always boto3. ``"fast"``: the library itself, and an `OptionError` where
            that cannot be.
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
    connect_seconds_max: float = 5.0
    read_seconds_max: float = 30.0
    complete_seconds_max: float = 300.0
    retry_seconds_max: float = 60.0
    decided_seconds_max: float = 300.0
    retry_attempts_max: int = 100
    connections_max: int = 64
    user_agent: str = ""
    transport: Transport = "auto"

    def __post_init__(self) -> None:
        _typed(self, str, "text", *_TEXTS)
        _typed(self, bool, "True or False", "path_style", "anonymous", "requester_pays")
        if self.endpoint_url and not _is_endpoint(self.endpoint_url):
            raise OptionError(
                "the endpoint is no http:// or https:// URL of a host",
                hint="Write it as 'https://s3.example.org:9000'",
            )
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
        _one_of("transport", self.transport, get_args(Transport))
        _typed(self, tuple, "pairs, such as (('team', 'data'),)", "tags")
        for pair in self.tags:
            if not isinstance(pair, tuple) or [*map(type, pair)] != [str, str]:
                raise OptionError(f"tags are pairs of texts, and {pair!r:.80} is none")
        for name in SECONDS_FIELDS:
            seconds = getattr(self, name)
            if not isinstance(seconds, int | float) or not seconds > 0:
                raise OptionError(f"{name} is a number above 0, not {seconds!r}")
        _in_range("retry_attempts_max", self.retry_attempts_max, 1, 100)
        _in_range("connections_max", self.connections_max, 1, 4096)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.travelling().items())
        return f"S3Options({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The pickle leaves secrets out (also for copy and for every library that pickles jobs to
        # workers).
        return partial(S3Options, **self.travelling()), ()

    def travelling(self) -> dict[str, Any]:
        """The fields without the secrets: what other processes get."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        url = self.endpoint_url
        if url and "@" in url:
            scheme, slashes, rest = url.rpartition("://")
            values["endpoint_url"] = f"{scheme}{slashes}{rest.rpartition('@')[2]}"
        return {name: value for name, value in values.items() if name not in SECRET_FIELDS}


class S3Place(TypedDict, total=False):
    """Keywords of the calls that accept ``s3``; they take its place."""

    endpoint_url: str | None
    region: str | None
    profile: str | None


SECONDS_FIELDS = (
    "connect_seconds_max",
    "read_seconds_max",
    "complete_seconds_max",
    "retry_seconds_max",
    "decided_seconds_max",
)
_TEXTS = (
    "endpoint_url", "region", "profile", "access_key", "secret_key", "session_token", "kms_key_id",
    "storage_class", "acl", "user_agent",
)  # fmt: skip
SECRET_FIELDS = frozenset({"access_key", "secret_key", "session_token", "sse_customer_key"})


def _typed(of: object, kind: type, words: str, *names: str) -> None:
    """Refuse values of other types; None is one that was left out. They may be secrets, and are not
    shown."""
    for name in names:
        value = getattr(of, name)
        if value is not None and not isinstance(value, kind):
            raise OptionError(f"{name} is {words}, not {type(value).__name__}")


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname)
        return named and isinstance(parts.port, int | None)
    except ValueError:  # a port that is no number, say
        return False


def _in_range(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} is a whole number, not {value!r}")
    if not low <= value <= high:
        raise OptionError(f"{name}={value} is not between {low} and {high}")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(f"{name}={value!r} is none of {', '.join(allowed)}")


# The words for modes ------------------------------------------------------------------------------
#
# The words for modes, this library's and Spark's. All calls understand both, in any case.
#
# =====================  ===================================  ====================================
# this library           Spark                                where there is data
# =====================  ===================================  ====================================
# ``append``             ``append``                           writes beside it
# ``fail``               ``error``, ``errorifexists``         raises
# ``fail_partitions``                                         raises if it is in the same partitions
# ``replace``            ``overwrite``                        replaces all of it
# ``replace_partitions`` ``overwrite_partitions``             replaces the same partitions
#                        ``ignore``                           does nothing (Spark's calls only)
# =====================  ===================================  ====================================
#
# A record holds the library's word. `StartedJob.said_mode` keeps the caller's word, so that hints
# use the caller's words. Pure.


SparkMode = Literal["error", "errorifexists", "overwrite", "overwrite_partitions"]
"""Spark's words for the modes. Words that both vocabularies have are in `Mode`."""
IgnoreMode = Literal["ignore"]
"""Do nothing where there is data: for `magic_committer.spark` alone."""

IGNORE = "ignore"
_OF_SPARK: Mapping[str, Mode] = {
    "error": "fail",
    "errorifexists": "fail",
    "overwrite": "replace",
    "overwrite_partitions": "replace_partitions",
}
_MODES: Mapping[str, Mode] = {**_OF_SPARK, **{mode: mode for mode in get_args(Mode)}}
_TO_SPARK: Mapping[str, str] = {
    "fail": "error",
    "replace": "overwrite",
    "replace_partitions": "overwrite_partitions",
}


def mode_of(said: str, *, ignore: bool = False) -> Mode:
    """The mode that a caller's word means. ``ignore``: understand ``"ignore"`` too, as ``"fail"``:
    the caller then does nothing instead of raising. Raises OptionError: the word is not a mode, or
    it is ``"ignore"`` in a call that cannot ignore. The hint names the nearest word, in the
    caller's vocabulary."""
    if not isinstance(said, str):
        raise WrongType(
            f"mode is text, not {type(said).__name__}: {said!r:.80}",
            hint=f"Pass one of {', '.join(_known(ignore))}",
        )
    word = said.casefold()
    if word in _MODES:
        return _MODES[word]
    if word == IGNORE and ignore:
        return "fail"
    if word == IGNORE:
        raise OptionError(
            "mode='ignore' is for magic_committer.spark: it leaves the work undone where there is"
            " data, and this call cannot skip what you do with the job that it starts",
            hint="Pass mode='error', and pass over it: except magic_committer.DestinationExists",
        )
    import difflib  # late: it loads a lot, and few need it

    nearest = difflib.get_close_matches(word, _known(ignore), n=1)
    raise OptionError(
        f"mode={said!r} is unknown",
        hint=(f"Did you mean {nearest[0]!r}? " if nearest else "")
        + f"There are {', '.join(_known(ignore))}",
    )


def in_words_of(said: str, mode: Mode) -> str:
    """A mode, in the vocabulary of the caller's word ``said``. If both vocabularies have the word,
    or the caller said none (""), the library's word."""
    sparks = said.casefold() in _OF_SPARK or is_ignore(said)
    return _TO_SPARK.get(mode, mode) if sparks else mode


def in_both(mode: Mode) -> str:
    """A mode for a message with unknown readers: ``'fail' (Spark: 'error')``."""
    return f"{mode!r} (Spark: {_TO_SPARK[mode]!r})" if mode in _TO_SPARK else repr(mode)


def is_ignore(said: str) -> bool:
    """Whether the caller's word is ``ignore``, in any case."""
    return said.casefold() == IGNORE


def _known(ignore: bool) -> list[str]:
    """All words. Spark's words come first in Spark's calls."""
    ours, sparks = list(get_args(Mode)), list(_OF_SPARK)
    return ["append", *sparks, IGNORE, *ours[1:]] if ignore else [*ours, *sparks]


# What callers pass, checked -----------------------------------------------------------------------


T = TypeVar("T")


SHOWN_CHARS_MAX = 80


"""How many characters of a wrong value a message shows."""


def _given(value: object, kind: type[T], example: str) -> T:
    """A value of this library that a caller passed; None means its defaults."""
    if value is None:
        return kind()
    if isinstance(value, kind):
        return value
    name = "s3" if kind is S3Options else kind.__name__.lower()
    if isinstance(value, Options | S3Options):
        other = "s3" if isinstance(value, S3Options) else "options"
        hint = f"That belongs into {other}=; here pass {name}=magic_committer."
    elif isinstance(value, Mapping) and value:
        example = ", ".join(f"{key}=…" for key in value)  # names only: values may be secrets
        hint = f"Write {name}=magic_committer."
    else:
        hint = f"Leave it out, or write {name}=magic_committer."
    raise WrongType(
        f"{name} is a {__package__}.{kind.__name__}, not {_kind(value)}",
        hint=f"{hint}{kind.__name__}({example})",
    )


def options_of(options: Options | None) -> Options:
    """The options to work with."""
    return _given(options, Options, "block_bytes=16 * 1024**2")


def attributes_of(attributes: Attributes | None) -> Attributes:
    """The attributes of a new object."""
    return _given(attributes, Attributes, "content_type='text/csv'")


def s3_of(s3: S3Options | None, place: S3Place | None = None) -> S3Options:
    """The connection to the store; None means: as the environment says. ``place``: the caller's
    other keywords, which Python has not checked."""
    for name in sorted(place or ()):
        if name not in S3Place.__annotations__:
            hint = "Check its spelling, here and in the reference"
            if name in S3Options.__dataclass_fields__:
                hint = f"Write s3=magic_committer.S3Options({name}=…)"
            raise WrongType(f"there is no argument {name!r}", hint=hint)
        if s3 is not None:
            raise OptionError(
                f"s3= and {name}= are given both",
                hint=f"Write s3=magic_committer.S3Options({name}=…, …), with all that s3 has",
            )
    if s3 is None and place:
        return S3Options(**place)
    return _given(s3, S3Options, "endpoint_url='https://…'")


def name_of(what: str, value: str | None) -> str | None:
    """An id or a name; None if the caller left it out."""
    if value is None or isinstance(value, str):
        return value
    raise WrongType(f"{what} is text, not {shown(value)}", hint=f"Pass {what}={str(value)!r}")


def shown(value: object) -> str:
    """Show a wrong value in a message: its type, and as much of it as fits."""
    if isinstance(value, Options | S3Options):
        return _kind(value)
    text = repr(value)
    cut = text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
    return f"{type(value).__name__}: {cut}"


def _kind(value: object) -> str:
    """The type of a value that is not shown, with its article."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__}" if value else f"an empty {type(value).__name__}"
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
