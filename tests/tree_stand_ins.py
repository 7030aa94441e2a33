"""Stand-ins for file systems that are not on this machine, written after the code of the real ones:
what hdfs-native, OpenSSH and paramiko, and gcsfs answer. Only what the dialects use."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class WriteOptions:
    """How hdfs-native makes a file."""

    def __init__(self, *, overwrite: bool, create_parent: bool) -> None:
        self.overwrite, self.create_parent = overwrite, create_parent


class _NameNode:
    """The calls of ``hdfs_native.Client`` that are used, as the NameNode answers them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def create(self, path: str, options: WriteOptions) -> Any:
        if options.create_parent:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "wb" if options.overwrite else "xb")

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        with self._lock:
            if not overwrite and os.path.exists(target):
                os.lstat(source)
                raise FileExistsError(target)
            os.rename(source, target)


class Hdfs(LocalFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """``HdfsFileSystem`` of hdfs-native, on a local directory."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.client = _NameNode()

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        found = super().info(path)
        stamp = found.pop("mtime")
        return {**found, "modification_time": int(stamp * 1000)}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[dict[str, Any]]:
        return [self.info(f"{path}/{name}") for name in os.listdir(path)]

    def rmdir(self, path: str) -> None:
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            told = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"
            raise RuntimeError(f'RPCError("{told}", "{path} is non empty")') from error


def _served(call: Callable[..., None], *paths: str) -> None:
    """A call of the system as OpenSSH's server answers it: of errors it tells one by its name."""
    try:
        call(*paths)
    except FileNotFoundError:
        raise
    except OSError:
        raise OSError("Failure") from None


class _Sftp:
    """The calls of ``paramiko.SFTPClient`` that are used, as OpenSSH's server answers them."""

    lstat = staticmethod(os.lstat)
    stat = staticmethod(os.stat)
    hardlink = staticmethod(partial(_served, os.link))
    posix_rename = staticmethod(partial(_served, os.rename))

    def rename(self, old: str, new: str) -> None:
        if stat.S_ISREG(os.lstat(old).st_mode):
            _served(os.link, old, new)
            os.unlink(old)
        elif os.path.exists(new):
            raise OSError("Failure")
        else:
            os.rename(old, new)


class Sftp(LocalFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """``SFTPFileSystem`` on a local directory: EEXIST and its like are told as "Failure"."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.ftp = _Sftp()

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "x" in mode and "w" not in mode:
            raise OSError("Permission denied: paramiko asked for no right to write")
        flags = os.O_RDWR | os.O_CREAT | (os.O_EXCL if "x" in mode else os.O_TRUNC)
        if "r" in mode:
            return open(path, "rb")
        try:
            return open(os.open(path, flags, 0o666), "wb")
        except FileExistsError:
            raise OSError("Failure") from None

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        self.ftp.posix_rename(path1, path2)


class _GoogleFile(io.BytesIO):
    """An upload: visible when it is closed, and refused then."""

    def __init__(self, store: Google, path: str) -> None:
        super().__init__()
        self._store, self._path = store, path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._store.pipe_file(self._path, data, "create")


class Google:
    """gcsfs's calls that are used, with conditions on generations, on a dict."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    split_path = staticmethod(lambda path: (*path.partition("/")[::2], None))

    def info(self, path: str) -> dict[str, Any]:
        if path in self.objects:
            data = self.objects[path]
            return {"name": path, "type": "file", "size": len(data),
                    "md5Hash": hashlib.md5(data).hexdigest()}  # fmt: skip
        if any(name.startswith(f"{path}/") for name in self.objects):
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True) -> list[dict[str, Any]]:
        self.info(path)
        below = [n.removeprefix(f"{path}/") for n in self.objects if n.startswith(f"{path}/")]
        return [self.info(f"{path}/{name}") for name in sorted({n.split("/")[0] for n in below})]

    def open(self, path: str, mode: str) -> Any:
        if mode == "rb":
            self.info(path)
            return io.BytesIO(self.objects[path])
        return _GoogleFile(self, path)

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        if mode == "create" and path in self.objects:
            raise FileExistsError(path)  # gcsfs: 412
        self.objects[path] = data

    def rm_file(self, path: str) -> None:
        if self.objects.pop(path, None) is None:
            raise FileNotFoundError(path)

    def call(self, method: str, path: str, *names: str, **options: Any) -> Any:
        assert (method, path) == ("POST", "b/{}/o/{}/moveTo/o/{}")
        bucket, source, target = names
        if f"{bucket}/{source}" not in self.objects:
            raise FileNotFoundError(source)
        if options.get("ifGenerationMatch") == "0" and f"{bucket}/{target}" in self.objects:
            raise FileExistsError(target)
        self.objects[f"{bucket}/{target}"] = self.objects.pop(f"{bucket}/{source}")
