"""The scratch directory of a staged job: ``<via>/magic-<uuid of the job>/``.

::

    owner.json    names the job; its nonce tells an executor that it sees this very directory
    alive         rewritten by the driver as long as the job runs; its time is a sign of life
    data/         what Spark's own writer writes, and commits

Invariants:

* On a file system of the machine nobody but the owner of the job's processes can read it: it holds
  the user's data. On HDFS its umask decides.
* Only a directory that is ours is ever removed: it belongs to the same user, has the name, and an
  ``owner.json`` of that job. One that vanishes while it is looked at is passed over.
  A JVM task that Spark gave up may make the directory anew after its removal. It then holds nothing
  but `BONES`, and is ours too.
* A directory that its driver did not remove is removed by a later job with the same ``via``, when
  it has shown no sign of life for `DEAD_AFTER_SECONDS`. Ages are differences between times of the
  file system: no clock of a machine matters.

All access is by `pyarrow.fs`: the same code for a local or mounted file system, and for HDFS.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from magic_committer import _wiring
from magic_committer._runtime import new_id
from magic_committer.commit.fence import ALIVE_SECONDS
from magic_committer.errors import MagicError, OptionError, WrongType
from magic_committer.hadoop.paths import is_hidden
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS

logger = logging.getLogger("magic_committer")

FORMAT = "magic-committer scratch/1"
"""What an ``owner.json`` begins with."""
OWNER, ALIVE, DATA, SUCCESS = "owner.json", "alive", "data", "_SUCCESS"
BONES = frozenset({ALIVE, f"{DATA}/_temporary"})
"""What late writers may make anew in a directory that was removed."""
OWNER_BYTES_MAX = 64 * 1024
"""A larger ``owner.json`` is not ours."""
REMOVE_TRIES = 3
"""How often a removal is tried: a JVM task that Spark gave up may write meanwhile."""

_NAME = re.compile(r"magic-([0-9a-f]{32})")
_HDFS = re.compile(r"hdfs://(?P<host>[^/:]*)(?::(?P<port>\d+))?(?P<path>/.*)")


@dataclass(frozen=True)
class StagedFile:
    """A file that Spark's writer committed.

    Attributes:
        name: its path below ``data``, with ``/``.
        size: in bytes.
        mtime_ns: when it was last changed, as the file system says, in nanoseconds.
    """

    name: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class ScratchPlace:
    """A ``via`` that was understood. Plain data: it travels to tasks.

    Attributes:
        url: for Spark, without a trailing slash.
        path: the same on its file system.
        host: HDFS's name node; "" for the default one; None for local files.
        port: of the name node, 0 if the URL has none.
    """

    url: str
    path: str
    host: str | None = None
    port: int = 0

    @classmethod
    def parse(cls, via: object) -> ScratchPlace:
        """Understand a ``via``. Touches no file.

        Raises:
            WrongType: it is no text.
            OptionError: it is no URL of these file systems.
        """
        if isinstance(via, Path):
            raise WrongType(
                f"via is a URL, not {via!r}", hint=f"Pass via={via.absolute().as_uri()!r}"
            )
        if not isinstance(via, str):
            raise WrongType(f"via is a URL, not {via!r}", hint="Pass via='file:///scratch'")
        if via.startswith("file:///") and via.strip("/") != "file:":
            path = os.path.normpath(via.removeprefix("file://"))
            return cls(f"file://{path}", path)
        hdfs = _HDFS.fullmatch(via)
        if hdfs and hdfs["path"].strip("/"):
            path = hdfs["path"].rstrip("/")
            return cls(via.rstrip("/"), path, hdfs["host"], int(hdfs["port"] or 0))
        raise OptionError(
            f"via={via!r} is no directory that Spark's writer and our tasks can share",
            hint="Pass an absolute URL like 'file:///scratch', a directory that driver and"
            " executors share; or 'hdfs://namenode:8020/scratch'",
        )

    @cached_property
    def files(self) -> Any:
        """The file system, as pyarrow has it.

        Raises:
            OptionError: this process cannot reach HDFS.
        """
        from pyarrow import fs

        if self.host is None:
            return fs.LocalFileSystem()
        try:
            return fs.HadoopFileSystem(self.host or "default", self.port)
        except OSError as error:
            raise OptionError(
                f"via={self.url!r}: HDFS cannot be reached from Python: {_first_line(error)}",
                hint="pyarrow needs Hadoop's libhdfs and its class path, on the driver and on each"
                " executor: set HADOOP_HOME and CLASSPATH=$(hadoop classpath --glob). Or pass a"
                " via='file:///…' that they share",
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "files"}

    def check(self) -> None:
        """See on the driver that the directory is there.

        Raises:
            OptionError: it is not.
        """
        from pyarrow import fs

        found = self.files.get_file_info(self.path)
        if found.type != fs.FileType.Directory:
            raise OptionError(
                f"via={self.url!r}: there is no such directory on the driver",
                hint="Make it, on a file system that driver and executors share",
            )


@dataclass(frozen=True)
class Staging:
    """One job's directory. Plain data: it travels to tasks.

    Attributes:
        place: where it is.
        uuid: the job's.
        nonce: drawn when it was made.
    """

    place: ScratchPlace
    uuid: str
    nonce: str

    @classmethod
    def make(cls, place: ScratchPlace, uuid: str, dest: str) -> Staging:
        """Make the directory of a job.

        Raises:
            OptionError: it cannot be made.
        """
        made = cls(place, uuid, new_id())
        owner = {"format": FORMAT, "job": uuid, "nonce": made.nonce, "dest": dest}
        try:
            if place.host is None:
                os.mkdir(made.path, 0o700)
            else:
                place.files.create_dir(made.path, recursive=False)
            made._write(OWNER, json.dumps(owner | {"driver": socket.gethostname()}).encode())
            made._write(ALIVE, b"1")
        except OSError as error:
            raise OptionError(
                f"via={place.url!r}: a directory cannot be made there: {_first_line(error)}",
                hint="The driver and Spark's tasks need to write there, as one user",
            ) from error
        return made

    @property
    def path(self) -> str:
        """Where it is on its file system."""
        return f"{self.place.path}/magic-{self.uuid}"

    @property
    def data_url(self) -> str:
        """Where Spark's writer writes."""
        return f"{self.place.url}/magic-{self.uuid}/{DATA}"

    # Its life -------------------------------------------------------------------------------------

    def keep_alive(self) -> Callable[[], None]:
        """Give signs of life; the function that is returned ends them."""
        return _wiring.pool.every(ALIVE_SECONDS, self._give_sign)

    def _give_sign(self) -> bool:
        try:
            self._write(ALIVE, b"1")
        except OSError as error:
            logger.warning("%s: no sign of life: %s", self.path, _first_line(error))
        return True

    def remove(self) -> bool:
        """Remove the directory with all that is in it. A failure is logged: a later job removes the
        rest by its age.

        Returns:
            Whether it is gone.
        """
        failure = ""
        for _ in range(REMOVE_TRIES):
            try:
                self.place.files.delete_dir(self.path)
                return True
            except FileNotFoundError:
                return True
            except OSError as error:
                failure = _first_line(error)
        logger.warning(
            "the scratch directory %s could not be removed: %s. A later job with the same via"
            " removes it, after %.0f hours", self.path, failure, DEAD_AFTER_SECONDS / 3600,
        )  # fmt: skip
        return False

    # What tasks ask -------------------------------------------------------------------------------

    def wrong_here(self) -> str:
        """Tell why this process does not see the directory; "" if it does."""
        try:
            nonce = _owner_of(self.place.files, self.path).get("nonce")
        except OptionError as error:
            return f"{socket.gethostname()}: {error.message}"
        except OSError as error:
            return f"{socket.gethostname()}: {_first_line(error)}"
        if nonce != self.nonce:
            return f"{socket.gethostname()}: another directory has this name"
        return ""

    def read(self, file: StagedFile, use: Callable[[bytes], object], chunk_bytes: int) -> None:
        """Read a file from its beginning to its end, and see that it is what was planned.

        Raises:
            MagicError: it has changed since the driver listed it. What was used must be given up.
            OSError: it cannot be read.
        """
        path = f"{self.path}/{DATA}/{file.name}"
        self._refuse_changed(file, path)
        size = 0
        # Without compression=None pyarrow would unpack what ends with .gz.
        with self.place.files.open_input_stream(path, compression=None) as source:
            while chunk := source.read(chunk_bytes):
                use(chunk)
                size += len(chunk)
        if size != file.size:
            raise _changed(path, f"{size} bytes were read", file)
        self._refuse_changed(file, path)

    def _refuse_changed(self, file: StagedFile, path: str) -> None:
        found = self.place.files.get_file_info(path)
        if (found.size, found.mtime_ns) != (file.size, file.mtime_ns):
            raise _changed(path, f"{found.size} bytes, changed at {found.mtime_ns} ns", file)

    # What the driver asks -------------------------------------------------------------------------

    def staged(self) -> list[StagedFile]:
        """List what Spark's writer committed, without what is hidden.

        Raises:
            MagicError: the writer's own marker is not there: what is there may be a part.
        """
        from pyarrow import fs

        root = f"{self.path}/{DATA}/"
        try:
            listed = self.place.files.get_file_info(fs.FileSelector(root, recursive=True))
        except FileNotFoundError:
            listed = []
        found = {one.path.removeprefix(root): one for one in listed if one.type == fs.FileType.File}
        if SUCCESS not in found:
            raise MagicError(
                f"Spark's writer left no {SUCCESS} in {root}: the driver's Python does not see what"
                " its JVM wrote",
                hint="Pass a via that is the same directory for both",
            )
        return [
            StagedFile(name, one.size, one.mtime_ns)
            for name, one in sorted(found.items())
            if not is_hidden(name)
        ]

    def _write(self, name: str, body: bytes) -> None:
        with self.place.files.open_output_stream(f"{self.path}/{name}") as file:
            file.write(body)


