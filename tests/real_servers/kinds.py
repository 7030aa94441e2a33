"""Which servers there are, and which of them a run wants.

    MAGIC_COMMITTER_TEST_ON=versitygw,minio     only these
    MAGIC_COMMITTER_TEST_ON=all                 every test on every server (`make servers`)

Unset, as in CI: versitygw runs everything; Ceph what is quick; MinIO, which takes minutes to build,
nothing.
"""

from __future__ import annotations

import os

from tests.real_servers.ceph import Ceph
from tests.real_servers.minio import Minio
from tests.real_servers.server import Server
from tests.real_servers.versitygw import Versitygw

KINDS: dict[str, type[Server]] = {kind.NAME: kind for kind in (Versitygw, Ceph, Minio)}
ON = "MAGIC_COMMITTER_TEST_ON"
ALL = "all"
NEEDED = "versitygw"
"""Whoever can build it must: without it nothing is proved here, so it is never skipped."""
QUICK = ("versitygw", "ceph")


def wanted() -> tuple[str, ...]:
    """The servers of this run.

    Raises:
        SystemExit: one is named that there is not.
    """
    named = os.environ.get(ON, "")
    if not named:
        return QUICK
    names = tuple(KINDS) if named == ALL else tuple(named.split(","))
    if unknown := set(names) - KINDS.keys():
        raise SystemExit(f"{ON}: no {', '.join(unknown)}; there are {', '.join(KINDS)} and {ALL}")
    return names


def is_long(name: str) -> bool:
    """Whether this run gives that server its long tests too."""
    return name == NEEDED or bool(os.environ.get(ON))
