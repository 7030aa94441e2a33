"""Which file tree a URL names: the one place that chooses. fsspec is imported only where needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from magic_committer.errors import OptionError, PathError, StoreError
from magic_committer.file_trees.base import FileTree
from magic_committer.file_trees.dialects import DIALECTS, INSTEAD, REFUSED, Dialect
from magic_committer.file_trees.local import LocalTree, local_path

_INSTALL = "pip install 'magic-committer[fsspec]'"
_DRIVERS = {
    "sftp": "paramiko",
    "ssh": "paramiko",
    "hdfs": "hdfs-native",
    "gs": "gcsfs",
    "gcs": "gcsfs",
}


def tree_for(url: str) -> FileTree:
    """The file tree of a directory.

    Args:
        url: ``file:///…`` for this machine and what is mounted here; or of fsspec: ``hdfs://``,
            ``sftp://``, ``gs://``, ``memory://``. Letters that a URL cannot hold are
            percent-encoded. The directory need not exist.

    Returns:
        The tree. Nothing is asked of it yet; but where there is a connection, it is made.

    Raises:
        PathError: as for `tree_url`.
        OptionError: fsspec or the driver is not installed.
        StoreError: the connection failed. It may be called again.

    Example:
        >>> tree_for("file:///data/table").url
        'file:///data/table/'
    """
    plain = tree_url(url)
    scheme = plain.partition(":")[0]
    return LocalTree(local_path(url)) if scheme == "file" else _through_fsspec(plain, scheme)


def tree_url(url: str) -> str:
    """The URL that the tree of a directory has: in one form, with a ``/`` at its end. Pure.

    Args:
        url: as for `tree_for`.

    Raises:
        PathError: it is no URL of a directory, or holds a password; or the file system cannot keep
            what a job is decided by, and the message says why.

    Example:
        >>> tree_url("hdfs://node/data/a table")
        'hdfs://node/data/a%20table/'
    """
    if not isinstance(url, str):
        raise PathError(f"{url!r} is no URL", hint="Write 'file:///data/table'")
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if scheme == "file":
        return LocalTree(local_path(url)).url
    if scheme in REFUSED:
        raise PathError(
            f"{url!r} cannot be committed to by renames: {REFUSED[scheme]}",
            hint=INSTEAD.get(scheme, ""),
        )
    if scheme not in DIALECTS:
        raise PathError(
            f"{url!r}: nobody has said how {scheme or 'this'} creates a file exclusively, and a job"
            " is decided by one",
            hint=f"Write to one of {', '.join(sorted(DIALECTS))}",
        )
    host, path = _parts(url, scheme)
    return f"{scheme}://{host}{quote(path)}/"


def _through_fsspec(url: str, scheme: str) -> FileTree:
    host, path = _parts(url, scheme)
    whole = f"{scheme}://{host}{path}"
    try:
        import fsspec  # noqa: F401  # the drivers below need it

        from magic_committer.file_trees.through_fsspec import FsspecTree, of_driver
    except ImportError as error:
        raise OptionError(
            f"{url!r} needs fsspec, which cannot be imported: {error}", hint=_INSTALL
        ) from error
    dialect = DIALECTS[scheme]()
    try:
        driver = _class_of(dialect)
        told = driver._get_kwargs_from_urls(whole)
        fs, root = driver(**{**told, **dialect.options}), driver._strip_protocol(whole)
        dialect.connected(fs)
    except ImportError as error:
        driver = _DRIVERS.get(scheme, "the driver")
        raise OptionError(
            f"{url!r} needs {driver}, which cannot be imported: {error}",
            hint=f"pip install {driver}" if scheme in _DRIVERS else _INSTALL,
        ) from error
    except Exception as error:
        raise _unconnected(of_driver(error, "connect", url, "")) from error
    return FsspecTree(fs, root, url, dialect)


def _class_of(dialect: Dialect) -> Any:
    """The class that a dialect was written for. fsspec's own table is not asked: a package that is
    installed, as sshfs and hdfs-native, takes a protocol over in it, and renames by other rules.

    Raises:
        ImportError: the driver is not installed.
    """
    module, _, name = dialect.driver.partition(":")
    return getattr(import_module(module), name)


def _unconnected(error: StoreError) -> StoreError:
    error.sent = False
    return error


def _parts(url: str, scheme: str) -> tuple[str, str]:
    """Host and path of a URL; the path is decoded.

    Raises:
        PathError: it names no directory, or holds a password.
    """
    example = f"Write '{scheme}://host/data/table'"
    parts = urlsplit(url)
    path = unquote(parts.path).rstrip("/")
    if parts.password is not None:
        raise PathError(
            f"the URL of {parts.hostname} holds a password, and URLs go into records and logs",
            hint="Use a key, or an agent",
        )
    if scheme == "hdfs" and parts.username is not None:
        raise PathError(
            f"{url!r} names a user, which hdfs-native takes from elsewhere",
            hint=f"Set HADOOP_USER_NAME={parts.username}, or get a ticket of Kerberos; and write"
            f" 'hdfs://{parts.netloc.rpartition('@')[2]}{parts.path}'",
        )
    if parts.query or parts.fragment or set(path) & {"?", "#", "\0"} or "::" in url:
        raise PathError(f"{url!r} has more than a host and a path", hint=example)
    elements = path.split("/")[1:]
    if "" in elements or "." in elements or ".." in elements:
        raise PathError(f"{url!r} has an empty element, '.' or '..'", hint=example)
    whole = scheme in ("gs", "gcs", "memory")  # their host is a bucket, or the first directory
    if not (parts.netloc if whole else path):
        raise PathError(f"{url!r} names no directory", hint=example)
    return parts.netloc, path