def remove_dead(own: Staging, dead_after: float = DEAD_AFTER_SECONDS) -> list[str]:
    """Remove the directories that killed drivers left beside a job's own. A failure is logged: it
    does not concern the job.

    Args:
        own: the directory of the job that asks. The time of its sign of life is "now".
        dead_after: seconds without a sign of life.

    Returns:
        The paths that were removed.
    """
    place = own.place
    removed: list[str] = []
    try:
        now = place.files.get_file_info(f"{own.path}/{ALIVE}").mtime_ns
        found = list(_named_so(own))
    except OSError as error:
        logger.warning("%s: left-overs cannot be looked for: %s", place.url, _first_line(error))
        return removed
    for path, uuid in found:
        try:
            if now is None or uuid == own.uuid or not _is_ours(place.files, path, uuid):
                continue
            changed = _last_change(place.files, path)
        except OSError as error:  # another job removes it, perhaps
            logger.info("%s: cannot be looked at: %s", path, _first_line(error))
            continue
        if changed is None:
            continue
        seconds = (now - changed) / 1e9
        if seconds >= dead_after and Staging(place, uuid, "").remove():
            logger.warning("%s: removed, its driver died %.0f s ago", path, seconds)
            removed.append(path)
    return removed


def _named_so(own: Staging) -> Iterator[tuple[str, str]]:
    """Paths and UUIDs of the directories that are named like ours. Links are not ours, and
    directories of other users are not: what lies there may be a trap, like a pipe that nobody
    writes to."""
    from pyarrow import fs

    place = own.place
    user = None if place.host is not None else os.lstat(own.path).st_uid
    for found in place.files.get_file_info(fs.FileSelector(place.path)):
        name = _NAME.fullmatch(found.base_name)
        if not name or found.type != fs.FileType.Directory:
            continue
        if user is None or _is_directory_of(found.path, user):
            yield found.path, name[1]


