"""Where things are: S3 URLs, the magic directory and names, as pure functions of strings.

The layout below a destination ``D``, in Hadoop 3.4's shape so that its tools see our jobs::

    D/_SUCCESS
    D/__magic_job-<job>/_job.json                                   the job's record
    D/__magic_job-<job>/_plan-<nonce>.json                          one for each try
    D/__magic_job-<job>/_alive.json                                 a long job's sign of life
    D/__magic_job-<job>/job-<job>/00/_<attempt>.pendingset          one for each committed attempt
    D/__magic_job-<job>/job-<job>/00/tasks/<attempt>/__base/<name>  marker; + ``.pending``
    D/__magic_stream/_<query>.json                                  a streaming query's ledger

On a file system, a job whose tasks' files wait at the destination has Hadoop's other layout beside
that, with the job's UUID, so that Hadoop's Manifest Committer can join it::

    D/_temporary/manifest_<uuid>/00/tasks/<attempt>/<name>          a file of a task
    D/_temporary/manifest_<uuid>/00/manifests/_<attempt>-manifest.json

Invariants:

* The last element of every control key begins with ``_``, as readers that go by the last element
  (polars, Dask) skip no directory. Only a ``.pending`` and its marker keep Hadoop's names, which
  its task committer looks for; Hadoop loads a set by its suffix alone.
* Every existing `Destination`, `JobPaths` or `MagicPath` is legal. The rules are checked when it is
  made. Every key that it gives, and every control key made of it, fits into S3's 1,024 bytes.
  Nobody checks twice.
* Nothing is decoded and nothing is normalised. A key is what was written. What Hadoop would
  silently turn into another key (``a//b``, ``a/./b``, ``a/../b``, a trailing ``/``) is refused.

Stricter than Hadoop (3.5.0's ``MagicCommitPaths``), each time because data would be lost there:

* files that end in ``.pending`` or ``.pendingset``: the clean-up destroys them;
* a magic element below another: the file would be beside, or in, a directory that is swept;
* a file ``_SUCCESS``, or one below it: the job's commit overwrites it, or cannot write it;
* control characters: listings are XML and cannot carry them;
* `MagicPath.attempt` is read from its place in the layout; Hadoop reads the fourth element.

Wider than Hadoop 3.4: the element ``__magic`` of Hadoop 3.3 is magic too.
``tests/unit/test_paths.py`` compares all of this with the real Hadoop's answers, row by row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import PurePath
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, unquote

from magic_committer.errors import PathError, WrongType
from magic_committer.errors.messages import RELATIVE_NAME, S3_URL, TOKEN_OUT, swept_there
from magic_committer.stores.base import KEY_BYTES_MAX
from magic_committer.stores.urls import is_tree, is_tree_url, tree_url, url_of

# Names (org.apache.hadoop.fs.s3a.commit.CommitConstants, Hadoop 3.5.0)
MAGIC = "__magic"
"""The magic directory of Hadoop up to 3.3, shared by all jobs."""
MAGIC_JOB_PREFIX = "__magic_job-"
MAGIC_STREAM = "__magic_stream"
"""Our own name: the directory of streaming ledgers. It is never written through a magic path."""
BASE = "__base"
JOB_PREFIX = "job-"
TASKS = "tasks"
PENDING_SUFFIX = ".pending"
PENDINGSET_SUFFIX = ".pendingset"
SUCCESS = "_SUCCESS"
TEMPORARY = "_temporary"
"""Committers work in this directory on file systems; Hadoop's readers skip it."""
MANIFEST_JOB_PREFIX = "manifest_"
MANIFEST_SUFFIX = "-manifest.json"
"""Hadoop loads every file of the manifests' directory that ends so."""
SET_SUFFIXES = (PENDINGSET_SUFFIX, MANIFEST_SUFFIX)
"""What the key of a set ends with: all that an attempt has committed."""
SAVED_SUFFIXES = (PENDING_SUFFIX, *SET_SUFFIXES)
"""What the key of an object that names uploads ends with."""
WAITING_COMMITTERS = frozenset(("manifest", "v1", "v2"))
"""Committers whose tasks' files wait at the destination, in `TEMPORARY`."""
RECORD = "_job.json"
ALIVE = "_alive.json"
PLAN_PREFIX = "_plan-"
HIDDEN = "_"
"""What the name of a set or a ledger begins with."""
JSON = ".json"

