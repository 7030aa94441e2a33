"""Which file tree a URL names, and how each kind creates exclusively and renames. fsspec is
imported only where needed.

Sessions of one SFTP connection, for many threads: paramiko's `SFTPClient` is for one. Of two that
ask at once, each reads the other's answer from the wire and throws it away, and both wait for ever.
So a few sessions share the connection, each is used by one thread at a time, and a file stays with
the session that opened it. A connection that is lost is made again by the next call. What was asked
when it broke fails, and may have taken effect; files that were open are lost.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import GeneratorType
from typing import Any, BinaryIO, ClassVar, NoReturn, cast

from magic_committer.errors import OptionError, Unanswered
from magic_committer.runtime.components import SystemClock, again
from magic_committer.stores.trees.base import FileTree, TreePromises, of_driver
from magic_committer.stores.trees.disk import LocalTree
from magic_committer.stores.trees.through_fsspec import FsspecTree, Info, is_there
from magic_committer.stores.urls import host_and_path, local_path, tree_url

SESSIONS_MAX = 8
"""OpenSSH allows 10 for each connection (MaxSessions); where fewer are allowed, fewer are used."""
SOCKET_SECONDS = 60.0
"""How long a call waits for an answer; paramiko itself would wait for ever."""
READS_MAX = 10
"""How often a file of HDFS is opened of which too few bytes can be read yet."""
READ_PAUSE_SECONDS = 0.01
"""Before the second time. It doubles: five seconds in all."""
_EXTENDED = 200
"""SSH_FXP_EXTENDED: a request that is named."""


class SftpSessions:
    """Stands for the `SFTPClient` of a connected ``SFTPFileSystem``: it has the same methods."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self._lock = threading.Lock()
        self._sessions = [_Session(fs.ftp)]
        self._max = SESSIONS_MAX

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            session = self._session()
            result = session.told(getattr(session.client, name), *arguments, **named)
            return SessionFile(session, result) if name == "open" else result

        return call

    def hardlink(self, old: str, new: str) -> None:
        """Give a file a second name, which must be free: what paramiko has no method for."""
        session = self._session()
        session.told(session.client._request, _EXTENDED, "hardlink@openssh.com", old, new)

    def _session(self) -> _Session:
        """One that is free; else the one whose turn it is, and its user must be waited for."""
        with self._lock:
            if not self._fs.client.get_transport().is_active():
                self._connect()
            self._sessions = [session for session in self._sessions if not session.broken]
            for session in self._sessions:
                if session._lock.acquire(blocking=False):  # nobody uses it at this moment
                    session._lock.release()
                    return session
            if len(self._sessions) < self._max:
                try:
                    self._sessions.append(_Session(self._fs.client.open_sftp()))
                    return self._sessions[-1]
                except Exception:
                    if not self._sessions:
                        raise
                    self._max = len(self._sessions)  # the server allows no more
            self._sessions.append(self._sessions.pop(0))
            return self._sessions[-1]

    def _connect(self) -> None:
        self._fs.client.close()
        self._fs._connect()  # puts a client of its own into fs.ftp
        client, self._fs.ftp = self._fs.ftp, self
        self._sessions = [_Session(client)]
        self._max = SESSIONS_MAX