def _is_directory_of(path: str, user: int) -> bool:
    try:
        seen = os.lstat(path)
    except FileNotFoundError:  # another job has removed it
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == user


def _is_ours(files: Any, path: str, uuid: str) -> bool:
    try:
        return bool(_owner_of(files, path).get("job") == uuid)
    except FileNotFoundError:
        return _only_bones(files, path)
    except OSError:
        return False  # of another user, perhaps: it cannot be read


def _only_bones(files: Any, path: str) -> bool:
    from pyarrow import fs

    def names(below: str) -> set[str]:
        return {one.base_name for one in files.get_file_info(fs.FileSelector(below))}

    found = names(path)
    if DATA in found:
        found = (found - {DATA}) | {f"{DATA}/{name}" for name in names(f"{path}/{DATA}")}
    return found <= BONES


def _last_change(files: Any, path: str) -> int | None:
    """When something last changed in a directory of ours, in nanoseconds; None: it is gone."""
    parts = ("", f"/{OWNER}", f"/{ALIVE}", f"/{DATA}", f"/{DATA}/_temporary")
    times: Iterable[int | None] = (
        one.mtime_ns for one in files.get_file_info([path + part for part in parts])
    )
    return max((time for time in times if time is not None), default=None)


def _owner_of(files: Any, path: str) -> dict[str, Any]:
    """What ``owner.json`` says; {} if it is not one of ours.

    Raises:
        OSError: it cannot be read.
    """
    with files.open_input_stream(f"{path}/{OWNER}") as file:
        body = file.read(OWNER_BYTES_MAX)
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) and said.get("format") == FORMAT else {}


def _changed(path: str, found: str, file: StagedFile) -> MagicError:
    return MagicError(
        f"{path} is not what Spark's writer left: {found}, planned were {file.size} bytes, changed"
        f" at {file.mtime_ns} ns",
        hint="Nobody else may write into a job's scratch directory: pass another via",
    )


def _first_line(error: OSError) -> str:
    """pyarrow tells all places where it looked for HDFS's library, in a hundred lines."""
    return str(error).partition("\n")[0]
