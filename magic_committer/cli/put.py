"""``put`` and ``promote``: a directory of this machine, or objects of another prefix, published all
or nothing.

Invariants:

* What cannot be put is an error before the question, and before a job is started.
* What the question says is what is put: if the directory has changed since, nothing is published.
* A mode that may take something away asks, whatever is there now: a script that was right in an
  empty bucket does not begin to ask later. Modes that refuse instead (``fail``) do not ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import click

from magic_committer.api import write
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, options, root
from magic_committer.cli.jobs import code_of, shown
from magic_committer.cli.shell import Shell, command
from magic_committer.cli.values import DIRECTORY, HEADER, MODE, PLACE, dry_run
from magic_committer.commit.conflict import existing, partitions_of
from magic_committer.errors import MagicError, UploadFailed
from magic_committer.errors.messages import bytes_words, counted
from magic_committer.filesystem.put import PutItem, files_in, objects_in, refuse_itself
from magic_committer.hadoop.manifests import check_file_name
from magic_committer.hadoop.paths import Destination, is_s3_url
from magic_committer.options import BY_PARTITION, FAILING, REPLACING, Mode, SparkMode, mode_of
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import Attributes
from magic_committer.stores.urls import is_tree

LOOKING_IN_FLIGHT = 16
"""Listings of the destination at the same time."""


def _present(
    runtime: Runtime, dest: Destination, mode: Mode, files: Sequence[PutItem], unique: bool
) -> dict[str, Any]:
    """What of the destination matters to a job that is about to be started: how many objects lie at
    names that it writes, and how many other ones its mode deletes; or the first because of which
    its mode refuses. ``unique``: the names get the job's UUID: none of them is there. Only listings
    are sent."""
    keys = {dest.prefix + file.name for file in files}
    parts = partitions_of(dest, keys)
    within = parts if mode in BY_PARTITION else None
    found: dict[str, Any] = {"over": 0, "deleted": 0, "refused": ""}
    if not unique and mode not in FAILING:
        # Hidden keys too: they are no data, and written over all the same.
        for part in parts:
            for page in runtime.store.list(dest.prefix + part, delimiter="/"):
                found["over"] += sum(info.key in keys for info in page.objects)
    if mode in FAILING or mode in REPLACING:
        kept = set[str]() if unique else keys
        runtime = replace(runtime, in_flight=LOOKING_IN_FLIGHT)
        with closing(existing(runtime, dest, within)) as there:
            if mode in FAILING:
                found["refused"] = next((info.key for info in there), "")
            else:
                found["deleted"] = sum(info.key not in kept for info in there)
    return found


def _would(dest: Destination, what: str, present: Mapping[str, Any]) -> str:
    """What a run does, in a sentence without its stop. Pure."""
    if present["refused"]:
        return f"Refuse to put {what} into {dest.url}: there is data, {present['refused']}"
    kind = "file" if is_tree(dest.bucket) else "object"
    over = f"write over {counted(present['over'], kind)} there" if present["over"] else ""
    others = counted(present["deleted"], f"other {kind}")
    fate = " and ".join(filter(None, (over, f"delete {others}" if present["deleted"] else "")))
    return f"Put {what} into {dest.url}{fate and f', {fate}'}"


_options = options(
    click.option(
        "--mode", type=MODE, default="append", metavar="MODE", show_default=True,
        help="What becomes of data at DEST: append (beside it), fail, replace (all of it),"
        " fail_partitions, replace_partitions (the directories that are written). Spark's words"
        " too.",
    ),
    click.option("--hidden", is_flag=True, help="Hidden files and directories, too."),
    click.option(
        "--unique", is_flag=True,
        help="Put the job's UUID into each name: a cleanup after a kill then finds all uploads.",
    ),
    click.option(
        "--content-type", type=HEADER, metavar="TYPE",
        help="The content type of each file; guessed from its name by default.",
    ),
    click.option("--no-success", is_flag=True, help="Write no _SUCCESS."),
    dry_run,
)  # fmt: skip


@command(root, "promote", WORDS["promote"], "s3://bucket/staging/today s3://bucket/table --dry-run")
@click.argument("source", type=DIRECTORY, metavar="SOURCE")
@click.argument("dest", type=DIRECTORY, metavar="DEST")
@_options
def promote(
    shell: Shell, source: Destination, dest: Destination, hidden: bool, unique: bool, **how: Any
) -> int:
    """Publish the objects below SOURCE at DEST: all of them, or none. The store copies them.

    SOURCE is s3://bucket/staging/x, DEST is s3://bucket/table, at the same endpoint. After an
    error or Ctrl-C nothing is visible, and no upload is open. SOURCE stays. Modes that may write
    over something or delete it ask, or want --yes.

    Left out are objects with an element that begins with _ or . (--hidden copies them, too), and
    what committers keep. An object that changes meanwhile is an error. Content types, metadata and
    tags are not copied.
    """
    store = shell.runtime(source.bucket).store
    found, left_out = objects_in(store, source.url, dest.url, hidden=hidden, unique=unique)
    return _publish(shell, source.url, dest, found, left_out, hidden=hidden, unique=unique, **how)


@command(
    root,
    "put",
    WORDS["put"],
    "./site s3://bucket/site --mode replace --dry-run",
    "./out s3://bucket/table --unique --yes",
)
@click.argument("directory", metavar="DIRECTORY")
@click.argument("dest", type=PLACE, metavar="DEST")
@_options
def put(shell: Shell, directory: str, dest: Destination, hidden: bool, **how: Any) -> int:
    """Publish the files of a directory of this machine at DEST: all of them, or none.

    DEST is s3://bucket/path or file:///path. After an error or Ctrl-C nothing is visible, and no
    upload is open. Modes that may write over something or delete it ask, or want --yes.

    Hidden files are left out, and so is a _SUCCESS at the top: the job writes its own. Links to
    files are followed; a link to a directory, a pipe or a device is an error.
    """
    refuse_itself(directory, dest.url)
    try:
        files, left_out = files_in(directory, hidden=hidden)
    except OSError as error:
        raise MagicError(f"{directory} cannot be read: {error}") from error
    if is_tree(dest.bucket):
        for file in files:
            check_file_name(file.name)
    return _publish(shell, directory, dest, files, left_out, hidden=hidden, **how)


def _publish(
    shell: Shell,
    source: str,
    dest: Destination,
    files: Sequence[PutItem],
    left_out: tuple[str, ...],
    *,
    mode: Mode | SparkMode,
    hidden: bool,
    unique: bool,
    content_type: str | None,
    no_success: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    put_mode, size = mode_of(mode), sum(file.size for file in files)
    if dry_run or (put_mode not in FAILING and not yes):
        present = _present(shell.runtime(dest.bucket), dest, put_mode, files, unique)
        would = _would(dest, f"{counted(len(files), 'file')}, {bytes_words(size)}", present)
        if dry_run:
            told = {"dest": dest.url, "mode": put_mode, "would": would, "files": len(files)}
            told |= {"bytes": size, "left_out": list(left_out), **present}
            shell.output.document("put.dry_run", told, shown(told))
            return exits.BAD_STATE if present["refused"] else exits.OK
        shell.confirm(f"{would}?")
    attributes = None if content_type is None else Attributes(content_type=content_type)
    writing = write(
        dest.url, mode=mode, mark_success=not no_success, s3=shell.s3, progress=shell.progress
    )
    with writing as job:
        put = job.copy if is_s3_url(source) else job.put_directory
        done = put(source, hidden=hidden, unique=unique, attributes=attributes)
        if (done.files, done.bytes, done.left_out) != (len(files), size, left_out):
            raise UploadFailed(  # the block then publishes nothing
                f"{source} changed while it was put: first it had"
                f" {counted(len(files), 'file')} of {size:,} bytes, then"
                f" {counted(done.files, 'file')} of {done.bytes:,}",
                hint="Put it again when nobody writes into it any more",
            )
    report = writing.report
    value = {**report.to_dict(), "left_out": list(done.left_out)}
    shell.output.document("put", value, shown(value))
    return code_of(report)
