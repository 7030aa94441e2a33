"""Which servers there are, and which of them a run wants.

    MAGIC_COMMITTER_TEST_ON=versitygw,minio     only these
    MAGIC_COMMITTER_TEST_ON=all                 every test on every server (`make servers`)

Unset, as in CI: versitygw runs everything; Ceph what is quick; MinIO, which takes minutes to build,
nothing.
"""

from __future__ import annotations

import os

from tests.real_servers.ceph import Ceph, install
from tests.real_servers.getting import Choice
from tests.real_servers.minio import Minio
from tests.real_servers.server import Server
from tests.real_servers.versitygw import Versitygw

KINDS: dict[str, type[Server]] = {kind.NAME: kind for kind in (Versitygw, Ceph, Minio)}
ON = "MAGIC_COMMITTER_TEST_ON"
NEEDED = "versitygw"
"""Whoever can build it must: without it nothing is proved here, so it is never skipped."""
CHOICE = Choice(
    "tests/real_servers", ON, {name: kind.get for name, kind in KINDS.items()} | {"ceph": install},
    lambda: ("versitygw", "ceph"), NEEDED,
)  # fmt: skip


def is_long(name: str) -> bool:
    """Whether this run gives that server its long tests too."""
    return name == NEEDED or bool(os.environ.get(ON))