# Limits
CONTROL_BYTES_MIN = 144
"""How many of `KEY_BYTES_MAX` bytes a destination must leave free: for the `.pending` of a file
with a name of some characters and ids of 32 digits."""
ELEMENT_BYTES_MAX = 255
"""Bytes of one element of a path on a file system (NAME_MAX)."""
BUCKET_CHARS_MAX = 255
PLAIN_CHARS_MAX = 250
ID_CHARS_MAX = 128
SHOWN_CHARS_MAX = 200
"""How many characters of a bad path an error message repeats."""

T = TypeVar("T")
Layout = Literal["job", "plain"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)\Z", re.DOTALL)
_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_BUCKET = re.compile(rf"[A-Za-z0-9._-]{{1,{BUCKET_CHARS_MAX}}}\Z")
_ID = re.compile(rf"[A-Za-z0-9._=-]{{1,{ID_CHARS_MAX}}}\Z")
_UUID = re.compile(r"[0-9a-f]{32}\Z")
# Job, application attempt (missing up to Hadoop 3.3.4) and task attempt, where a layout names them.
_TREE = re.compile(rf"{JOB_PREFIX}([^/]+)(?:/([0-9]+)(?=/|\Z))?(?:/{TASKS}/([^/]+)/{BASE}/.)?")
_WAITS = re.compile(rf"{TEMPORARY}/{MANIFEST_JOB_PREFIX}([0-9a-f]{{32}})/")
_WAITING = re.compile(rf"{_WAITS.pattern}00/{TASKS}/[^/]+/")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*(?:/[A-Za-z0-9][A-Za-z0-9._=-]*)*\Z")
"""Elements of which none is a committer's own."""
COMMITTERS_OWN = (PENDING_SUFFIX, PENDINGSET_SUFFIX)
_TOKEN = re.compile(r"(?:^|[-_.])mcj([0-9a-f]{32})(?=[-_.]|\Z)")
_SLASHES_EATEN = re.compile(r"(s3[an]?):/+", re.IGNORECASE)
# Control characters, lone surrogates and the two characters that XML cannot hold.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Everything but the characters that java.net.URI keeps in a path.
_NOT_RAW_IN_JAVA = re.compile(
    r"[^A-Za-z0-9_.!~*'():@&=+$,;/\u00a0-\U0010ffff-]|"
    "[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
)


# URLs and keys ------------------------------------------------------------------------------------


