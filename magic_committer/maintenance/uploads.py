"""The open uploads under a path: who owns each, and how those end that nobody needs.

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

* the UUID in the upload's name; on a file system, where a listing shows its mark, that in its
  token. Its job's record may be in any directory at or above the upload;
* its key and id in a `.pending` or `.pendingset`, in a magic directory of such a directory. If a
  control object names a key outside its own destination, it does not count.

A record shows whether its job is over: closed, or absent. **Uploads are listed first, then records
are read, then uploads are listed again**: a job that was set up in between shows its record, and an
upload that a job completed in between is not in the second listing. If a directory cannot be read,
there may be a record in it: then nobody can tell, and that is an answer (None).

Aborted are uploads of jobs that are over: nobody can publish them any more. Those of Hadoop and of
other programs are aborted only on the operator's word. Invariants:

* If the job of an upload still has a record to be decided, the job is decided first: a *dead* job
  is aborted, as `magic_committer.abort` does it, and its driver may win that swap. This is done
  only for a whole job: if the filters or the path leave out one of its uploads, the job is left.
* Jobs that are decided to commit or are being reverted are left to `magic_committer.recover`.
* Right before its abort an upload is looked for again, by its exact key. It is left alone if it is
  not open any more (on some stores the abort of a completed upload deletes the object,
  docs/stores.md), or not old enough any more.
* An abort counts only when it is proved (`commit.uploads.removing`). What stays is reported.
* An interrupted run loses nothing: the same call continues it. Two runs at once do no harm.

Memory: one entry for each directory at or above an upload, and for each job; 50 bytes for each
upload, 100 with a plan to abort them; for each that a control object names 500, and 700 with a plan
that aborts its dead job (docs/performance.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, get_args

from magic_committer.commit import register, requests
from magic_committer.commit.probe import hides_uploads
from magic_committer.commit.register import Seen, age_of
from magic_committer.commit.sets import ReadyUpload, from_pending, upload_name
from magic_committer.commit.uploads import (
    Removal,
    UploadState,
    looking,
    removing,
)
from magic_committer.committers.base import driver_of
from magic_committer.errors import FormatError, MagicError, OptionError, PathError, StoreError
from magic_committer.errors.messages import (
    NAMED_MAX,
    Remedy,
    age_words,
    bytes_words,
    counted,
    counted_are,
    in_python,
)
from magic_committer.hadoop.documents import Pending
from magic_committer.hadoop.paths import (
    JOB_PREFIX,
    MAGIC,
    MAGIC_JOB_PREFIX,
    RECORD,
    Destination,
    JobPaths,
    owner_of,
)
from magic_committer.maintenance.inspect import (
    Listing,
    at_and_above,
    changed_ago,
    directories,
    directory_of,
    each,
    each_saved,
    or_raise,
)
from magic_committer.maintenance.reports import (
    DEAD_AFTER_SECONDS,
    LEFTOVER_AFTER_SECONDS,
    ActionPlan,
    unfinished,
)
from magic_committer.options import Options
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import JOB_METADATA, TOKEN_METADATA, State
from magic_committer.runtime.components import Progress, Runtime
from magic_committer.runtime.threads import patient
from magic_committer.stores.base import FindUpload, ObjectInfo, UploadInfo, UploadPage
from magic_committer.stores.urls import url_of

OwnerClass = Literal["live", "unknown", "over", "orphan", "hadoop", "foreign"]
CLASSES: tuple[OwnerClass, ...] = get_args(OwnerClass)
"""The most protected first: if two things are known about an upload, the first one holds."""
OLD_SECONDS = 7 * 86_400.0
"""From this age on an upload of another program is called old: reports name it."""
FINISHED_BY_RECOVERY = frozenset({State.COMMITTING, State.COMPLETED, State.REVERTING})
"""States of a dead job whose uploads are completed, or undone with their objects: `recover` does
it."""
ABORTED = frozenset({State.ABORTING, State.REVERTED})
"""Nothing of a job in these states becomes visible any more, however young it is: only its sweep is
left."""
UNDECIDED_OR_UNDONE = frozenset({State.RUNNING, *ABORTED})
"""In these states a dead job is aborted or swept, and no data object is touched."""


@dataclass(frozen=True, slots=True)
class FoundUpload:
    """One open upload. Unknown values are None, or "".

    Attributes:
        key, upload_id: of the upload.
        owner_class: ``"live"``: of a live job of ours. ``"over"``: of one that has ended or is
            dead. ``"orphan"``: of one without a record. ``"hadoop"``: a control object of Hadoop
            names it. ``"foreign"``: nothing names its owner. ``"unknown"``: nobody can know it.
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

    @property
    def _name(self) -> str:
        return upload_name(self.key, self.upload_id)

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
            return "its owner is unknown"
        case "over" if found.job_state in FINISHED_BY_RECOVERY:
            return f"its job is {found.job_state}, recover that job"
        case "hadoop" if not hadoop:
            return "it is Hadoop's"
        case "foreign" if found.near:
            return found.note
        case "foreign" if not foreign:
            return "nothing names its owner"
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
        """The age in seconds from which uploads of other programs are reported."""
        return max(self.older_than or 0.0, OLD_SECONDS)