class _Session:
    """A paramiko client, and the lock of those who use it. ``broken``: an answer may still be on
    its way, or half of one was read: it is not used again."""

    def __init__(self, client: Any) -> None:
        client.get_channel().settimeout(SOCKET_SECONDS)
        self.client = client
        self.broken = False
        self._lock = threading.RLock()

    def told(self, verb: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Ask something, alone. Its answer asks no more while it is read."""
        with self._lock:
            try:
                answer = verb(*arguments, **named)
                return list(answer) if isinstance(answer, GeneratorType) else answer
            except Exception as error:
                channel = self.client.get_channel()
                if isinstance(error, TimeoutError) or channel is None or channel.closed:
                    self.broken = True
                    self.client.close()
                raise


class SessionFile:
    """A file of a session: each call waits until nobody else uses the session."""

    def __init__(self, session: _Session, file: Any) -> None:
        self._session = session
        self._file = file

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        return partial(self._session.told, found) if callable(found) else found

    def __enter__(self) -> SessionFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# What fsspec has no verb for ----------------------------------------------------------------------
#
# fsspec gives all file systems the same verbs, and each of them means something else: ``mv``
# replaces, refuses, copies and deletes, or does nothing, in silence. The store needs two
# promises (`base`): a rename that uses its source up, and one that is exclusive. A class
# says how one kind keeps them. What cannot keep them is refused by name, with the reason
# (`stores.urls.REFUSED`).
#
# | protocol | exclusive rename | rename | etag of data | directories |
# |---|---|---|---|---|
# | ``memory`` | under a lock of this process | under the same lock | the file's own | as needed |
# | ``sftp``, ``ssh`` | link and unlink | posix-rename | seconds and size | real |
# | ``hdfs`` | the NameNode's | the NameNode's | milliseconds and size | real |
# | ``gs``, ``gcs`` | ``moveTo``, ``ifGenerationMatch=0`` | ``moveTo`` | MD5 or CRC32C | none |
#
# None of them has attributes that this library can set through its driver: the mark of a control
# object is the end of its bytes (`through_fsspec`). Times of whole seconds tell two files of one
# size not apart: on SFTP the modes that replace are refused.
#
# The contract and whole jobs run on the real servers (tests/real_trees): OpenSSH, a NameNode and
# DataNodes of Hadoop 3.5.0; for ``gs`` on fake-gcs-server, where a proxy answers ``moveTo``, which
# that server has not. What they showed:
#
# * A package may take a protocol over in fsspec's own table, as sshfs and hdfs-native do. So each
#   dialect names the class that it was written for, and no other is taken.

# * OpenSSH's sftp-server answers SSH_FXP_RENAME by ``link`` and ``unlink``, which fails if the name
#   is taken, and by a look and a rename where the disk has no links. So a create is a
#   hardlink@openssh.com, and where there are no links it fails. It says "Failure", whatever the
#   reason: so a failure is followed by a look.
# * pyarrow's HDFS cannot be used: its move deletes a file at the target and goes on, and its
#   streams overwrite. hdfs-native gives the NameNode's own answers. It shows no inode, so no etag.

# * gcsfs sends the condition for ``mode="create"``, and gives 412 as FileExistsError. Its own
#   ``mv`` falls back to a copy and a delete, in silence: so ``moveTo`` is called here. An etag
#   of the content is the same for two files of the same bytes, which does no harm.


class MemoryTree(FsspecTree):
    """fsspec's memory: it looks and then writes, in two steps, so one lock makes them one. It lives
    as long as the process."""

    driver = "fsspec.implementations.memory:MemoryFileSystem"
    promises = TreePromises(directories=False)
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def _reader(self, path: str) -> BinaryIO:
        return io.BytesIO(self._fs.cat_file(path))

    def _writer(self, path: str) -> BinaryIO:
        with self._lock:
            return super()._writer(path)

    def _claim(self, source: str, target: str) -> None:
        with self._lock:
            if self._fs.exists(target):
                raise is_there(target)
            self._replace(source, target)

    def _replace(self, source: str, target: str) -> None:
        with self._lock:
            if not self._fs.isfile(source):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
            store = self._fs.store
            store[target] = store.pop(source)
            store[target].path = target

    def _etag(self, info: Info) -> str:
        return super()._etag({"mtime": info["created"], "size": info["size"]})


class SftpTree(FsspecTree):
    """OpenSSH's rules, by paramiko."""

    driver = "fsspec.implementations.sftp:SFTPFileSystem"
    package = "paramiko"
    promises = TreePromises(tells_apart=False)

    @staticmethod
    def connected(fs: Any) -> None:
        if not isinstance(fs.ftp, SftpSessions):
            fs.ftp = SftpSessions(fs)

    def _info(self, path: str) -> Info:
        found = self._fs.ftp.lstat(path)
        kinds = {0o040000: "directory", 0o100000: "file"}
        kind = kinds.get((found.st_mode or 0) & 0o170000, "other")
        return {"name": path, "type": kind, "size": found.st_size, "mtime": found.st_mtime}

    def _writer(self, path: str) -> BinaryIO:
        # "xb" alone opens no file for writing: paramiko asks for the right only if there is a "w".
        try:
            return cast("BinaryIO", self._fs.open(path, "wxb"))
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            self._raise_why(error, path)

    def _claim(self, source: str, target: str) -> None:
        """By a link and an unlink. On a disk without links this fails; there SSH_FXP_RENAME looks,
        and then renames, so that two may rename to one target."""
        try:
            self._fs.ftp.hardlink(source, target)
        except FileExistsError:
            raise
        except OSError as error:
            # The source first: if another driver has done this rename, the source is gone, and the
            # file at the target is ours, not a stranger's.
            self._info(source)
            # The source was written by us, in this directory: no right is missing.
            if isinstance(error, PermissionError) or "unsupported" in str(error).lower():
                told = "the server makes no hard links here (hardlink@openssh.com)"
                error = OSError(errno.ENOTSUP, told)
            self._raise_why(error, target)
        with suppress(FileNotFoundError):
            self._fs.rm_file(source)

    def _raise_why(self, error: OSError, path: str) -> NoReturn:
        """Raise that something is at a path; otherwise what the server said."""
        try:
            self._info(path)
        except FileNotFoundError:
            raise error from None
        raise is_there(path) from error


class HdfsTree(FsspecTree):
    """HDFS, by hdfs-native: the NameNode itself creates and renames under its lock, and says why it
    refused."""

    driver = "hdfs_native.fsspec:HdfsFileSystem"
    package = "hdfs-native"

    def _reader(self, path: str) -> BinaryIO:
        # Where a close need not wait for the last block (num-committed-allowed), the driver reads
        # without that block until the NameNode has heard of it.
        for _ in again(SystemClock(), READS_MAX, READ_PAUSE_SECONDS):
            file = super()._reader(path)
            if (has := file.size) >= (whole := self._info(path)["size"]):  # type: ignore[attr-defined]
                return file
        raise Unanswered(f"read of {path}: {has} of its {whole} bytes can be read yet")

    def _writer(self, path: str) -> BinaryIO:
        # What fs.open has no argument for. The class is the one beside the driver's, which may be a
        # stand-in of tests.
        options = sys.modules[type(self._fs).__module__].WriteOptions
        made = self._fs.client.create(path, options(overwrite=False, create_parent=False))
        return cast("BinaryIO", made)

    def _claim(self, source: str, target: str) -> None:
        self._fs.client.rename(source, target, False)

    def _replace(self, source: str, target: str) -> None:
        self._fs.client.rename(source, target, True)

    def _remove_empty(self, path: str) -> bool:
        try:
            self._fs.rmdir(path)
        except RuntimeError as error:
            if "PathIsNotEmptyDirectoryException" not in str(error):
                raise
            return False
        return True


class GoogleTree(FsspecTree):
    """Google Cloud Storage, by gcsfs: conditions on generations, and `moveTo`."""

    driver = "gcsfs.core:GCSFileSystem"
    package = "gcsfs"
    promises = TreePromises(directories=False)
    looks_first = False
    options: ClassVar[Mapping[str, Any]] = {
        "use_listings_cache": False,
        "requests_timeout": SOCKET_SECONDS,
    }

    def _claim(self, source: str, target: str) -> None:
        self._move(source, target, ifGenerationMatch="0")

    def _replace(self, source: str, target: str) -> None:
        self._move(source, target)

    def _etag(self, info: Info) -> str:
        return str(info.get("md5Hash") or info.get("crc32c") or "")

    def _move(self, source: str, target: str, **conditions: str) -> None:
        bucket, old, _ = self._fs.split_path(source)
        _, new, _ = self._fs.split_path(target)
        self._fs.call(
            "POST", "b/{}/o/{}/moveTo/o/{}", bucket, old, new,
            headers={"Content-Type": "application/json"}, json_out=True, **conditions,
        )  # fmt: skip


KINDS: Mapping[str, type[FsspecTree]] = {
    "memory": MemoryTree,
    "sftp": SftpTree,
    "ssh": SftpTree,
    "hdfs": HdfsTree,
    "gs": GoogleTree,
    "gcs": GoogleTree,
}
"""The trees by fsspec's protocol."""


# Which file tree a URL names ----------------------------------------------------------------------


def tree_for(url: str) -> FileTree:
    """The file tree of a directory, which need not exist. It gets no request yet; but where
    there is a connection, it is made. Raises PathError as `tree_url`. OptionError: fsspec or the
    driver is not installed. StoreError: the connection failed. It may be called again.

    ``url``: ``file:///…`` for this machine and what is mounted here; or of fsspec: ``hdfs://``,
    ``sftp://``, ``gs://``, ``memory://``. Letters that a URL cannot hold are percent-encoded.
    """
    plain = tree_url(url)
    scheme = plain.partition(":")[0]
    return LocalTree(local_path(url)) if scheme == "file" else _through_fsspec(plain, scheme)


def _through_fsspec(url: str, scheme: str) -> FileTree:
    host, path = host_and_path(url, scheme)
    whole = f"{scheme}://{host}{path}"
    kind, needs, install = KINDS[scheme], "fsspec", "pip install 'magic-committer[fsspec]'"
    try:
        import fsspec  # noqa: F401  # the drivers below need it

        if kind.package:
            needs, install = kind.package, f"pip install {kind.package}"
        driver = _class_of(kind)
        told = driver._get_kwargs_from_urls(whole)
        fs, root = driver(**{**told, **kind.options}), driver._strip_protocol(whole)
        kind.connected(fs)
    except ImportError as error:
        raise OptionError(
            f"{url!r} needs {needs}, which cannot be imported: {error}", hint=install
        ) from error
    except Exception as error:
        failure = of_driver(error, "connect", url, "")
        failure.sent = False
        raise failure from error
    return kind(fs, root, url)


def _class_of(kind: type[FsspecTree]) -> Any:
    """The class that a tree was written for. Not by fsspec's own table: a package that is installed
    (sshfs, hdfs-native) replaces a protocol in it, and renames by other rules."""
    module, _, name = kind.driver.partition(":")
    return getattr(import_module(module), name)
