"""Which file tree a URL names: the one place that chooses. fsspec is imported only where needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from magic_committer.errors import OptionError
from magic_committer.file_trees.base import FileTree
from magic_committer.file_trees.dialects import DIALECTS, Dialect
from magic_committer.file_trees.disk import LocalTree
from magic_committer.stores.urls import host_and_path, local_path, tree_url

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

        from magic_committer.file_trees.through_fsspec import FsspecTree, of_driver
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