class once(Generic[T]):
    """A property that is computed once. That of functools holds a lock meanwhile in Python 3.11,
    which a fork may leave locked for the child."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: object = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


@dataclass(frozen=True, slots=True)
class Location:
    """A bucket and a key; the key may be "" (the bucket itself) or end in "/"."""

    bucket: str
    key: str


def url_text(url: object) -> str:
    """A URL that a caller passed; it must be text. Raises WrongType: it is not text. Most often it
    is a `Path`, which has turned two slashes into one."""
    if isinstance(url, str):
        return url
    kind = type(url).__name__
    if not isinstance(url, PathLike):
        raise WrongType(f"a URL is text, not {kind}", hint=S3_URL)
    message, text = f"a URL is text, not a {kind}", str(url)
    if "@" in text:  # the part before it may be a secret
        raise WrongType(message, hint=S3_URL)
    if isinstance(url, PurePath):
        text = url.as_posix()
        message += f": {text!r}: it makes one slash of two"
    right = _SLASHES_EATEN.sub(r"\1://", text)
    same = isinstance(url, PurePath) and right == text
    raise WrongType(message, hint=S3_URL if same else f"Pass {right!r}")


def is_s3_url(url: str) -> bool:
    """Whether a URL is one that `parse_url` reads, by its scheme."""
    match = _URL.match(url)
    return match is not None and match[1].lower() in _SCHEMES


def parse_url(url: str) -> Location:
    """Read an ``s3://``, ``s3a://`` or ``s3n://`` URL. Nothing in it is percent-decoded. Raises
    PathError: another scheme, no bucket, or characters that are not allowed."""
    match = _URL.match(url_text(url))
    if match is None or match[1].lower() not in _SCHEMES:
        scheme = f"scheme {match[1]!r}" if match else "no scheme"
        here = S3_URL
        if match is None and url.strip("/") and "@" not in url:
            here += f", or pathlib.Path({url!r}).absolute().as_uri()"
            if url.startswith("/"):
                here = f"Write 'file://{quote(url)}', or 's3://bucket/path'"
        given = "" if "@" in url else f"{shown(url)} is "  # what is before an "@" may be a secret
        raise PathError(f"{given}not an S3 URL: {scheme}", hint=here)
    bucket, key = match[2], match[3]
    if not _BUCKET.match(bucket):
        # The URL is not repeated: the part before an "@" may be a secret.
        raise PathError(
            "the URL names no bucket that S3 could have",
            hint=f"{S3_URL}; credentials and hosts belong into the configuration",
        )
    check_characters(key)
    return Location(bucket, key)


def split_key(key: str) -> list[str]:
    """The elements of a key or relative name; none for "". Raises PathError: an element is empty,
    "." or "..", or has control characters."""
    check_characters(key)
    elements = key.split("/") if key else []
    for element in elements:
        if not element:
            raise PathError(
                f"{shown(key)} has an empty element",
                hint="To S3 'a//b' and 'a/b' are two keys, to Hadoop one: write one slash",
            )
        if element in (".", ".."):
            raise PathError(
                f"{shown(key)} has the element {element!r}",
                hint="In S3 it is a name like any other, in Hadoop it moves: write the path out",
            )
    return elements


def check_characters(key: str) -> None:
    """Refuse characters that S3's listings cannot carry (`PathError`)."""
    found = _UNSAFE.search(key)
    if found:
        raise PathError(
            f"{shown(key)} has the character {found[0]!r}",
            hint="S3's listings cannot carry control characters or halves of characters",
        )


def shown(path: str) -> str:
    """A path for an error message: in quotes and not too long."""
    return repr(path if len(path) <= SHOWN_CHARS_MAX else path[:SHOWN_CHARS_MAX] + "…")


def _check_fits(key: str) -> str:
    size = len(key.encode())
    if size > KEY_BYTES_MAX:
        raise PathError(
            f"the key {shown(key)} has {size} bytes",
            hint=f"S3 accepts at most {KEY_BYTES_MAX} bytes, for control objects too: shorten it",
        )
    return key


def java_uri(bucket: str, key: str) -> str:
    """The `uri` field as Java's ``Path.toUri().toString()`` writes it for an s3a path; the URL of
    a file.

    It percent-encodes the ASCII characters that ``java.net.URI`` does not allow in a path (blank,
    ``%``, ``?``, ``#``, brackets, …), and white space beyond ASCII. Other non-ASCII characters and
    ``+``, ``&``, ``=`` stay (run against Hadoop 3.5.0).
    """
    if is_tree(bucket):
        return url_of(bucket, key)
    return f"s3a://{bucket}/{_NOT_RAW_IN_JAVA.sub(lambda found: quote(found[0]), key)}"


# Lists of elements, as in Hadoop's MagicCommitPaths -----------------------------------------------


def is_magic_element(element: str) -> bool:
    """Whether a directory with this name is a magic directory."""
    return element == MAGIC or element.startswith(MAGIC_JOB_PREFIX)


def is_control_element(element: str) -> bool:
    """Whether a directory with this name belongs to committers and never to data."""
    return element.startswith(MAGIC_JOB_PREFIX) or element in (MAGIC, MAGIC_STREAM)


def is_magic_path(elements: Sequence[str]) -> bool:
    """Whether an element is a magic directory."""
    return any(map(is_magic_element, elements))


def magic_element_index(elements: Sequence[str]) -> int:
    """The index of the first magic directory. Raises PathError: there is none."""
    for index, element in enumerate(elements):
        if is_magic_element(element):
            return index
    raise PathError(
        f"no element {MAGIC_JOB_PREFIX}… or {MAGIC} in {shown('/'.join(elements))}",
        hint=f"A magic path is D/{MAGIC_JOB_PREFIX}<job>/…/{BASE}/<name>",
    )