# Records ------------------------------------------------------------------------------------------


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
        self._runtime, self._in_flight = runtime, in_flight
        self.known: dict[str, Place] = {}

    @property
    def problems(self) -> list[str]:
        """What could not be read so far, a sentence each; only the first ones."""
        found = (problem for place in self.known.values() for problem in place.problems)
        return list(islice(found, NAMED_MAX))

    def look(self, directories: Iterable[str]) -> None:
        """Read the records at and above these directories, if they were not read before."""
        runtime = self._runtime
        found = {place for directory in directories for place in at_and_above(directory)}
        new = sorted(found - set(self.known))
        for prefix, listed in each(runtime, self._list, new, self._in_flight):
            place = self.known[prefix] = Place()
            if isinstance(listed, MagicError):
                where = url_of(runtime.store.bucket, prefix)
                place.problems.append(f"the jobs under {where} are unknown: {listed}")
            else:
                place.directories = {directory: JobDirectory() for directory in listed}
        ours = (
            (self.known[prefix], directory)
            for prefix in new
            for directory in self.known[prefix].directories
            if directory[len(prefix) :].startswith(MAGIC_JOB_PREFIX)
        )
        for (place, directory), seen in each(runtime, self._read, ours, self._in_flight):
            if isinstance(seen, MagicError):
                place.directories[directory].unknown = True
                place.problems.append(f"the job of {directory} is unknown: {seen}")
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
        ours = (f"{prefix}{MAGIC}/", f"{prefix}{MAGIC_JOB_PREFIX}")
        listed = directories(self._runtime, f"{prefix}{MAGIC}")
        return [one for one in listed if one.startswith(ours)]

    def _read(self, ours: tuple[Place, str]) -> Seen | None:
        return register.read(self._runtime, f"{ours[1]}{RECORD}")


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
"""The verdict by an upload's owner: an upload without a name."""


