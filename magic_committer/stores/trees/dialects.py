"""Which file tree a URL names, and how each kind creates exclusively and renames. fsspec is
imported only where needed.

Sessions of one SFTP connection, for many threads: paramiko's `SFTPClient` is for one. Of two that
ask at once, each takes the other's answer from the wire and throws it away, and both wait for ever.
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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from types import GeneratorType
from typing import Any, BinaryIO, ClassVar, cast

from magic_committer.errors import OptionError
from magic_committer.stores.trees.base import EntryKind, FileTree, TreePromises
from magic_committer.stores.trees.disk import LocalTree
from magic_committer.stores.urls import host_and_path, local_path, tree_url

SESSIONS_MAX = 8
"""OpenSSH allows 10 for each connection (MaxSessions); where fewer are allowed, fewer are used."""
SOCKET_SECONDS = 60.0
"""How long a call waits for an answer; paramiko itself would wait for ever."""
_EXTENDED = 200
"""SSH_FXP_EXTENDED: a request that is named."""


class SftpSessions:
    """Stands for the `SFTPClient` of a connected ``SFTPFileSystem``: it has the same methods."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self._lock = threading.Lock()
        self._sessions = [_Session(fs.ftp)]
        self._max = SESSIONS_MAX
        self._turns = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            session = self._session()
            result = session.run(name, *arguments, **named)
            return SessionFile(session, result) if name == "open" else result

        return call

    def hardlink(self, old: str, new: str) -> None:
        """Give a file a second name, which must be free: what paramiko has no method for."""
        self._session().run("_request", _EXTENDED, "hardlink@openssh.com", old, new)

    def _session(self) -> _Session:
        """One that is free; else the one whose turn it is, and its user must be waited for."""
        with self._lock:
            if not self._fs.client.get_transport().is_active():
                self._connect()
            self._sessions = [session for session in self._sessions if not session.broken]
            for session in self._sessions:
                if session.is_free():
                    return session
            if len(self._sessions) < self._max:
                try:
                    self._sessions.append(_Session(self._fs.client.open_sftp()))
                    return self._sessions[-1]
                except Exception:
                    if not self._sessions:
                        raise
                    self._max = len(self._sessions)  # the server allows no more
            self._turns += 1
            return self._sessions[self._turns % len(self._sessions)]

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
        self._client = client
        self._lock = threading.RLock()
        self.broken = False

    def is_free(self) -> bool:
        """Whether nobody uses it at this moment."""
        if not self._lock.acquire(blocking=False):
            return False
        self._lock.release()
        return True

    def run(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the client. Its answer asks no more while it is read."""

        def ask() -> Any:
            answer = getattr(self._client, name)(*arguments, **named)
            return list(answer) if isinstance(answer, GeneratorType) else answer

        return self.told(ask)

    def told(self, ask: Callable[[], Any]) -> Any:
        """Ask something, alone."""
        with self._lock:
            try:
                return ask()
            except Exception as error:
                channel = self._client.get_channel()
                if isinstance(error, TimeoutError) or channel is None or channel.closed:
                    self.broken = True
                    self._client.close()
                raise


class SessionFile:
    """A file of a session: each call waits until nobody else uses the session."""

    def __init__(self, session: _Session, file: Any) -> None:
        self._session = session
        self._file = file

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            return self._session.told(lambda: found(*arguments, **named))

        return call

    def __enter__(self) -> SessionFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# What fsspec has no verb for ----------------------------------------------------------------------
#
# What fsspec has no verb for: how each kind of file system creates exclusively and renames.
#
# fsspec gives all file systems the same verbs, and each of them means something else: ``mv``
# replaces, refuses, copies and deletes, or does nothing and tells nobody. The store needs two
# promises (`base`): a rename that uses its source up, and one that is exclusive. A `Dialect` says
# how one kind keeps them. What cannot keep them is refused by name, with the reason
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
# * paramiko's client is for one thread (`SftpSessions`).
# * OpenSSH's sftp-server answers SSH_FXP_RENAME by ``link`` and ``unlink``, which fails if the name
#   is taken, and by a look and a rename where the disk has no links. So a create is a
#   hardlink@openssh.com, and where there are no links it fails. It says "Failure", whatever the
#   reason: so a failure is followed by a look.
# * pyarrow's HDFS cannot be used: its move deletes a file at the target and goes on, and its
#   streams overwrite. hdfs-native gives the NameNode's own answers. It tells no inode, so no etag.
# * webhdfs of fsspec cannot either: it forgets what a rename answered, and takes a DataNode's error
#   for the bytes of a file.
# * gcsfs sends the condition for ``mode="create"``, and gives 412 as FileExistsError. Its own
#   ``mv`` falls back to a copy and a delete and tells nobody: so ``moveTo`` is called here. An etag
#   of the content is the same for two files of the same bytes, which does no harm. 403 is an
#   OSError without a number.
# * adlfs (2026.8) starts a copy, does not wait for it, and deletes the source.


Info = Mapping[str, Any]
"""What fsspec tells of a path."""


class Dialect:
    """How one kind of file system keeps the port's promises. Paths are the file system's own."""

    driver: ClassVar[str] = ""
    """The fsspec class that it was written for, as ``module:name``."""
    package: ClassVar[str] = ""
    """What to install for it, beside fsspec."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Arguments of that class. None may keep listings."""
    promises: ClassVar[TreePromises] = TreePromises()
    looks_first: ClassVar[bool] = True
    """A rename onto a directory goes into it, or gives no reason: so the target is looked at
    before."""

    def connected(self, fs: Any) -> None:
        """Prepare a file system that was just connected."""

    def info(self, fs: Any, path: str) -> Info:
        """Look at a path; a link is not followed. Raises FileNotFoundError."""
        return cast("Info", fs.info(path))

    def children(self, fs: Any, path: str) -> Iterable[Info]:
        """What is in a directory."""
        return cast("Iterable[Info]", fs.ls(path, detail=True))

    def reader(self, fs: Any, path: str) -> BinaryIO:
        """Open a file for reading."""
        return cast("BinaryIO", fs.open(path, "rb"))

    def writer(self, fs: Any, path: str) -> BinaryIO:
        """Open a new file. Raises FileExistsError."""
        return cast("BinaryIO", fs.open(path, "xb"))

    def remove(self, fs: Any, path: str) -> None:
        """Delete a file. Raises FileNotFoundError."""
        fs.rm_file(path)

    def claim(self, fs: Any, source: str, target: str) -> None:
        """Rename, in one step that fails if the target exists: FileExistsError."""
        raise NotImplementedError

    def replace(self, fs: Any, source: str, target: str) -> None:
        """Rename over what is there, as `promises` says."""
        fs.mv(source, target)

    def remove_empty(self, fs: Any, path: str) -> bool:
        """Delete a directory that was seen to be empty; False: it is not any more."""
        fs.rmdir(path)
        return True

    def told(self, error: OSError) -> OSError:
        """An error of the driver, with the number that the driver has left out."""
        return error

    def etag(self, info: Info) -> str:
        """What is the same before and after a rename: time and size, if there is nothing else."""
        return f"{int(seconds_of(info) * 1e6):x}-{int(info.get('size') or 0):x}"


class MemoryDialect(Dialect):
    """fsspec's memory: it looks and then writes, in two steps, so one lock makes them one. It lives
    as long as the process."""

    driver = "fsspec.implementations.memory:MemoryFileSystem"
    promises = TreePromises(directories=False)
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def reader(self, fs: Any, path: str) -> BinaryIO:
        return io.BytesIO(fs.cat_file(path))

    def writer(self, fs: Any, path: str) -> BinaryIO:
        with self._lock:
            return super().writer(fs, path)

    def claim(self, fs: Any, source: str, target: str) -> None:
        with self._lock:
            if fs.exists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            self.replace(fs, source, target)

    def replace(self, fs: Any, source: str, target: str) -> None:
        with self._lock:
            if not fs.isfile(source):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
            fs.store[target] = fs.store.pop(source)
            fs.store[target].path = target

    def etag(self, info: Info) -> str:
        return super().etag({"mtime": info["created"], "size": info["size"]})


class SftpDialect(Dialect):
    """OpenSSH's rules, by paramiko: see the head of the module."""

    driver = "fsspec.implementations.sftp:SFTPFileSystem"
    package = "paramiko"
    promises = TreePromises(tells_apart=False)

    def connected(self, fs: Any) -> None:
        if not isinstance(fs.ftp, SftpSessions):
            fs.ftp = SftpSessions(fs)

    def writer(self, fs: Any, path: str) -> BinaryIO:
        # "xb" alone opens no file for writing: paramiko asks for the right only if there is a "w".
        try:
            return cast("BinaryIO", fs.open(path, "wxb"))
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:  # the server says "Failure", whatever the reason
            try:
                self.info(fs, path)
            except FileNotFoundError:
                raise error from None
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error

    def info(self, fs: Any, path: str) -> Info:
        found = fs.ftp.lstat(path)
        kinds = {0o040000: "directory", 0o100000: "file"}
        kind = kinds.get((found.st_mode or 0) & 0o170000, "other")
        return {"name": path, "type": kind, "size": found.st_size, "mtime": found.st_mtime}

    def claim(self, fs: Any, source: str, target: str) -> None:
        """By a link and an unlink. On a disk without links this fails; there SSH_FXP_RENAME looks,
        and then renames, so that two may rename to one target."""
        _told_why(self, fs, source, target, lambda: _link(fs, source, target))
        with suppress(FileNotFoundError):
            self.remove(fs, source)


def _link(fs: Any, source: str, target: str) -> None:
    try:
        fs.ftp.hardlink(source, target)
    except OSError as error:
        # The source was written by us, in this directory: no right is missing.
        if isinstance(error, PermissionError) or "unsupported" in str(error).lower():
            told = "the server makes no hard links here (hardlink@openssh.com)"
            raise OSError(errno.ENOTSUP, told) from error
        raise


class HdfsDialect(Dialect):
    """HDFS, by hdfs-native: the NameNode itself creates and renames under its lock, and says why it
    refused."""

    driver = "hdfs_native.fsspec:HdfsFileSystem"
    package = "hdfs-native"

    def writer(self, fs: Any, path: str) -> BinaryIO:
        # What fs.open has no argument for. The class is the one beside the driver's, which may be a
        # stand-in of tests.
        options = sys.modules[type(fs).__module__].WriteOptions
        made = fs.client.create(path, options(overwrite=False, create_parent=False))
        return cast("BinaryIO", made)

    def claim(self, fs: Any, source: str, target: str) -> None:
        fs.client.rename(source, target, False)

    def replace(self, fs: Any, source: str, target: str) -> None:
        fs.client.rename(source, target, True)

    def remove_empty(self, fs: Any, path: str) -> bool:
        try:
            fs.rmdir(path)
        except RuntimeError as error:
            if "PathIsNotEmptyDirectoryException" not in str(error):
                raise
            return False
        return True


class GoogleDialect(Dialect):
    """Google Cloud Storage, by gcsfs: conditions on generations, and `moveTo`."""

    driver = "gcsfs.core:GCSFileSystem"
    package = "gcsfs"
    promises = TreePromises(directories=False)
    looks_first = False
    options: ClassVar[Mapping[str, Any]] = {
        "use_listings_cache": False,
        "requests_timeout": SOCKET_SECONDS,
    }

    def claim(self, fs: Any, source: str, target: str) -> None:
        self._move(fs, source, target, ifGenerationMatch="0")

    def replace(self, fs: Any, source: str, target: str) -> None:
        self._move(fs, source, target)

    def told(self, error: OSError) -> OSError:
        if error.errno is None and str(error).startswith("Forbidden"):
            return PermissionError(errno.EACCES, str(error))
        return error

    def etag(self, info: Info) -> str:
        return str(info.get("md5Hash") or info.get("crc32c") or "")

    def _move(self, fs: Any, source: str, target: str, **conditions: str) -> None:
        bucket, old, _ = fs.split_path(source)
        _, new, _ = fs.split_path(target)
        fs.call(
            "POST", "b/{}/o/{}/moveTo/o/{}", bucket, old, new,
            headers={"Content-Type": "application/json"}, json_out=True, **conditions,
        )  # fmt: skip


def _told_why(
    dialect: Dialect, fs: Any, source: str, target: str, rename: Callable[[], object]
) -> None:
    """Rename by a call that says only that it failed, and find out why by looking.

    The source first: if another driver has done this rename, the source is gone and the target is
    there, and the file at the target is ours, not a stranger's.
    """
    try:
        rename()
    except (FileExistsError, PermissionError):
        raise
    except OSError as error:
        dialect.info(fs, source)  # FileNotFoundError: it is gone
        try:
            dialect.info(fs, target)
        except FileNotFoundError:
            raise error from None
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error


DIALECTS: Mapping[str, type[Dialect]] = {
    "memory": MemoryDialect,
    "sftp": SftpDialect,
    "ssh": SftpDialect,
    "hdfs": HdfsDialect,
    "gs": GoogleDialect,
    "gcs": GoogleDialect,
}
"""The dialects by fsspec's protocol."""


def kind_of(info: Info) -> EntryKind:
    """What fsspec says a path is: a link is never followed. Pure."""
    if info.get("islink"):
        return "other"
    kind = info.get("type")
    return cast("EntryKind", kind) if kind in ("file", "directory") else "other"


def seconds_of(info: Info) -> float:
    """When a file was last written, in seconds since 1970; 0.0 where nobody tells. Pure."""
    for name in ("mtime", "last_modified", "modification_time", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return value / (1000 if name == "modification_time" else 1)  # HDFS: milliseconds
    return 0.0


# Which file tree a URL names ----------------------------------------------------------------------


_INSTALL = "pip install 'magic-committer[fsspec]'"


def tree_for(url: str) -> FileTree:
    """The file tree of a directory, which need not exist. Nothing is asked of it yet; but where
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
    try:
        import fsspec  # noqa: F401  # the drivers below need it

        from magic_committer.stores.trees.through_fsspec import FsspecTree, of_driver
    except ImportError as error:
        raise _not_installed(url, "fsspec", _INSTALL, error) from error
    dialect = DIALECTS[scheme]()
    try:
        driver = _class_of(dialect)
        told = driver._get_kwargs_from_urls(whole)
        fs, root = driver(**{**told, **dialect.options}), driver._strip_protocol(whole)
        dialect.connected(fs)
    except ImportError as error:
        install = f"pip install {dialect.package}" if dialect.package else _INSTALL
        raise _not_installed(url, dialect.package or "the driver", install, error) from error
    except Exception as error:
        failure = of_driver(error, "connect", url, "")
        failure.sent = False
        raise failure from error
    return FsspecTree(fs, root, url, dialect)


def _class_of(dialect: Dialect) -> Any:
    """The class that a dialect was written for. fsspec's own table is not asked: a package that is
    installed, as sshfs and hdfs-native, takes a protocol over in it, and renames by other rules."""
    module, _, name = dialect.driver.partition(":")
    return getattr(import_module(module), name)


def _not_installed(url: str, package: str, install: str, error: ImportError) -> OptionError:
    return OptionError(f"{url!r} needs {package}, which cannot be imported: {error}", hint=install)