def final_destination(elements: Sequence[str]) -> list[str]:
    """Where a file that is written to a magic path becomes visible.

    Below ``__base`` directories are kept. Without ``__base`` only the last element is kept
    (flattening). A path that is not magic is its own destination. Raises PathError: there is
    nothing below the magic directory, or below ``__base``."""
    if not is_magic_path(elements):
        return list(elements)
    index = magic_element_index(elements)
    children = elements[index + 1 :]
    kept = children[children.index(BASE) + 1 :] if BASE in children else children[-1:]
    if not kept:
        below = BASE if children else elements[index]
        raise PathError(f"no file named below {below}", hint=f"Write …/{below}/<name>")
    return [*elements[:index], *kept]


# Names and ids ------------------------------------------------------------------------------------


def name_text(name: object) -> str:
    """The name of a file that a caller passed: text, or a `Path`."""
    if isinstance(name, str | PurePath):
        return name if isinstance(name, str) else name.as_posix()
    raise WrongType(
        f"a file's name is text or a Path, not {type(name).__name__}", hint=RELATIVE_NAME
    )


def is_plain_name(name: str) -> bool:
    """Whether a file's name is one that `check_name` has nothing against; most are."""
    return "mcj" not in name and _is_harmless(name)


def _is_harmless(name: str) -> bool:
    """`is_plain_name`, whatever token it may carry."""
    short = len(name) <= PLAIN_CHARS_MAX and _PLAIN.match(name) is not None
    return short and not name.endswith(COMMITTERS_OWN)


def check_name(name: str, *, uuid: str = "") -> None:
    """Check a file's name, relative to the destination, as a user gives it to ``job.open``.
    ``uuid``: the UUID of the job that publishes the file; "": not known. If it is given, a name
    with another job's token is refused: the clean-up of that job would abort the upload. Raises
    PathError: the message says which rule the name breaks, and why."""
    if not isinstance(name, str) or not name:
        raise PathError("a file needs a name", hint=RELATIVE_NAME)
    if _is_harmless(name) and (not uuid or "mcj" not in name):
        return
    if name.startswith("/") or _URL.match(name):
        raise PathError(f"{shown(name)} is not relative", hint=RELATIVE_NAME)
    for element in split_key(name):
        if is_control_element(element):
            raise PathError(
                f"{shown(name)} has the element {element!r}, a committer's own directory",
                hint=swept_there("name"),
            )
    if name.endswith(COMMITTERS_OWN):
        raise PathError(
            f"{shown(name)} ends like a committer's own file",
            hint=f"{PENDING_SUFFIX} and {PENDINGSET_SUFFIX} files are taken for unfinished uploads"
            " and removed: choose another suffix",
        )
    if name.partition("/")[0] == SUCCESS:
        raise PathError(
            f"{shown(name)} is where the committer's own marker is to be",
            hint="The job's commit writes it: choose another name",
        )
    owner = uuid_in_name(name) if uuid else None
    if owner not in (None, uuid):
        raise PathError(
            f"{shown(name)} carries the token of the job {owner}",
            hint=TOKEN_OUT,
        )


def check_id(kind: str, value: str) -> str:
    """Check an id that becomes an element of keys. Errors call it ``kind``. Raises PathError: it is
    not 1 to `ID_CHARS_MAX` of ``A-Z a-z 0-9 . _ = -``, or an element with a special meaning."""
    if not isinstance(value, str) or not _ID.match(value):
        raise PathError(
            f"{kind} {shown(str(value))} cannot be part of a key",
            hint=f"Use 1 to {ID_CHARS_MAX} of the characters A-Z a-z 0-9 . _ = -",
        )
    special = value.startswith((".", "_"))  # most are not
    if special and (value in (".", "..", BASE) or is_control_element(value)):
        raise PathError(f"{kind} {value!r} has a meaning of its own in a path", hint="Use another")
    return value


