"""Which file tree a URL names: the one place that chooses. fsspec is imported only where needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from magic_committer.errors import OptionError, StoreError
from magic_committer.file_trees.base import FileTree
from magic_committer.file_trees.dialects import DIALECTS, Dialect
from magic_committer.file_trees.disk import LocalTree
from magic_committer.stores.urls import host_and_path, local_path, tree_url

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


def _through_fsspec(url: str, scheme: str) -> FileTree:
    host, path = host_and_path(url, scheme)
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
