"""URLs of directories on file systems: which there are, and the one form in which jobs write them.
Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from magic_committer.errors import PathError

TREE_SCHEMES = frozenset(("file", "memory", "sftp", "ssh", "hdfs", "gs", "gcs"))
"""The schemes of destinations that are directories."""

_ENCODED_ONLY = frozenset("?#\t\n\r")

_BY_COPY = (
    "adlfs renames by a copy that it does not wait for, and then deletes the source: a file can be"
    " lost"
)
_ON_S3 = "The committer 'magic' writes there, without renames: committer='magic'"
REFUSED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("abfs", "abfss", "az"), (_BY_COPY, "")),
    "adl": ("Data Lake Storage Gen1 is retired", ""),
    "smb": (
        "Samba looks before it renames, so two drivers may both decide one job",
        "Mount the share, and write to file:///…",
    ),
    "webhdfs": (
        "fsspec forgets whether a rename took place, and reads a DataNode's error as data",
        "Write to hdfs://…, with hdfs-native",
    ),
    **dict.fromkeys(("s3", "s3a"), ("a rename on S3 is a copy", _ON_S3)),
}
"""Why a protocol is not taken, and what can be done instead."""


def is_tree(bucket: str) -> bool:
    """Whether the bucket of a destination is the root of a file tree, by its URL."""
    return "://" in bucket


def url_of(bucket: str, key: str = "") -> str:
    """The URL of a key, or of the prefix "", of a bucket or of a file tree."""
    return f"{bucket}/{quote(key)}" if is_tree(bucket) else f"s3://{bucket}/{key}"


def scheme_of(url: object) -> str:
    """The scheme of a URL, in lower case; "" for what is none. ``file:/x``, as Java writes it, is
    ``file:///x``."""
    scheme, _, rest = url.partition(":") if isinstance(url, str) else ("", "", "")
    scheme = scheme.lower()
    return scheme if rest.startswith("/" if scheme == "file" else "//") else ""


def is_tree_url(url: object) -> bool:
    """Whether a URL is one of a directory on a file system, by its scheme; also of one that is
    refused."""
    scheme = scheme_of(url)
    return scheme in TREE_SCHEMES or (scheme in REFUSED and scheme not in ("s3", "s3a"))


def tree_url(url: str) -> str:
    """The URL that the tree of a directory has: in one form, with a ``/`` at its end. Raises
    `PathError`: it is no URL of a directory, or holds a password; or the file system cannot keep
    what a job is decided by, and the message says why.

    Example:
        >>> tree_url("hdfs://node/data/a table")
        'hdfs://node/data/a%20table/'
    """
    if not isinstance(url, str):
        raise PathError(f"{url!r} is no URL", hint="Write 'file:///data/table'")
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if scheme == "file":
        return f"file://{quote(os.fspath(local_path(url)))}/"
    if scheme in REFUSED:
        why, instead = REFUSED[scheme]
        raise PathError(f"{url!r} cannot be committed to by renames: {why}", hint=instead)
    if scheme not in TREE_SCHEMES:
        raise PathError(
            f"{url!r}: nobody has said how {scheme or 'this'} creates a file exclusively, and a job"
            " is decided by one",
            hint=f"Write to one of {', '.join(sorted(TREE_SCHEMES))}",
        )
    host, path = host_and_path(url, scheme)
    return f"{scheme}://{host}{quote(path)}/"


def local_path(url: str) -> Path:
    """The directory that a URL ``file:///path`` names; ``file:/path`` is the same. Raises
    `PathError`: it is another kind of URL, names another machine, or is no absolute path."""
    if set(url) & _ENCODED_ONLY:  # `urlsplit` would cut or drop them: another directory
        raise PathError(
            f"{url!r} has a character that a URL can hold only percent-encoded",
            hint="Write pathlib.Path('/data/table').as_uri()",
        )
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise PathError(f"{url!r} names no local directory", hint="Write 'file:///data/table'")
    try:
        path = unquote(parts.path, errors="strict")
        path.encode()
    except UnicodeError as error:
        raise PathError(
            f"{url!r} is not UTF-8: {error}", hint="Name a directory whose name is text"
        ) from error
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise PathError(
            f"{url!r} is no absolute path without '..'", hint="Write 'file:///data/table'"
        )
    if path.strip("/") == "":
        raise PathError(f"{url!r} is the root of the machine", hint="Name a directory below it")
    return Path("/" + path.lstrip("/"))  # two slashes at the start are kept by `Path`


def host_and_path(url: str, scheme: str) -> tuple[str, str]:
    """Host and path of a URL; the path is decoded. Raises `PathError`: it names no directory, or
    holds a password."""
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
            f"{url!r} names a user, which hdfs-native reads elsewhere",
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