def unique_name(name: str, uuid: str) -> str:
    """Put the job's token before the first dot of the last element: ``b-mcj<32 hex>.csv``.

    Leading dots do not count, so that a hidden file stays hidden. A name that already has this
    token stays as it is. Raises PathError: the name carries another job's token; or ``uuid`` is not
    32 lower-case hexadecimal digits."""
    if not _UUID.match(uuid):
        raise PathError(f"{shown(uuid)} is no job UUID", hint="It has 32 hexadecimal digits")
    directory, slash, last = name.rpartition("/")
    owners = set(_TOKEN.findall(last))
    if owners == {uuid}:
        return name
    if owners:
        raise PathError(f"{shown(name)} carries the token of another job", hint=TOKEN_OUT)
    stem_start = len(last) - len(last.lstrip("."))
    dot = last.find(".", stem_start)
    end = len(last) if dot < 0 else dot
    return f"{directory}{slash}{last[:end]}-mcj{uuid}{last[end:]}"


def has_token(name: str) -> bool:
    """Whether the last element of a name carries a job's token."""
    return _TOKEN.search(name.rpartition("/")[2]) is not None


def without_token(name: str) -> str:
    """A name whose tokens are plain digits: it names no job, and is still like no other name."""
    directory, slash, last = name.rpartition("/")
    return f"{directory}{slash}{_TOKEN.sub(lambda found: found[0].replace('mcj', '', 1), last)}"


def is_long(key: str) -> bool:
    """Whether an element of a key is longer than the name of a file may be. Pure."""
    bytes_max = len(key) if key.isascii() else len(key) * 4  # at most 4 bytes each in UTF-8
    if bytes_max <= ELEMENT_BYTES_MAX:
        return False
    return any(len(element.encode()) > ELEMENT_BYTES_MAX for element in key.split("/"))


def uuid_in_name(key: str) -> str | None:
    """The UUID of the job that owns a key, by the key's last element; None if it names no owner.

    The UUID is a delimited field with our own prefix and is compared as a whole, so Spark's UUIDs
    never match. A name with the tokens of two jobs has no owner (protocol.md, "Whose upload is
    it?").
    """
    owners = set(_TOKEN.findall(key.rpartition("/")[2]))
    return owners.pop() if len(owners) == 1 else None


def waiting_id(path: str, etag: str = "") -> str:
    """The upload id of a file that waits in a job's directory of a file system: its path, relative
    to the destination, and its ETag; "": not known. No other id of an upload looks so."""
    return f"{path}#{etag}"


def waiting_path(key: str, upload_id: str) -> tuple[str, str] | None:
    """Path and ETag of a waiting file, by the id of its upload; None: it is another upload. A file
    waits for one key only: the one that its path ends with."""
    path, mark, etag = upload_id.rpartition("#")
    home = _WAITING.match(path)
    return (path, etag) if mark and home and path[home.end() :] == key else None


def owner_of(key: str, upload_id: str) -> str | None:
    """The UUID of the job that owns an upload, by its id or its key; None if neither names
    one. The id of a waiting file is a path; any other path in the job's directory does as well."""
    home = _WAITS.match(upload_id)
    return home[1] if home else uuid_in_name(key)


def set_name(key: str) -> str:
    """What a set is named after: Hadoop's for its task."""
    name = key.rpartition("/")[2]
    return name.removesuffix(PENDINGSET_SUFFIX).removesuffix(MANIFEST_SUFFIX)


def is_hidden(relative: str) -> bool:
    """Whether an element starts with ``_`` or ``.``: readers of tables ignore such files. An empty
    element (``a//b``, or after a prefix's last slash) is not hidden."""
    return any(element.startswith(("_", ".")) for element in relative.split("/"))