class OpenUploads:
    """The open uploads under a path, as `magic_committer.uploads` found them. Each iteration looks
    at those that are open now, and does not hold them.

    Attributes:
        problems: what could not be read, so that the owners of some uploads are not known; a
            sentence each.
    """

    def __init__(
        self,
        runtime: Runtime,
        dest: Destination,
        filters: Filters | None = None,
        *,
        sizes: bool = False,
        options: Options | None = None,
        dead_after: float = DEAD_AFTER_SECONDS,
        by_name: bool = False,
    ) -> None:
        """List the uploads, and read who owns them. NotSupported: the store has no such listing.
        ``by_name``: only their names, or marks, and the records tell owners, no control object is
        read: what has no job's name is ``foreign``, a running job is ``live``."""
        self.runtime, self.dest, self.filters = runtime, dest, filters or Filters()
        self.sizes, self.options = sizes, options or Options()
        self.in_flight, self.dead_after = self.options.commit_threads, dead_after
        self._by_name = by_name
        self._first = KeySet()
        self._lists_by_prefix = False
        directories: set[str] = set()
        with requests.Ahead(runtime, lambda: runtime.store.list_uploads(dest.prefix)) as pages:
            for page in pages:
                # Without a prefix MinIO shows what its process remembers: that proves nothing.
                self._lists_by_prefix |= bool(dest.prefix) and any(
                    one.key != dest.prefix for one in page.uploads
                )
                for upload in page.uploads:
                    self._first.add(upload_name(upload.key, upload.upload_id))
                    if not by_name or _owner(upload):
                        directories.add(directory_of(upload.key))
                runtime.progress(Progress("list", len(self._first), None, "uploads"))
        self.places = Places(runtime, self.in_flight)
        self.places.look(directories)
        self._named: dict[bytes, tuple[Named, ...]] = {}  # what names an open upload, by digest
        self._unread: list[str] = []
        for prefix, place in self.places.known.items() if not by_name else ():
            for name in place.directories:
                try:
                    self._read(Destination(dest.bucket, prefix), place, name)
                except MagicError as error:  # from the listing itself
                    self._missed(place, name, error)
        self._of_uuid, self._of_nobody = cache(self._look_up), cache(self._near)

    @property
    def problems(self) -> tuple[str, ...]:
        return (*self.places.problems, *self._unread)

    def __iter__(self) -> Iterator[FoundUpload]:
        """Look at the uploads. `StoreError`: they could not be listed."""
        seen = 0
        for page in self._pages():
            seen += len(page)
            total = max(seen, len(self._first))
            self.runtime.progress(Progress("look at", seen, total, "uploads"))
            yield from self._sized([one for one in page if self.filters.fits(one, self.dest)])

    def _pages(self) -> Iterator[list[FoundUpload]]:
        """All uploads as they are now, in the store's order, without their sizes."""
        for page in self.runtime.store.list_uploads(self.dest.prefix):
            yield [self._found(upload, page.seen_at) for upload in page.uploads]

    def unseen(self, *, ask: bool = True, worded: Callable[[Remedy], str] = in_python) -> str:
        """Find out whether uploads may be open that no listing shows. Where the listing does not
        prove the contrary, two uploads are created and aborted, once for each process and store.
        Repeatable.

        Args:
            ask: False: send nothing; a store that was not asked yet may hide some. True by default.
            worded: how to write the call that adds a lifecycle rule; in Python by default.

        Returns:
            Why they may be, in a sentence; "" if there is no reason.

        Raises:
            PermissionDenied: the caller may not create uploads.
            StoreError: it could not be found out.
        """
        if self._lists_by_prefix:
            return ""
        try:
            how = hides_uploads(self.runtime, self.dest.prefix, ask)
        except StoreError as error:
            what = f"whether the store shows all open uploads under {self.dest.url} is unknown"
            raise error.ending(what) from error
        rule = worded(Remedy("lifecycle", self.dest.url, options={"days": 7}))
        return how and (
            f"uploads may be open under {self.dest.url} that cannot be seen: the store {how}. Only"
            f" a lifecycle rule removes them ({rule}), or the store's own rule (MinIO: after 24"
            " hours)"
        )

    @patient()
    def abort(
        self, *, foreign: bool = False, hadoop: bool = False, max_aborts: int | None = None
    ) -> ActionPlan[AbortedUploads]:
        """Plan to abort the uploads that nobody needs: those of jobs that are over or dead, and
        orphans. Uploads of live jobs are never aborted, nor what is younger than ``older_than``
        of `magic_committer.uploads`; if that was not given, than ``leftover_after`` of
        `magic_committer.cleanup`. Repeatable; so is the run::

            >>> plan = mc.uploads("s3://bucket/table", older_than=7 * 86_400).abort(foreign=True)
            >>> plan.question
            ''

        Args:
            foreign: True: also those of which nothing names the owner, but not where a job that may
                be alive writes. Needs ``older_than``. False by default.
            hadoop: True: also those of Hadoop's jobs. Needs ``older_than``. False by default.
            max_aborts: the most that may be planned; None (default): any number.

        Returns:
            The plan. Its rows are looked at each time that they are iterated. It never aborts more
            than it has counted.

        Raises:
            OptionError: ``foreign`` or ``hadoop`` without ``older_than``.
            MagicError: there are more than ``max_aborts``.
            StoreError: the uploads could not be listed.
        """
        clearing = Clearing(self, foreign, hadoop, max_aborts)
        return ActionPlan(clearing.question, clearing, "", clearing.finish)

    @patient()
    def _sized(self, page: list[FoundUpload]) -> list[FoundUpload]:
        """The same uploads, if wanted with parts and bytes: one ListParts each. Uploads that have
        ended meanwhile are left out. If the store does not tell about one, its note says why."""
        if not self.sizes:
            return page
        names = (ReadyUpload(found.key, found.upload_id) for found in page)
        looks = enumerate(looking(self.runtime, name) for name in names)
        told: dict[int, FoundUpload] = {}
        with closing(requests.each(self.runtime, looks, in_flight=self.in_flight)) as ended:
            for number, look in ended:
                found = page[number]
                if look.error is not None and not look.ended:
                    why = f"its size is not known: {look.error.code or type(look.error).__name__}"
                    told[number] = replace(found, note="; ".join(filter(None, (found.note, why))))
                elif not look.ended:
                    size = sum(part.size for part in look.parts)
                    told[number] = replace(found, parts=len(look.parts), bytes=size)
        return [told[number] for number in sorted(told)]

    def _read(self, dest: Destination, place: Place, name: str) -> None:
        """Read what the control objects in a committer's directory name."""
        adopted = {
            seen.record.paths(dest).tree: uuid
            for uuid, seen in place.records.items()
            if seen.record.adopted and seen.record.state is not State.CLOSED
        }
        listing, directory = Listing(self.runtime, name), place.directories[name]
        for info, saved in each_saved(self.runtime, listing):
            try:
                pendings, metadata = or_raise(saved)
                uuid = metadata.get(JOB_METADATA, "")
                directory.signed = bool(uuid) and directory.signed is not False
                for tree in adopted if not uuid else ():
                    if info.key.startswith(tree):
                        uuid = adopted[tree]
                self._add(dest, name, uuid, info, pendings)
            except MagicError as error:
                self._missed(place, name, error)
        directory.age = listing.age

    def _missed(self, place: Place, name: str, why: MagicError) -> None:
        place.directories[name].unread = True
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
        name = upload_name(upload.key, upload.upload_id)
        named = self._named.get(_digest(name), ())
        verdict, began = self._judge(upload, named), upload.initiated
        if name not in self._first and verdict.owner_class != "live":
            note = "it began while the records were being read"
            verdict = replace(verdict, owner_class="unknown", note=note)
        ages = [one.age for one in named]
        if verdict.named_age is not None:
            ages.append(verdict.named_age)
        return replace(
            verdict,
            key=upload.key,
            upload_id=upload.upload_id,
            initiated=began,
            storage_class=upload.storage_class,
            initiator=upload.initiator,
            owner=upload.owner,
            age=None if began is None else age_of(seen_at, began),
            named_age=max(ages, default=None),
            token=named[0].token if named else "",
            multipart_etag=named[0].multipart_etag if named else "",
        )

    def _judge(self, upload: UploadInfo, named: tuple[Named, ...]) -> FoundUpload:
        """The verdict that protects the upload most, of all who know whose it is."""
        directory = directory_of(upload.key)
        told = {one.uuid: one.job for one in named if one.uuid}
        if in_name := _owner(upload):
            told.setdefault(in_name, "")
        verdicts = [self._of_job(directory, uuid, job) for uuid, job in told.items()]
        verdicts += [self._of_hadoop(one) for one in named if not one.uuid]
        if verdicts:
            return min(verdicts, key=_rank)
        return _verdict("foreign") if self._by_name else self._of_nobody(directory)

    def _of_job(self, directory: str, uuid: str, job: str) -> FoundUpload:
        """The verdict on an upload of a job of ours, by its UUID."""
        verdict = self._of_uuid(directory, uuid)
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

    def _near(self, directory: str) -> FoundUpload:
        """The verdict on an upload that nothing names: foreign, near a job or not."""
        near, nobody = self._neighbours(directory), _verdict("foreign")
        return min(near, key=lambda verdict: not verdict.near, default=nobody)

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


