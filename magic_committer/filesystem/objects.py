"""Objects that are there already, put into a task: the store copies them, and no byte comes here.

Invariants:

* A listing names what is copied, with its ETag; each part is copied only from an object of that
  ETag. What changes meanwhile is an error. Some stores ignore the condition (Ceph RGW, moto): so a
  part whose own ETag does not prove what was copied is followed by a look at the object.
* Nothing is left out in silence, as with files of this machine (`local`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from magic_committer._hints import SOURCE_CHANGED
from magic_committer._quantities import name_some
from magic_committer.errors import NotFound, PathError, UploadFailed
from magic_committer.filesystem.sink import Sink
from magic_committer.hadoop.paths import (
    SUCCESS,
    Destination,
    check_name,
    has_token,
    is_control_element,
    is_hidden,
    is_s3_url,
    parse_url,
    shown,
    without_token,
)
from magic_committer.stores.base import (
    Attributes,
    ObjectSlice,
    ObjectStore,
    listed,
    objects,
    same_etag,
)
from magic_committer.upload import COPY_PART_BYTES, UploadStream

TEMPORARY = "_temporary"
"""The directory in which other committers of Hadoop keep what is not published yet."""


@dataclass(frozen=True, slots=True)
class SourceObject:
    """An object, and its name below the destination."""

    whole: ObjectSlice
    name: str

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.whole.length

    def put(self, sink: Sink, *, unique: bool, attributes: Attributes) -> int:
        """Begin a file of the task, and let the store copy the object into it. Gives its bytes.
        Raises UploadFailed: the object changed meanwhile; and as `Task.open`."""
        unchanged = partial(self._refuse_changes, sink.reach(self.whole.bucket))
        if not self.size:  # no part of it is copied on a condition
            unchanged()
        to = sink.open(self.name, unique=unique, attributes=attributes).stream
        assert isinstance(to, UploadStream)  # it was just opened, on S3
        with to:
            whole = self.whole
            to.take_object(whole.bucket, whole.key, whole.etag, whole.length, unchanged)
        return self.size

    def _refuse_changes(self, store: ObjectStore) -> None:
        """Look at the object again. Raises UploadFailed: it is another one now, or gone."""
        whole = self.whole
        try:
            now = store.head(whole.key).etag
        except NotFound as error:
            raise UploadFailed(error.message, hint=SOURCE_CHANGED) from error
        if not same_etag(now, whole.etag):
            raise UploadFailed(
                f"s3://{whole.bucket}/{whole.key} has the ETag {now}, not {whole.etag}",
                hint=SOURCE_CHANGED,
            )
        decoded = unquote(whole.key)
        if decoded != whole.key and listed(store, decoded) is not None:
            raise UploadFailed(
                f"whether s3://{whole.bucket}/{whole.key} was copied, or {decoded!r} beside it,"
                " cannot be told: some stores decode a source's name twice (Ceph RGW)",
                hint="Rename one of the two, and copy again",
            )

    def is_small(self, sink: Sink) -> bool:
        """Whether it is one part."""
        return self.size <= COPY_PART_BYTES


def objects_in(
    store: ObjectStore,
    source: str,
    dest: str,
    below: str = "",
    *,
    hidden: bool = False,
    unique: bool = False,
) -> tuple[list[SourceObject], tuple[str, ...]]:
    """All objects below a URL that ends in ``/``, or the one object of another; and the names that
    are left out. ``below``: what goes before the names, without a slash at its end; of one object:
    its name. ``hidden``: also those with an element that begins with ``_`` or ``.``; never those of
    committers. ``unique``: they get the job's UUID, so the token of another job becomes plain
    digits. Raises PathError: there is none; one carries another job's token, without ``unique``;
    source and destination lie in each other; or the destination is a file system. Raises
    StoreError: they cannot be listed."""
    if not is_s3_url(dest):
        raise PathError(
            f"objects are copied on S3 only, not to {dest}", hint="Download them, and put_directory"
        )
    place = parse_url(source)
    directory = not place.key or place.key.endswith("/")
    _refuse_itself(place.bucket, place.key, Destination.parse(dest))
    found, left_out = list[SourceObject](), list[str]()
    for info in objects(store, place.key):
        name = info.key[len(place.key) :] if directory else place.key.rpartition("/")[2]
        if not directory and info.key != place.key:
            break  # the key itself comes first
        if name.endswith("/") or not name:  # a directory's marker
            left_out += [name or info.key] * bool(info.size)  # or an object with an odd name
            continue
        elements = name.split("/")
        controls = any(map(is_control_element, elements)) or TEMPORARY in elements
        controls = controls or name == SUCCESS
        if controls or (directory and is_hidden(name) and not hidden):
            left_out.append(name)
            continue
        named = f"{below}/{name}" if below and directory else below or name
        named = _without_token(named, unique=unique)
        try:
            check_name(named)
        except PathError as error:
            told = f"s3://{place.bucket}/{info.key} cannot be copied: {error.message}"
            raise PathError(told, hint=error.advice) from error
        whole = ObjectSlice(place.bucket, info.key, info.etag, 0, info.size, info.size)
        found.append(SourceObject(whole, named))
    if not found:
        raise PathError(
            f"{source} has no object to copy"
            + (f"; left out: {name_some(left_out)}" if left_out else ""),
            hint="Check the URL: that of a directory ends in '/', that of one object does not"
            " (job.copy); hidden objects are copied with hidden=True (--hidden)",
        )
    return found, tuple(left_out)


def _without_token(name: str, *, unique: bool) -> str:
    if has_token(name) and not unique:
        raise PathError(
            f"{shown(name)} carries the token of the job that wrote it, whose clean-up would abort"
            " the upload",
            hint="Copy with unique=True (--unique): the names get this job's token instead",
        )
    return without_token(name)


def _refuse_itself(bucket: str, key: str, dest: Destination) -> None:
    """Refuse a directory that holds the destination, or that a `replace` of it would delete."""
    inside = dest.prefix.startswith(key) and (not key or key.endswith("/"))
    beneath = key.startswith(dest.prefix) and not is_hidden(key.removeprefix(dest.prefix))
    if bucket == dest.bucket and (inside or beneath):
        raise PathError(
            f"s3://{bucket}/{key} and {dest.url} lie in each other",
            hint="Stage beside the destination, or in a directory of it that begins with '_'",
        )