# Values -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Destination:
    """The directory that a job writes to. ``prefix`` ends in "/", or is "" for a whole bucket.

    A directory on a file system is a bucket of its own: ``bucket`` is its URL, without the last
    slash, and ``prefix`` is "". Raises PathError: the prefix is, or is below, a committer's
    directory; it has an empty, ``.`` or ``..`` element or control characters; or it leaves no room
    for keys below it."""

    bucket: str
    prefix: str

    def __post_init__(self) -> None:
        if not _BUCKET.match(self.bucket) and not is_tree(self.bucket):
            raise PathError(f"{shown(self.bucket)} is no bucket's name")
        if not self.prefix:
            return
        if not self.prefix.endswith("/") or self.prefix == "/":
            raise PathError(f"the prefix {shown(self.prefix)} is no path that ends in '/'")
        _refuse_control(self.prefix, split_key(self.prefix[:-1]))
        size = len(self.prefix.encode())
        if size > KEY_BYTES_MAX - CONTROL_BYTES_MIN:
            raise PathError(
                f"the destination {shown(self.prefix)} has {size} bytes",
                hint=f"At most {KEY_BYTES_MAX - CONTROL_BYTES_MIN} leave room for the keys below",
            )

    @classmethod
    def parse(cls, url: str) -> Destination:
        """Read a URL. With or without a trailing "/" it is the same destination."""
        return _destination(url_text(url))

    @once
    def url(self) -> str:
        return url_of(self.bucket, self.prefix)

    @once
    def alone(self) -> Destination:
        """This destination as its own jobs have it: on a file system it is a bucket of its own."""
        return Destination.parse(self.url) if is_tree(self.bucket) else self

    @once
    def success_key(self) -> str:
        return f"{self.prefix}{SUCCESS}"

    def ledger(self, query: str) -> str:
        """The key of a query's ledger."""
        check_id("query id", query)
        return _check_fits(f"{self.prefix}{MAGIC_STREAM}/{HIDDEN}{query}{JSON}")

    @once
    def jobs_prefix(self) -> str:
        """The beginning of the directories of all jobs under this destination."""
        return f"{self.prefix}{MAGIC_JOB_PREFIX}"

    @once
    def older_jobs_prefix(self) -> str:
        """The same for Hadoop up to 3.3."""
        return f"{self.prefix}{MAGIC}/{JOB_PREFIX}"

    def key(self, name: str) -> str:
        """The key of a file with this name."""
        check_name(name)
        return _check_fits(f"{self.prefix}{name}")

    def contains(self, key: str) -> bool:
        """Whether a key is below: ``dataset1/`` never contains ``dataset10/x``, nor itself."""
        return len(key) > len(self.prefix) and key.startswith(self.prefix)

    def relative(self, key: str) -> str:
        """The name of a key below this destination. Raises PathError: the key is not below it."""
        if not self.contains(key):
            raise PathError(f"the key {shown(key)} is not below {self.url}")
        return key[len(self.prefix) :]


def _refuse_control(place: str, elements: Iterable[str]) -> None:
    for element in filter(is_control_element, elements):
        raise PathError(
            f"{shown(place)} lies in a committer's own directory {element!r}",
            hint=swept_there("destination"),
        )


@lru_cache(maxsize=1024)  # a job asks for its own again and again
def _destination(url: str) -> Destination:
    if is_tree_url(url):
        whole = tree_url(url)
        _refuse_control(url, unquote(whole).split("/"))
        return Destination(whole.removesuffix("/"), "")
    location = parse_url(url)
    path = location.key.removesuffix("/")
    return Destination(location.bucket, f"{path}/" if location.key else "")