def _owner(upload: UploadInfo) -> str | None:
    """The UUID of the job that an upload is of, from a listing: by its mark, or its name."""
    token: str = (upload.metadata or {}).get(TOKEN_METADATA, "")
    return token.partition(".")[0] or owner_of(upload.key, upload.upload_id)


def _rank(verdict: FoundUpload) -> tuple[int, bool]:
    """How strongly a verdict protects: the lower, the stronger."""
    name, state = verdict.owner_class, verdict.job_state
    if name == "over":
        return 1 if state in FINISHED_BY_RECOVERY else 3, state == State.CLOSED
    return {"live": 0, "unknown": 1, "hadoop": 2, "orphan": 4, "foreign": 5}[name], True


def _dest_of(seen: Seen) -> str:
    """The prefix of the destination of a record."""
    return directory_of(seen.key.removesuffix(f"/{RECORD}"))


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
        """Yield each of some uploads, counted."""
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


# Aborting -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AbortedUploads:
    """What became of the uploads that were to be aborted.

    Attributes:
        aborted, gone, left: how many were aborted, had ended before their turn came, or stay open.
        stays: those that stay open, of many only the first; the ``note`` of each says why.
        unfinished: dead jobs that were aborted and have leftovers, a sentence each.
    """

    aborted: int
    gone: int
    left: int
    stays: tuple[FoundUpload, ...]
    unfinished: tuple[str, ...]


