"""The open uploads under a path: who owns each, how old and large it is. Only reads.

Each upload has exactly one class:

* ``live``: its job is ours, is not over, and has changed lately.
* ``over``: its job is ours and cannot publish it any more, by its record (closed, aborting,
  reverted); or nothing of the job has changed for so long that the job is dead.
* ``orphan``: it carries the UUID of a job of ours, and no record of that job is at or above it.
* ``hadoop``: a `.pending` or `.pendingset` of Hadoop's committer names it.
* ``foreign``: nothing names its owner. Near a job that may be alive, it may belong to that job,
  with a name that the user chose: then it is flagged.
* ``unknown``: the record that would tell cannot be read; or the upload began while the records were
  being read.

In doubt, the class that protects the upload most is taken. Ages are the store's and are only used
for limits: some stores give the time of the last part, or none, or 2010 (docs/stores.md).

Ownership is read, never guessed (protocol.md, "Whose upload is it?"). Two things tell it:

* the UUID in the upload's name. Its job's record may be in any directory at or above the upload;
* its key and id in a `.pending` or `.pendingset`, in a magic directory of such a directory. If a
  control object names a key outside its own destination, it does not count.

A record tells whether its job is over: closed, or absent. **Uploads are listed first, then records
are read, then uploads are listed again**: a job that was set up in between shows its record, and an
upload that a job completed in between is not in the second listing. If a directory cannot be read,
there may be a record in it: then nobody can tell, and that is an answer (None).

Memory: one entry for each directory at or above an upload, for each job, and for each *open* upload
that a control object names (some 250 bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

from magic_committer.commit import requests
from magic_committer.commit.probe import hides_uploads
from magic_committer.commit.register import Seen, age_of, read
from magic_committer.commit.requests import Ahead
from magic_committer.commit.sets import from_pending, upload_name
from magic_committer.commit.uploads import UploadName, to_look
from magic_committer.errors import FormatError, MagicError, OptionError, PathError, StoreError
from magic_committer.errors.messages import age_words, bytes_words, counted
from magic_committer.hadoop.documents import Pending
from magic_committer.hadoop.paths import (
    JOB_PREFIX,
    MAGIC,
    MAGIC_JOB_PREFIX,
    RECORD,
    Destination,
    owner_of,
)
from magic_committer.maintenance.inspect import Listing, directories, each, each_saved
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
    NAMED_MAX,
)
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import JOB_METADATA, State
from magic_committer.runtime.components import Progress, Runtime
from magic_committer.stores.base import ObjectInfo, UploadInfo
from magic_committer.stores.urls import url_of

OwnerClass = Literal["live", "unknown", "over", "orphan", "hadoop", "foreign"]
CLASSES: tuple[OwnerClass, ...] = get_args(OwnerClass)
"""The most protected first: if two things are known about an upload, the first one holds."""
OLD_SECONDS = 7 * 86_400.0
"""From this age on an upload of another program is called old: operators are told of it."""
FINISHED_BY_RECOVERY = frozenset({State.COMMITTING, State.COMPLETED, State.REVERTING})
"""States of a dead job whose uploads are completed, or undone with their objects: `recover` does
it."""
ABORTED = frozenset({State.ABORTING, State.REVERTED})
"""Nothing of a job in these states becomes visible any more, however young it is: only its sweep is
left."""


@dataclass(frozen=True, slots=True)
class FoundUpload:
    """One open upload. Unknown values are None, or "".

    Attributes:
        key, upload_id: of the upload.
        owner_class: ``"live"``: of a live job of ours. ``"over"``: of one that has ended or is
            dead. ``"orphan"``: of one without a record. ``"hadoop"``: a control object of Hadoop
            names it. ``"foreign"``: nothing names its owner. ``"unknown"``: it cannot be told.
        job, uuid, job_state: the job that owns it; the state is its record's, ``absent`` without
            one.
        dest: the prefix of that job's destination.
        initiated: when it began, as the store says, in seconds since the epoch.
        age: seconds since then, at least, by the store's clock.
        named_age: the age of what names it (a control object, or its job's closed record): it is
            used for limits if the store gives no age.
        job_age: for Hadoop's uploads: seconds since the last change in their job's directory.
        parts, bytes: what is stored of it; None: not asked, or the store did not say.
        storage_class, initiator, owner: as the store says.
        near: whether a job that may be alive has its record, or an unreadable one, at or above it;
            ``note`` says which.
        note: why it has its class, or its size is not known, in a sentence.
        token, multipart_etag: they identify the object that it became.
    """

    key: str
    upload_id: str
    owner_class: OwnerClass
    job: str = ""
    job_state: str = ""
    uuid: str = ""
    dest: str = ""
    initiated: float | None = None
    age: float | None = None
    named_age: float | None = None
    job_age: float | None = None
    parts: int | None = None
    bytes: int | None = None
    storage_class: str = ""
    initiator: str = ""
    owner: str = ""
    near: bool = False
    note: str = ""
    token: str = ""
    multipart_etag: str = ""

    @property
    def would(self) -> str:
        """What `uploads abort` does with it by default, in one sentence."""
        return deed(self)[1]

    @property
    def limit_age(self) -> float | None:
        """The age for the limits: never more than the true age."""
        age = self.age if self.age is not None else self.named_age
        return age if age is None or self.job_age is None else min(age, self.job_age)

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values, for people and programs."""
        told = {name: getattr(self, name) for name in FIELDS if name != "class"}
        return {"class": self.owner_class, **told}


FIELDS = (
    "key", "upload_id", "class", "job", "job_state", "uuid", "initiated", "age", "parts", "bytes",
    "storage_class", "initiator", "owner", "note", "would",
)  # fmt: skip
"""The fields of `FoundUpload.to_dict`."""


# What may be done ---------------------------------------------------------------------------------


def deed(
    found: FoundUpload,
    older_than: float = LEFTOVER_AFTER_SECONDS,
    foreign: bool = False,
    hadoop: bool = False,
) -> tuple[bool, str]:
    """Whether to abort an upload, and what to do in a sentence. Pure. The operator allows an abort
    from the age ``older_than`` on (0: any age, also an unknown one), and of the classes ``foreign``
    and ``hadoop`` if so said."""
    why = _protected(found, foreign, hadoop)
    age = found.limit_age
    if not why and older_than and age is None:
        why = "its age is not known"
    if why:
        return False, f"leave it: {why}"
    if age is not None and age < older_than:
        return False, f"leave it until it is {age_words(older_than)} old"
    if found.owner_class == "over" and found.job_state != State.CLOSED:
        return True, "abort its job as a whole, and it with the job"
    return True, "abort it"


def _protected(found: FoundUpload, foreign: bool, hadoop: bool) -> str:
    """Why an upload of any age is left; "" if it is not."""
    match found.owner_class:
        case "live":
            return f"its job is {found.job_state}"
        case "unknown":
            return "it cannot be told whose it is"
        case "over" if found.job_state in FINISHED_BY_RECOVERY:
            return f"its job is {found.job_state}, recover that job"
        case "hadoop" if not hadoop:
            return "it is Hadoop's"
        case "foreign" if found.near:
            return found.note
        case "foreign" if not foreign:
            return "nothing tells whose it is"
    return ""


def is_old(found: FoundUpload, older_than: float = OLD_SECONDS) -> bool:
    """Whether an upload is of another program, old, and not near a job that may be alive. Pure."""
    others = found.owner_class in ("foreign", "hadoop")
    return others and deed(found, older_than, True, True)[0]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which uploads are meant; None: all. ``older_than``: in seconds; an unknown age is not older
    than anything but 0. ``job``: an id or a UUID. ``key_glob``: for the key below the path; ``*``
    matches "/" too."""

    older_than: float | None = None
    job: str | None = None
    key_glob: str | None = None

    def __post_init__(self) -> None:
        if self.job == "":  # `--job "$JOB"` of a script: it would fit all that have no job's id
            raise OptionError("job is the id or the UUID of a job, and is empty")

    def fits(self, found: FoundUpload, dest: Destination) -> bool:
        """Whether an upload is meant. Pure."""
        below = found.key[len(dest.prefix) :]
        return (
            (not self.older_than or (found.limit_age or 0.0) >= self.older_than)
            and (self.job is None or self.job in (found.job, found.uuid))
            and (self.key_glob is None or fnmatchcase(below, self.key_glob))
        )

    @property
    def old_from(self) -> float:
        """The age in seconds from which uploads of other programs are told of."""
        return max(self.older_than or 0.0, OLD_SECONDS)


# Records ------------------------------------------------------------------------------------------


def directory_of(key: str) -> str:
    """The directory of a key: ``"a/b/"`` for ``a/b/c``."""
    return key[: key.rfind("/") + 1]


def at_and_above(directory: str) -> Iterator[str]:
    """A directory and all above it: ``""``, ``"a/"``, ``"a/b/"`` for ``a/b/``."""
    yield ""
    for index, character in enumerate(directory):
        if character == "/":
            yield directory[: index + 1]


@dataclass(slots=True)
class JobDirectory:
    """A directory of a committer, ``__magic_job-…/`` or ``__magic/``.

    Attributes:
        record: the job's record, if it can be read; ``unknown``: it could not be read.
        age: seconds since the last change in it, by the store's clock; 0 if that is not known.
        unread: not everything in it could be read.
        signed: whether it holds pendings of jobs of ours and no others. Without a record it is then
            a leftover of a job that is over.
    """

    record: Seen | None = None
    unknown: bool = False
    age: float = 0.0
    unread: bool = False
    signed: bool | None = None


@dataclass(slots=True)
class Place:
    """A directory in which jobs may have been started, with the committers' directories in it, and
    the readable records by their job's UUID. ``problems``: what could not be read. If the place
    itself could not be listed, it may hold any job."""

    directories: dict[str, JobDirectory] = field(default_factory=dict)
    records: dict[str, Seen] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Places:
    """The job records at and above directories; ``known``: by directory. Each is read once."""

    def __init__(self, runtime: Runtime, in_flight: int) -> None:
        self._runtime = runtime
        self._in_flight = in_flight
        self.known: dict[str, Place] = {}

    @property
    def problems(self) -> list[str]:
        """What could not be read so far, a sentence each; only the first ones."""
        found = (problem for place in self.known.values() for problem in place.problems)
        return list(islice(found, NAMED_MAX))

    def look(self, directories: Iterable[str]) -> None:
        """Read the records at and above these directories, if they were not read before."""
        found = {place for directory in directories for place in at_and_above(directory)}
        new = sorted(found - set(self.known))
        for prefix, listed in each(self._runtime, self._list, new, self._in_flight):
            place = self.known[prefix] = Place()
            if isinstance(listed, MagicError):
                where = url_of(self._runtime.store.bucket, prefix)
                place.problems.append(f"the jobs under {where} cannot be told: {listed}")
            else:
                place.directories = {directory: JobDirectory() for directory in listed}
        ours = (
            (prefix, directory)
            for prefix in new
            for directory in self.known[prefix].directories
            if directory[len(prefix) :].startswith(MAGIC_JOB_PREFIX)
        )
        for (prefix, directory), seen in each(self._runtime, self._read, ours, self._in_flight):
            place = self.known[prefix]
            if isinstance(seen, MagicError):
                place.directories[directory].unknown = True
                place.problems.append(f"the job of {directory} cannot be told: {seen}")
            elif seen is not None:
                place.records[seen.record.uuid] = place.directories[directory].record = seen

    def around(self, directory: str) -> list[Place]:
        """The places at and above a directory."""
        self.look((directory,))
        return [self.known[place] for place in at_and_above(directory)]

    def record(self, directory: str, uuid: str) -> tuple[Seen | None, bool]:
        """The record of a job with an upload in a directory. If there is none: whether that is
        certain."""
        closed, certain = None, True
        for place in self.around(directory):
            seen = place.records.get(uuid)
            if seen is not None and seen.record.state is not State.CLOSED:
                return seen, True
            closed = closed or seen
            certain = certain and not place.problems
        return closed, certain or closed is not None

    def is_over(self, directory: str, uuid: str) -> bool | None:
        """Whether the job with an upload in a directory is over: its record is closed, or there is
        none. None: nobody can tell."""
        seen, certain = self.record(directory, uuid)
        if seen is not None:
            return seen.record.state is State.CLOSED
        return True if certain else None

    def _list(self, prefix: str) -> list[str]:
        """The committers' directories in a place."""
        try:
            Destination(self._runtime.store.bucket, prefix)
        except PathError:
            return []  # no job can be there
        ours = f"{prefix}{MAGIC_JOB_PREFIX}"
        listed = directories(self._runtime, f"{prefix}{MAGIC}")
        return [one for one in listed if one == f"{prefix}{MAGIC}/" or one.startswith(ours)]

    def _read(self, place: tuple[str, str]) -> Seen | None:
        prefix, directory = place
        seen = read(self._runtime, f"{directory}{RECORD}")
        if seen is not None:
            dest = Destination(self._runtime.store.bucket, prefix)
            if seen.record.paths(dest).record != seen.key:
                raise FormatError(seen.key, "id", "is not the one that its directory names")
        return seen


# The survey ---------------------------------------------------------------------------------------


class Named(NamedTuple):
    """What a control object says about an open upload: the UUID of its job ("": it is Hadoop's,
    unless the job whose record is in ``directory`` is alive), the magic directory that holds the
    object, and the job's id in it; what identifies the object that the upload became; and the age
    of the control object in seconds: the upload is older."""

    uuid: str
    directory: str
    job: str
    token: str
    multipart_etag: str
    age: float


def job_id_of(directory: str, key: str) -> str:
    """The id of the job that owns a control object in a magic directory; "" if the path does not
    tell. ``__magic_job-<id>/…``, or ``__magic/job-<id>/…`` of Hadoop up to 3.3."""
    name = directory[:-1].rpartition("/")[2]
    if name.startswith(MAGIC_JOB_PREFIX):
        return name[len(MAGIC_JOB_PREFIX) :]
    first = key[len(directory) :].partition("/")[0]
    return first.removeprefix(JOB_PREFIX) if first.startswith(JOB_PREFIX) else ""


def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


_verdict = partial(FoundUpload, "", "")
"""What the owner of an upload tells about it: an upload without a name."""


class Survey:
    """The open uploads below a path. The constructor lists them and reads who owns them; each call
    of `pages` lists them again. NotSupported: the store has no listing of uploads.

    Attributes:
        by_name: only the uploads' names and the records tell owners, no control object is read:
            what has no job's name is ``foreign``, a running job is ``live``.
        places: the records at and above the uploads.
    """

    def __init__(
        self,
        runtime: Runtime,
        dest: Destination,
        *,
        in_flight: int,
        dead_after: float = DEAD_AFTER_SECONDS,
        by_name: bool = False,
    ) -> None:
        self.runtime, self.dest, self.in_flight = runtime, dest, in_flight
        self.dead_after, self.by_name = dead_after, by_name
        self._first = KeySet()
        self._lists_by_prefix = False
        directories: set[str] = set()
        with Ahead(runtime, lambda: runtime.store.list_uploads(dest.prefix)) as pages:
            for page in pages:
                # Without a prefix MinIO shows what its process remembers: that proves nothing.
                self._lists_by_prefix |= bool(dest.prefix) and any(
                    one.key != dest.prefix for one in page.uploads
                )
                for upload in page.uploads:
                    self._first.add(upload_name(upload.key, upload.upload_id))
                    if not by_name or owner_of(upload.key, upload.upload_id):
                        directories.add(directory_of(upload.key))
                runtime.progress(Progress("list", self.listed, None, "uploads"))
        self.places = Places(runtime, in_flight)
        self.places.look(directories)
        self._named: dict[bytes, tuple[Named, ...]] = {}  # what names an open upload, by digest
        self._unread: list[str] = []
        for prefix, place in self.places.known.items() if not by_name else ():
            for name, directory in place.directories.items():
                try:
                    self._read(prefix, place, name, directory)
                except MagicError as error:  # from the listing itself
                    self._missed(name, directory, error)
        self._by_job: dict[tuple[str, str], FoundUpload] = {}
        self._by_place: dict[str, FoundUpload] = {}

    @property
    def listed(self) -> int:
        """How many uploads the first listing showed."""
        return len(self._first)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be read and makes uploads ``unknown`` or ``foreign``."""
        return (*self.places.problems, *self._unread)

    def unseen(self) -> str:
        """Why uploads may be open below the path although no listing shows them; "" if there is no
        reason. If the first listing does not prove the contrary, two uploads are created in a job's
        directory there, listed and aborted, once in a process: 9 requests. Repeatable.
        `PermissionDenied`: the caller may not create uploads."""
        if self._lists_by_prefix:
            return ""
        try:
            how = hides_uploads(self.runtime, self.dest.prefix)
        except StoreError as error:
            what = f"whether the store shows all open uploads under {self.dest.url} cannot be told"
            raise error.ending(what) from error
        return how and (
            f"uploads may be open under {self.dest.url} that cannot be seen: the store {how}. Only"
            " a lifecycle rule takes them (magic-committer lifecycle ensure), or the store's own"
            " rule (MinIO: after 24 hours)"
        )

    def pages(self) -> Iterator[list[FoundUpload]]:
        """The uploads as they are now, in the store's order, without their sizes."""
        for page in self.runtime.store.list_uploads(self.dest.prefix):
            yield [self._found(upload, page.seen_at) for upload in page.uploads]

    def _read(self, prefix: str, place: Place, name: str, directory: JobDirectory) -> None:
        """Read what the control objects in a committer's directory name."""
        dest = Destination(self.dest.bucket, prefix)
        adopted = {
            seen.record.paths(dest).tree: uuid
            for uuid, seen in place.records.items()
            if seen.record.adopted and seen.record.state is not State.CLOSED
        }
        listing = Listing(self.runtime, name)
        for info, saved in each_saved(self.runtime, listing):
            try:
                if isinstance(saved, MagicError):
                    raise saved
                uuid = saved[1].get(JOB_METADATA, "")
                directory.signed = bool(uuid) and directory.signed is not False
                for tree in adopted if not uuid else ():
                    if info.key.startswith(tree):
                        uuid = adopted[tree]
                self._add(dest, name, uuid, info, saved[0])
            except MagicError as error:
                self._missed(name, directory, error)
        directory.age = listing.age

    def _missed(self, name: str, directory: JobDirectory, why: MagicError) -> None:
        directory.unread = True
        if len(self._unread) < NAMED_MAX:
            self._unread.append(f"{name}: not all that it names is known: {why}")

    def _add(
        self, dest: Destination, directory: str, uuid: str, info: ObjectInfo, named: list[Pending]
    ) -> None:
        age, job = age_of(info.seen_at, info.last_modified), job_id_of(directory, info.key)
        for number, pending in enumerate(named):
            if pending.bucket != dest.bucket or not dest.contains(pending.destination_key):
                raise FormatError(info.key, "destinationKey", "lies outside the destination")
            name = upload_name(pending.destination_key, pending.upload_id)
            if name not in self._first:
                continue
            upload = from_pending(pending, f"{info.key}: {number}")
            others = self._named.get(_digest(name), ())
            if all((one.uuid, one.directory) != (uuid, directory) for one in others):
                one = Named(uuid, directory, job, upload.token, upload.multipart_etag, age)
                self._named[_digest(name)] = (*others, one)

    def _found(self, upload: UploadInfo, seen_at: float) -> FoundUpload:
        named = self._named.get(_digest(upload_name(upload.key, upload.upload_id)), ())
        verdict, began = self._judge(upload, named), upload.initiated
        ages = [one.age for one in named]
        if verdict.named_age is not None:
            ages.append(verdict.named_age)
        return replace(
            verdict,
            key=upload.key,
            upload_id=upload.upload_id,
            initiated=began,
            age=None if began is None else age_of(seen_at, began),
            named_age=max(ages, default=None),
            storage_class=upload.storage_class,
            initiator=upload.initiator,
            owner=upload.owner,
            token=named[0].token if named else "",
            multipart_etag=named[0].multipart_etag if named else "",
        )

    def _judge(self, upload: UploadInfo, named: tuple[Named, ...]) -> FoundUpload:
        directory = directory_of(upload.key)
        told = {one.uuid: one.job for one in named if one.uuid}
        in_name = owner_of(upload.key, upload.upload_id)
        if in_name:
            told.setdefault(in_name, "")
        verdicts = [self._of_job(directory, uuid, job) for uuid, job in told.items()]
        verdicts += [self._of_hadoop(one) for one in named if not one.uuid]
        if not verdicts:
            verdicts.append(_verdict("foreign") if self.by_name else self._of_nobody(directory))
        verdict = min(verdicts, key=_rank)
        is_new = upload_name(upload.key, upload.upload_id) not in self._first
        if is_new and verdict.owner_class != "live":
            note = "it began while the records were being read"
            return replace(verdict, owner_class="unknown", note=note)
        return verdict

    def _of_job(self, directory: str, uuid: str, job: str) -> FoundUpload:
        """The verdict on an upload of a job of ours, by its UUID."""
        if (directory, uuid) not in self._by_job:
            self._by_job[directory, uuid] = self._look_up(directory, uuid)
        verdict = self._by_job[directory, uuid]
        return verdict if verdict.job or not job else replace(verdict, job=job)

    def _look_up(self, directory: str, uuid: str) -> FoundUpload:
        seen, certain = self.places.record(directory, uuid)
        if seen is None and not certain:
            note = "the record of its job may be where nothing can be read"
            return _verdict("unknown", uuid=uuid, note=note)
        if seen is None:
            return _verdict("orphan", job_state=str(State.ABSENT), uuid=uuid)
        record = seen.record
        of_job = _verdict("over", record.id, str(record.state), uuid, _dest_of(seen))
        if record.state is State.CLOSED:
            age = age_of(seen.seen_at, seen.last_modified)
            return replace(of_job, named_age=age, note=f"its job was {record.outcome}")
        if record.state in ABORTED:
            return replace(of_job, note="its job is aborted, and not swept yet")
        age = self._job_age(seen)
        if age < self.dead_after:
            return replace(of_job, owner_class="live", note=f"its job changed {age_words(age)} ago")
        return replace(of_job, note=f"its job is dead: it changed {age_words(age)} ago")

    def _of_hadoop(self, named: Named) -> FoundUpload:
        """The verdict on an upload that a control object without a token names."""
        dest = directory_of(named.directory[:-1])
        there = self.places.around(dest)[-1].directories[named.directory]
        if there.unknown:
            return _verdict("unknown", named.job, note="the record of its job cannot be read")
        if (seen := there.record) is not None and seen.record.state is not State.CLOSED:
            verdict = self._of_job(_dest_of(seen), seen.record.uuid, named.job)
            if verdict.owner_class == "live":
                return verdict
        return _verdict("hadoop", named.job, dest=dest, job_age=there.age)

    def _of_nobody(self, directory: str) -> FoundUpload:
        """The verdict on an upload that nothing names: foreign, near a job or not."""
        if directory not in self._by_place:
            near, nobody = self._neighbours(directory), _verdict("foreign")
            self._by_place[directory] = min(near, key=lambda v: not v.near, default=nobody)
        return self._by_place[directory]

    def _neighbours(self, directory: str) -> Iterator[FoundUpload]:
        for place in self.places.around(directory):
            for problem in place.problems:
                yield _verdict("foreign", near=True, note=f"it may be of a job: {problem}")
            for below, there in place.directories.items():
                seen, whole = there.record, not (there.unread or there.unknown)
                over = seen is not None and seen.record.state is State.CLOSED
                if over or (seen is None and whole and there.signed):
                    continue
                age = there.age if seen is None else self._job_age(seen)
                what = f"job {seen.record.id} ({seen.record.state})" if seen else f"the job {below}"
                read = "" if whole else ", not all of which can be read"
                note = f"it may be of {what}, which changed {age_words(age)} ago{read}"
                yield _verdict("foreign", near=age < self.dead_after or not whole, note=note)

    def _job_age(self, seen: Seen) -> float:
        dest = Destination(self.dest.bucket, _dest_of(seen))
        paths, there = seen.record.paths(dest), self.places.known[dest.prefix].directories
        age = there[paths.directory].age
        if paths.tree == paths.directory:
            return age
        # Adopted from Hadoop 3.3: all jobs share a directory.
        return min(age, there.get(f"{dest.prefix}{MAGIC}/", JobDirectory()).age)


def _rank(verdict: FoundUpload) -> tuple[int, bool]:
    """How strongly a verdict protects: the lower, the stronger."""
    name, state = verdict.owner_class, verdict.job_state
    if name == "over":
        return 1 if state in FINISHED_BY_RECOVERY else 3, state == State.CLOSED
    return {"live": 0, "unknown": 1, "hadoop": 2, "orphan": 4, "foreign": 5}[name], True


def _dest_of(seen: Seen) -> str:
    """The prefix of the destination of a record."""
    return directory_of(seen.key.removesuffix(f"/{RECORD}"))


def sized(runtime: Runtime, page: list[FoundUpload], in_flight: int) -> list[FoundUpload]:
    """The same uploads with their parts and bytes: one ListParts each. Uploads that have
    ended meanwhile are left out. If the store does not tell about one, its note says why."""
    looks = (
        (number, to_look(runtime, UploadName(found.key, found.upload_id)))
        for number, found in enumerate(page)
    )
    told: dict[int, FoundUpload] = {}
    with closing(requests.each(runtime, looks, in_flight=in_flight)) as ended:
        for number, look in ended:
            found = page[number]
            if look.error is not None and not look.ended:
                why = f"its size is not known: {look.error.code or type(look.error).__name__}"
                note = f"{found.note}; {why}" if found.note else why
                told[number] = replace(found, note=note)
            elif not look.ended:
                size = sum(part.size for part in look.parts)
                told[number] = replace(found, parts=len(look.parts), bytes=size)
    return [told[number] for number in sorted(told)]


# Sums ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sum:
    """Uploads added up; the bytes lack ``bytes_unknown`` of them. ``oldest``: the greatest age."""

    uploads: int = 0
    bytes: int = 0
    bytes_unknown: int = 0
    oldest: float | None = None

    def add(self, upload: FoundUpload) -> None:
        """Count one more."""
        self.uploads += 1
        self.bytes += upload.bytes or 0
        self.bytes_unknown += upload.bytes is None
        if upload.age is not None:
            self.oldest = max(upload.age, self.oldest or 0.0)

    def stored(self) -> str:
        """Return the bytes in words; "" if none is known."""
        least = "at least " if self.bytes_unknown else ""
        return f"{least}{bytes_words(self.bytes)}" if self.bytes_unknown < self.uploads else ""

    def words(self, noun: str = "upload") -> str:
        """Return ``"3 uploads, 1.2 GiB"``, with ``noun`` for "upload"."""
        return ", ".join(filter(None, (counted(self.uploads, noun), self.stored())))


@dataclass(slots=True)
class Sums:
    """The uploads of a path, added up.

    Attributes:
        older_than: from which age those of other programs are ``old``, in seconds.
        removable: what `uploads abort` removes without options.
        old: what it removes with ``--foreign`` or ``--hadoop`` only (`is_old`).
    """

    older_than: float = OLD_SECONDS
    all: Sum = field(default_factory=Sum)
    by_class: dict[OwnerClass, Sum] = field(default_factory=dict)
    removable: Sum = field(default_factory=Sum)
    old: dict[OwnerClass, Sum] = field(default_factory=dict)

    def add(self, upload: FoundUpload) -> None:
        """Count one more."""
        self.all.add(upload)
        self.by_class.setdefault(upload.owner_class, Sum()).add(upload)
        if deed(upload)[0]:
            self.removable.add(upload)
        elif is_old(upload, self.older_than):
            self.old.setdefault(upload.owner_class, Sum()).add(upload)

    def adding(self, uploads: Iterable[FoundUpload]) -> Iterator[FoundUpload]:
        """Count each of some uploads when it is asked for."""
        for upload in uploads:
            self.add(upload)
            yield upload

    def of(self, owner_class: OwnerClass) -> Sum:
        """Return the sum of a class."""
        return self.by_class.get(owner_class, Sum())

    def counts(self) -> dict[str, int]:
        """Return the number of uploads of each class."""
        return {name: one.uploads for name, one in self.by_class.items()}

    def old_words(self) -> dict[str, str]:
        """Return what is old and of other programs, in words, by class."""
        return {name: one.words(f"{name} upload") for name, one in sorted(self.old.items())}

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        each = {"by_class": self.by_class, "old": self.old}
        told = {name: {key: asdict(one) for key, one in of.items()} for name, of in each.items()}
        return {**asdict(self.all), **told}