@dataclass(frozen=True)
class JobPaths:
    """The keys of one job's control objects. All strings are keys; directories end in "/".

    ``adopted`` is for an adopted Hadoop job: where its pendingsets are below the destination,
    ``__magic_job-<id>/job-<id>/NN/`` or, up to 3.3, ``__magic/job-<id>/[NN/]``. A wrong id or
    directory raises `PathError`, and so does a key that is too long. ``waits`` is the UUID of a
    job whose tasks' files wait at the destination (`WAITING_COMMITTERS`).
    """

    dest: Destination
    job_id: str
    adopted: str = ""
    waits: str = ""

    def __post_init__(self) -> None:
        check_id("job id", self.job_id)
        job = re.escape(f"{JOB_PREFIX}{self.job_id}")
        if self.adopted and not re.fullmatch(rf"{MAGIC}(_{job})?/{job}/([0-9]+/)?", self.adopted):
            raise PathError(f"{shown(self.adopted)} is no directory of job {self.job_id!r}")

    @once
    def directory(self) -> str:
        return f"{self.dest.jobs_prefix}{self.job_id}/"

    @once
    def record(self) -> str:
        return _check_fits(f"{self.directory}{RECORD}")

    def plan(self, nonce: str) -> str:
        return _check_fits(f"{self.directory}{PLAN_PREFIX}{check_id('nonce', nonce)}{JSON}")

    @once
    def alive(self) -> str:
        return _check_fits(f"{self.directory}{ALIVE}")

    @once
    def job_attempt(self) -> str:
        """The directory of the pendingsets."""
        if self.waits:
            return f"{self.tree}00/manifests/"
        hadoops = f"{self.dest.prefix}{self.adopted}"
        return hadoops if self.adopted else f"{self.directory}{JOB_PREFIX}{self.job_id}/00/"

    @once
    def tree(self) -> str:
        """The directory of everything that the tasks left: `directory`, or the job's directory of
        Hadoop 3.3, or that of its waiting files."""
        if self.waits:
            return f"{self.dest.prefix}{TEMPORARY}/{MANIFEST_JOB_PREFIX}{self.waits}/"
        older = self.adopted.startswith(f"{MAGIC}/")
        return f"{self.dest.older_jobs_prefix}{self.job_id}/" if older else self.directory

    @once
    def directories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.directory, self.tree)))

    @once
    def control_directories(self) -> tuple[str, ...]:
        """Where control objects are: without the directory of waiting files."""
        return (self.directory, self.job_attempt) if self.waits else self.directories

    @once
    def task_attempts(self) -> str:
        return f"{self.tree}00/{TASKS}/" if self.waits else f"{self.job_attempt}{TASKS}/"

    def pendingset(self, attempt: str) -> str:
        suffix = MANIFEST_SUFFIX if self.waits else PENDINGSET_SUFFIX
        name = f"{HIDDEN}{check_id('attempt', attempt)}{suffix}"
        return _check_fits(f"{self.job_attempt}{name}")

    def attempt_directory(self, attempt: str) -> str:
        return f"{self.task_attempts}{check_id('attempt', attempt)}/"

    def base(self, attempt: str) -> str:
        return f"{self.attempt_directory(attempt)}{BASE}/"

    def pending(self, attempt: str, name: str) -> str:
        """The key of what completes a file, whose name was checked (`check_name`)."""
        return _check_fits(f"{self.base(attempt)}{name}{PENDING_SUFFIX}")

    def uri(self, key: str) -> str:
        """The `uri` field for a key of this bucket; see `java_uri`."""
        return java_uri(self.dest.bucket, key)


def _is_id(value: str) -> bool:
    try:
        check_id("id", value)
    except PathError:
        return False
    return True


# Magic paths --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MagicPath:
    """A file under a magic directory, that becomes visible as ``name`` below ``dest``.

    ``layout``: ``"job"`` is ours: ``__magic_job-<id>/job-<id>/00/tasks/<attempt>/__base/<name>``.
    ``"plain"`` is every other form that Hadoop writes or accepts; none of our jobs lists it, and it
    may name no job and no attempt.
    """

    dest: Destination
    name: str
    key: str
    layout: Layout
    job_id: str | None = None
    attempt: str | None = None

    @property
    def final_key(self) -> str:
        return f"{self.dest.prefix}{self.name}"


def parse_magic_path(path: str) -> MagicPath:
    """Read the full URL of a file under a magic directory, in any layout of Hadoop 3.1 to 3.5.
    Raises PathError: it is not such a path, or data would be lost with it; see the module's
    head."""
    location = parse_url(path)
    elements = split_key(location.key)
    index = magic_element_index(elements)
    children = elements[index + 1 :]
    for element in children:
        if is_control_element(element):
            raise PathError(
                f"{shown(path)} has {element!r} below {elements[index]!r}",
                hint="A magic directory inside another is swept with it: use one of them",
            )
    name = "/".join(final_destination(elements)[index:])
    check_name(name)
    _check_fits(f"{location.key}{PENDING_SUFFIX}")
    dest = Destination(location.bucket, "".join(f"{element}/" for element in elements[:index]))
    named = _TREE.match("/".join(children))
    job_id, app_attempt, attempt = named.groups() if named else (None, None, None)
    ours = (
        elements[index] == f"{MAGIC_JOB_PREFIX}{job_id}"
        and app_attempt == "00"
        and _is_id(job_id or "")
        and _is_id(attempt or "")
    )
    return MagicPath(dest, name, location.key, "job" if ours else "plain", job_id, attempt)