class Cleared(NamedTuple):
    """What became of one upload. ``gone``: it had ended before its turn came."""

    found: FoundUpload
    action: Literal["aborted", "would abort", "gone", "left"]
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values: those of the upload, the action, and ``why`` as its note."""
        told = self.found.to_dict()
        return {**told, "action": self.action, "note": self.why or told["note"]}


@dataclass(slots=True)
class DeadJob:
    """A dead job: how many of its uploads were ``seen`` in the scope, and those to be aborted.
    After its abort: whether that was ``ours``, and whether its sweep has proved (``swept``) that
    all its uploads are gone."""

    id: str
    uuid: str
    dest: str
    seen: int = 0
    chosen: list[FoundUpload] = field(default_factory=list)
    ours: bool = False
    swept: bool = False


class Clearing:
    """A plan to abort open uploads. The constructor looks at all of them, and changes nothing;
    `run` aborts those that were chosen. Raises as `OpenUploads.abort`.

    Attributes:
        chosen: how many uploads are to be aborted, by class.
        left: how many uploads are not, by class: because of the rules or the filters.
        old: how many of those that the filters choose are left and old (`is_old`), by class.
        jobs: dead jobs that are aborted as a whole, by UUID.
        advice: what the operator may want to do about those that are left: sentences, each with
            the destination's URL and the id of the job to be recovered.
        unfinished: jobs that a run has aborted and that have leftovers, a sentence each.
    """

    def __init__(
        self,
        found: OpenUploads,
        foreign: bool = False,
        hadoop: bool = False,
        max_aborts: int | None = None,
    ) -> None:
        older_than = found.filters.older_than
        if (foreign or hadoop) and older_than is None:
            raise OptionError(
                "uploads of other programs and of Hadoop are aborted from an age only: nothing else"
                " shows that they leak",
                hint="Give older_than (--older-than 7d)",
            )
        self._limit = LEFTOVER_AFTER_SECONDS if older_than is None else older_than
        self._others = foreign, hadoop
        self._found, self._runtime = found, found.runtime
        self._done = 0
        self.chosen: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.old: Counter[str] = Counter()
        self.jobs: dict[str, DeadJob] = {}
        self.advice: dict[str, tuple[str, str]] = {}
        self.unfinished: list[str] = []
        self._named = KeySet()  # chosen, and not of a dead job
        for one in chain.from_iterable(found._pages()):
            self._count(one)
        self._drop_partial()
        for job in self.jobs.values():
            self.chosen["over"] += len(job.chosen)
        if max_aborts is not None and self.chosen.total() > max_aborts:
            raise MagicError(
                f"{self.chosen.total():,} uploads are to be aborted under {found.dest.url}"
                f" ({by_class(self.chosen)}), more than the {max_aborts:,} that are allowed: none"
                " was"
            )

    @property
    def question(self) -> str:
        """What to ask before a run; "" if nothing is to be aborted."""
        if not self.chosen.total():
            return ""
        jobs = [job.id for job in self.jobs.values()]
        dead = f"dead job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} dead jobs"
        also = f", and with them {dead}" if jobs else ""
        what = f"{self.chosen.total():,} uploads under {self._found.dest.url}"
        return f"Abort {what} ({by_class(self.chosen)}){also}?"

    def _count(self, found: FoundUpload) -> None:
        dest, filters = self._found.dest, self._found.filters
        undecided = found.job_state in UNDECIDED_OR_UNDONE
        # Has a job that looked dead begun an upload since ("unknown"), it is not dead.
        if undecided and found.owner_class in ("over", "unknown"):
            new = DeadJob(found.job, found.uuid, found.dest)
            self.jobs.setdefault(found.uuid, new).seen += 1
        elif found.owner_class == "over" and found.job_state != State.CLOSED:
            where = url_of(dest.bucket, found.dest)
            words = f"job {found.job} under {where} is {found.job_state}: recover it"
            self.advice[words] = where, found.job
        if not filters.fits(found, dest):
            self.left[found.owner_class] += 1
        elif not deed(found, self._limit, *self._others)[0]:
            self.left[found.owner_class] += 1
            self.old[found.owner_class] += is_old(found, filters.old_from)
        elif _of_dead_job(found):
            self.jobs[found.uuid].chosen.append(found)
        else:
            self.chosen[found.owner_class] += 1
            self._named.add(found._name)

    def _drop_partial(self) -> None:
        """Leave the dead jobs if only a part of them is meant."""
        scope = self._found.dest
        for uuid, job in list(self.jobs.items()):
            whole = job.dest.startswith(scope.prefix)
            if whole and len(job.chosen) == job.seen:
                continue
            del self.jobs[uuid]
            self.left["over"] += len(job.chosen)
            if job.chosen:
                others = job.seen - len(job.chosen)
                why = f"{others} of its {counted_are(job.seen, 'upload')} not meant, and it"
                why = f"{why if whole else 'it lies above the path, and'} is aborted as a whole"
                where = url_of(scope.bucket, job.dest)
                words = f"dead job {job.id} under {where}: {why} or not at all: recover it"
                self.advice[words] = where, job.id

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the rows of the plan: the uploads that it would abort, looked at each time."""
        return (one.to_dict() for one in self.run(dry_run=True))

    def finish(self) -> AbortedUploads:
        """Run the plan, and count what became of the uploads."""
        counts: Counter[str] = Counter()
        stays: list[FoundUpload] = []
        for found, action, why in self.run():
            counts[action] += 1
            if action == "left" and len(stays) < NAMED_MAX:
                stays.append(replace(found, note=why))
        numbers = counts["aborted"], counts["gone"], counts["left"]
        return AbortedUploads(*numbers, tuple(stays), tuple(self.unfinished))

    def run(self, *, dry_run: bool = False) -> Iterator[Cleared]:
        """Abort the chosen uploads, and no others, while the result is iterated; with ``dry_run``
        change nothing, and say ``would abort``. Repeatable. A failure with one of them is ``left``;
        StoreError: they could not be listed."""
        self._done = 0
        if dry_run:  # one look at all: a store that is silent is waited for once
            chosen = [found for job in self.jobs.values() for found in job.chosen]
            yield from self._some(chosen, None, dry_run)
        else:
            for job in self.jobs.values():
                yield from self._some(job.chosen, job, dry_run)
        for page in self._found._pages():
            meant = [one for one in page if one._name in self._named and not _of_dead_job(one)]
            yield from self._some(meant, None, dry_run)

    def _some(
        self, meant: list[FoundUpload], job: DeadJob | None, dry_run: bool
    ) -> Iterator[Cleared]:
        """Abort some uploads; those of a dead job, after the job."""
        chosen = self._found._sized(meant)
        still = {found._name for found in chosen}
        yield from (Cleared(found, "gone") for found in meant if found._name not in still)
        if dry_run:
            yield from (Cleared(found, "would abort") for found in chosen)
        elif job is not None and (why := self._abort_job(job)):
            yield from (Cleared(found, "left", why) for found in chosen)
        else:
            for cleared in self._each(chosen, job):
                self._done += 1
                told = Progress("abort", self._done, self.chosen.total(), "uploads")
                self._runtime.progress(told)
                yield cleared

    def _abort_job(self, job: DeadJob) -> str:
        """Abort a dead job, if it is still dead and not decided to commit; why not otherwise."""
        job.ours = job.swept = False
        try:
            dest = Destination(self._found.dest.bucket, job.dest)
            seen = register.read_own(self._runtime, JobPaths(dest, job.id).record, job.uuid)
            if seen is None or seen.record.state is State.CLOSED:
                return ""  # ended by another process meanwhile
            if seen.record.state not in UNDECIDED_OR_UNDONE:
                return f"its job is {seen.record.state}"
            age = changed_ago(self._runtime, *seen.record.paths(dest).directories)
            if seen.record.state is State.RUNNING and age < self._found.dead_after:
                return f"its job lives: it changed {age_words(age)} ago"
            report = driver_of(self._runtime, dest, seen, self._found.options).abort()
        except MagicError as error:
            return f"its job could not be aborted: {error.message}"
        left = unfinished(job.id, report.state, report)
        job.ours, job.swept = True, not left
        self.unfinished += [left] if left else []
        return ""

    def _each(self, chosen: list[FoundUpload], job: DeadJob | None) -> Iterator[Cleared]:
        runtime, in_flight = self._runtime, self._found.in_flight
        hadoops = [one for one in chosen if one.owner_class == "hadoop"]
        others = (one for one in chosen if one.owner_class != "hadoop")
        works = ((one, requests.anew(partial(self._clearing, one, job))) for one in others)
        with closing(requests.each(runtime, works, in_flight=in_flight)) as ended:
            for _, cleared in ended:
                yield cleared

        # By verbs: the record of its job is read in between, and a batch waits for no such read.
        def by_verbs(found: FoundUpload) -> Cleared:
            return requests.by_verbs(runtime, self._clearing(found, job))

        for _, done in each(runtime, by_verbs, hadoops, in_flight):
            yield or_raise(done)

    def _clearing(
        self, found: FoundUpload, job: DeadJob | None, aborted: bool = False
    ) -> requests.Steps[Cleared]:
        """Look for one upload again; abort it, if it is still open and still old enough. Raises no
        `MagicError`. ``job``: its dead job, which has just been aborted. ``aborted``: an earlier
        try has found it open, and its abort may have taken effect."""
        name = ReadyUpload(found.key, found.upload_id, found.token, found.multipart_etag)
        try:
            page: UploadPage = yield FindUpload(found.key, found.upload_id)
            if not page.uploads:
                return (yield from self._not_listed(found, name, job, aborted))
            began, limit = page.uploads[0].initiated, self._limit
            now = None if began is None else age_of(page.seen_at, began)
            age = replace(found, age=now).limit_age
            if limit and (age is None or age < limit):
                return Cleared(found, "left", f"it is younger than {age_words(limit)} by now")
            if found.owner_class == "hadoop" and self._was_adopted(found):
                return Cleared(found, "left", "its job has been adopted meanwhile")
        except MagicError as error:
            return Cleared(found, "left", error.message)
        removed = yield from removing(self._runtime, name, aborted=aborted)
        match removed.removal:
            case Removal.ABORTED:
                return Cleared(found, "aborted")
            case Removal.LEFT:
                return Cleared(found, "left", removed.why)
            case Removal.VISIBLE:
                why = "it was completed: the object there is what it became"
            case Removal.GONE:
                why = "a listing shows it, and its parts are gone"
        return Cleared(found, "gone", why)

    def _not_listed(
        self, found: FoundUpload, name: ReadyUpload, job: DeadJob | None, aborted: bool
    ) -> requests.Steps[Cleared]:
        look = yield from looking(self._runtime, name)
        if look.state is UploadState.OPEN:
            return Cleared(found, "left", "no listing shows it, but its parts are there")
        if look.ended or (job is not None and job.swept):
            by_us = aborted and look.state is not UploadState.VISIBLE
            ours = by_us or (job is not None and job.ours)
            return Cleared(found, "aborted" if ours else "gone")
        return Cleared(found, "left", f"no listing shows it, and no more is known: {look.error}")

    def _was_adopted(self, found: FoundUpload) -> bool:
        """Whether the job of one of Hadoop's uploads now has a record that is not closed."""
        try:
            paths = JobPaths(Destination(self._found.dest.bucket, found.dest), found.job)
        except PathError:
            return False  # no job of ours can have that id
        seen = register.read(self._runtime, paths.record)
        return seen is not None and seen.record.state is not State.CLOSED


def _of_dead_job(found: FoundUpload) -> bool:
    """Whether an upload is removed by the abort of its dead job."""
    return found.owner_class == "over" and found.job_state in UNDECIDED_OR_UNDONE


def by_class(counts: Mapping[str, int]) -> str:
    """``"orphan 3, over 2"``. Pure."""
    return ", ".join(f"{name} {counts[name]:,}" for name in CLASSES if counts.get(name))
