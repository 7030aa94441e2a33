"""Where a job of renames keeps what: the layout of Hadoop's Manifest Committer, with our record.

::

    D/_temporary/_id_<id>.json                                 a given id: which job has it
                 ended_<uuid>_<nonce>/                        a job that is being deleted
                 manifest_<uuid>/_job-1.json ...               the record: one file for each version
                                 _plan-<nonce>.jsonl           what the decision names
                                 _alive.json                   a sign of life
                                 00/tasks/<attempt>/<name>    a file before it is published
                                 00/manifests/<task>-manifest.json
                                 00/trash/<nonce>/<mark>/<name>  a file that was taken away

All paths are relative to the destination D. Everything of a job is in a directory that has its UUID
as its name. So whoever comes late, with any call, can only meet what is left of that very job: a
given id that is used again is another directory. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from magic_committer.errors import PathError
from magic_committer.hadoop.paths import ALIVE, PLAN_PREFIX, check_id, check_name

TEMPORARY = "_temporary"
"""Every committer of renames works here, and Hadoop's readers skip it."""
JOB_PREFIX = "manifest_"
MANIFEST_SUFFIX = "-manifest.json"
"""Hadoop loads every file of the manifests' directory that ends so."""
RESULT_SUFFIX = "-result.json"
"""The manifest of one attempt, in a job that takes results: Hadoop does not load it."""
ENDED_PREFIX = "ended_"
SWEPT_PREFIX = "swept-"
ATTEMPT, TRASH = "00", "trash"
CLAIM_PREFIX = "_id_"
SPARE_SUFFIX = ".tmp"
"""What is beside its place for a moment: `LocalTree.create` names it so, too."""
_ID_BYTES = 32
TRASHED_BYTES = 2 * (_ID_BYTES + 1)
"""Bytes of ``<nonce>/<mark>/``."""
LONGEST_BYTES = sum(
    len(element) + 1
    for element in (
        TEMPORARY,
        f"{ENDED_PREFIX}{'u' * _ID_BYTES}_{'n' * _ID_BYTES}",
        f"{SWEPT_PREFIX}{'n' * _ID_BYTES}",
        TRASH,
    )
)
"""Bytes of the longest directory above them: a job that is swept and deleted."""
CLASSIC_BYTES = 16
"""Bytes that v1 has around the id of an attempt or a task: ``0/_temporary/<attempt>/``."""
ELEMENT_BYTES_MAX = 255
"""Bytes of a name between two slashes on local disks."""

_UUID = re.compile(r"[0-9a-f]{32}")
_RECORD = re.compile(r"_job-([1-9][0-9]{0,2})\.json")


@dataclass(frozen=True, slots=True)
class TreeJobPaths:
    """The paths of one job's control files.

    Attributes:
        uuid: the job's UUID: 32 hexadecimal digits.
    """

    uuid: str

    def __post_init__(self) -> None:
        if not is_uuid(self.uuid):
            raise PathError(f"{self.uuid!r} is no job UUID", hint="It has 32 hexadecimal digits")

    @property
    def directory(self) -> str:
        return f"{TEMPORARY}/{JOB_PREFIX}{self.uuid}"

    def ended(self, nonce: str) -> str:
        """Where the directory goes before it is deleted, so that nobody writes into it any more."""
        return f"{TEMPORARY}/{ENDED_PREFIX}{self.uuid}_{nonce}"

    def record(self, version: int) -> str:
        return f"{self.directory}/_job-{version}.json"

    def plan(self, nonce: str) -> str:
        return f"{self.directory}/{PLAN_PREFIX}{nonce}.jsonl"

    def spare(self, nonce: str) -> str:
        """A file that is written before it is renamed into place. It goes with the tasks' files: a
        late rename finds nothing then."""
        return f"{self.job_attempt}/spare-{nonce}.tmp"

    @property
    def alive(self) -> str:
        return f"{self.directory}/{ALIVE}"

    @property
    def job_attempt(self) -> str:
        """The directory of everything that tasks write."""
        return f"{self.directory}/{ATTEMPT}"

    @property
    def tasks(self) -> str:
        return f"{self.job_attempt}/tasks"

    @property
    def manifests(self) -> str:
        return f"{self.job_attempt}/manifests"

    @property
    def trash(self) -> str:
        """The directory of files that are taken away: replaced, or published and undone."""
        return f"{self.job_attempt}/{TRASH}"

    def attempt(self, attempt: str) -> str:
        return f"{self.tasks}/{check_id('attempt', attempt)}"

    def manifest(self, task: str) -> str:
        return f"{self.manifests}/{check_id('task id', task)}{MANIFEST_SUFFIX}"

    def result(self, attempt: str) -> str:
        return f"{self.manifests}/{check_id('attempt', attempt)}{RESULT_SUFFIX}"


def is_uuid(text: str) -> bool:
    """Whether a text is a job's UUID as ids are drawn."""
    return _UUID.fullmatch(text) is not None


def claim_of(job_id: str) -> str:
    """The file that a given id is taken by."""
    return f"{TEMPORARY}/{CLAIM_PREFIX}{check_id('job id', job_id)}.json"


def uuid_of(name: str) -> str | None:
    """The UUID of the job whose directory has this name; None if it is none of ours."""
    uuid = name.removeprefix(JOB_PREFIX)
    return uuid if name.startswith(JOB_PREFIX) and is_uuid(uuid) else None


def version_of(name: str) -> int | None:
    """The version that a record's file holds, by its name; None for every other file."""
    found = _RECORD.fullmatch(name)
    return int(found[1]) if found else None


def check_tree_name(name: str, *, uuid: str = "") -> str:
    """Check a file's name, relative to the destination: `check_name`, and what a disk asks for.

    Raises:
        PathError: the message says which rule the name breaks.
    """
    check_name(name, uuid=uuid)
    elements = name.split("/")
    if elements[0] == TEMPORARY:
        raise PathError(
            f"{name!r} lies in {TEMPORARY}, where committers work",
            hint="What lies in there is deleted when a job ends: choose another name",
        )
    for element in elements:
        if element in ("", ".", ".."):
            raise PathError(f"{name!r} has an element {element!r}", hint="Write 'a/b.csv'")
        if len(element.encode()) > ELEMENT_BYTES_MAX:
            raise PathError(
                f"{element[:40]!r}… has {len(element.encode())} bytes",
                hint=f"A name between two slashes has at most {ELEMENT_BYTES_MAX} bytes",
            )
    return name


def check_path_fits(name: str, bytes_max: int, attempt: str = "") -> None:
    """See that a file can be moved wherever a job may have to move it: into its trash, and with the
    job's directory when that is swept. A job that is decided could not be finished else.

    Args:
        name: the file's name, relative to the destination.
        bytes_max: `TreePromises.path_bytes_max`.
        attempt: the name of the attempt that writes it, or the task's id if that is longer; "":
            the file is at the destination.

    Raises:
        PathError: it is too long.
    """
    own = len(name.encode(errors="surrogateescape"))  # old data may have any name
    size = LONGEST_BYTES + max(TRASHED_BYTES, len(attempt) + CLASSIC_BYTES) + own
    if 0 < bytes_max < size:
        raise PathError(
            f"{name[:40]!r}… has {own} bytes, {size - bytes_max} too many: a job"
            f" moves files through its own directories, whose paths here have up to {bytes_max}",
            hint="Give it a shorter name, or put the destination into a directory with a shorter"
            " path",
        )


def is_hidden_name(path: str) -> bool:
    """Whether readers of tables skip a path: an element of it begins with ``_`` or ``.``."""
    return any(element.startswith(("_", ".")) for element in path.split("/"))
