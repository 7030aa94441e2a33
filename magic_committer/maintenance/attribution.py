"""The owner of an open upload: the jobs at and above it, and the ids that their control objects
name.

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

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.closed import age_of
from magic_committer.commit.ready import from_pending, upload_name
from magic_committer.commit.records import Seen
from magic_committer.errors import FormatError, MagicError, PathError
from magic_committer.hadoop.formats import Pending
from magic_committer.hadoop.paths import (
    JOB_PREFIX,
    MAGIC,
    MAGIC_JOB_PREFIX,
    RECORD,
    Destination,
)
from magic_committer.maintenance.inspect import Listing, directories, each, each_saved
from magic_committer.maintenance.reports import NAMED_MAX
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.record import JOB_METADATA, State
from magic_committer.stores.base import ObjectInfo
from magic_committer.stores.urls import url_of


def directory_of(key: str) -> str:
    """The directory of a key: ``"a/b/"`` for ``a/b/c``."""
    return key[: key.rfind("/") + 1]


def at_and_above(directory: str) -> Iterator[str]:
    """A directory and all above it: ``""``, ``"a/"``, ``"a/b/"`` for ``a/b/``."""
    yield ""
    for index, character in enumerate(directory):
        if character == "/":
            yield directory[: index + 1]


# Records ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Place:
    """One directory in which jobs may have been started.

    Attributes:
        directories: the committers' directories in it: ``__magic_job-…/`` and ``__magic/``.
        records, record_in: the readable records, by their job's UUID, and by directory.
        unread: the directories whose record could not be read; ``problems``: why. If the place
            itself could not be listed, it may hold any job.
    """

    directories: tuple[str, ...] = ()
    records: dict[str, Seen] = field(default_factory=dict)
    record_in: dict[str, Seen] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
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
                place.directories = listed
        ours = (
            (prefix, directory)
            for prefix in new
            for directory in self.known[prefix].directories
            if directory[len(prefix) :].startswith(MAGIC_JOB_PREFIX)
        )
        for (prefix, directory), seen in each(self._runtime, self._read, ours, self._in_flight):
            place = self.known[prefix]
            if isinstance(seen, MagicError):
                place.unread.add(directory)
                place.problems.append(f"the job of {directory} cannot be told: {seen}")
            elif seen is not None:
                place.records[seen.record.uuid] = place.record_in[directory] = seen

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

    def _list(self, prefix: str) -> tuple[str, ...]:
        """The committers' directories in a place."""
        try:
            Destination(self._runtime.store.bucket, prefix)
        except PathError:
            return ()  # no job can be there
        ours = f"{prefix}{MAGIC_JOB_PREFIX}"
        listed = directories(self._runtime, f"{prefix}{MAGIC}")
        return tuple(one for one in listed if one == f"{prefix}{MAGIC}/" or one.startswith(ours))

    def _read(self, place: tuple[str, str]) -> Seen | None:
        prefix, directory = place
        seen = records.read(self._runtime, f"{directory}{RECORD}")
        if seen is not None:
            dest = Destination(self._runtime.store.bucket, prefix)
            if seen.record.paths(dest).record != seen.key:
                raise FormatError(seen.key, "id", "is not the one that its directory names")
        return seen


# What control objects name ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """What a control object says about an open upload.

    Attributes:
        uuid: the job's UUID; "": the upload is Hadoop's, unless the job whose record is in
            ``directory`` is alive.
        directory: the magic directory that holds the object.
        job: the job's id in that directory.
        token, multipart_etag: they identify the object that the upload became.
        age: of the control object, in seconds; the upload is older.
    """

    uuid: str
    directory: str
    job: str
    token: str
    multipart_etag: str
    age: float


class Index:
    """The open uploads (``wanted``, by `upload_name`) that control objects in these places name.

    Attributes:
        ages: seconds since the last change in each magic directory, by the store's clock; 0 if that
            is not known.
        unread: the directories of which not everything could be read.
        signed: whether a directory holds pendings of jobs of ours and no others. Without a record
            such a directory is a leftover of a job that is over.
    """

    def __init__(self, runtime: Runtime, places: Mapping[str, Place], wanted: KeySet) -> None:
        self._runtime = runtime
        self._wanted = wanted
        self._named: dict[bytes, tuple[Named, ...]] = {}
        self.ages: defaultdict[str, float] = defaultdict(float)
        self.unread: set[str] = set()
        self.signed: dict[str, bool] = {}
        self.problems: list[str] = []
        for prefix, place in places.items():
            for directory in place.directories:
                try:
                    self._read_directory(prefix, place, directory)
                except MagicError as error:  # from the listing itself
                    self._missed(directory, error)

    def get(self, key: str, upload_id: str) -> tuple[Named, ...]:
        """What names an upload: one item for each job that does."""
        return self._named.get(_digest(upload_name(key, upload_id)), ())

    def _read_directory(self, prefix: str, place: Place, directory: str) -> None:
        dest = Destination(self._runtime.store.bucket, prefix)
        adopted = {
            seen.record.paths(dest).tree: uuid
            for uuid, seen in place.records.items()
            if seen.record.adopted and seen.record.state is not State.CLOSED
        }
        listing = Listing(self._runtime, directory)
        for info, saved in each_saved(self._runtime, listing):
            if isinstance(saved, MagicError):
                self._missed(directory, saved)
                continue
            pendings, metadata = saved
            uuid = metadata.get(JOB_METADATA, "")
            self.signed[directory] = bool(uuid) and self.signed.get(directory, True)
            for tree in adopted if not uuid else ():
                if info.key.startswith(tree):
                    uuid = adopted[tree]
            try:
                self._add(dest, directory, uuid, info, pendings)
            except MagicError as error:
                self._missed(directory, error)
        self.ages[directory] = listing.age

    def _missed(self, directory: str, why: MagicError) -> None:
        self.unread.add(directory)
        if len(self.problems) < NAMED_MAX:
            self.problems.append(f"{directory}: not all that it names is known: {why}")

    def _add(
        self, dest: Destination, directory: str, uuid: str, info: ObjectInfo, named: list[Pending]
    ) -> None:
        age = age_of(info.seen_at, info.last_modified)
        for number, pending in enumerate(named):
            if pending.bucket != dest.bucket or not dest.contains(pending.destination_key):
                raise FormatError(info.key, "destinationKey", "lies outside the destination")
            name = upload_name(pending.destination_key, pending.upload_id)
            if name not in self._wanted:
                continue
            upload = from_pending(pending, f"{info.key}: {number}")
            job = job_id_of(directory, info.key)
            others = self._named.get(_digest(name), ())
            if all((one.uuid, one.directory) != (uuid, directory) for one in others):
                one = Named(uuid, directory, job, upload.token, upload.multipart_etag, age)
                self._named[_digest(name)] = (*others, one)


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
