"""What a job of Hadoop's and one of ours ask of the store, counted side by side: as docs/hadoop.md
has it, which `python -m tests.interop.table` writes."""

from __future__ import annotations

import pytest

from magic_committer.commit import fence
from tests.interop import table
from tests.interop.jars import RELEASES
from tests.interop.jvm import Jvm
from tests.interop.lake import Lake
from tests.interop.wire import Wire


def of_docs(names: table.Counts) -> table.Counts:
    """Some columns of the table in the docs."""
    return {name: counts for name, counts in table.documented().items() if name in names}


def test_hadoop_sends_what_the_docs_say(hadoop: Jvm, wired: Wire, lake: Lake) -> None:
    """A job of four tasks with five files each: every kind of request."""
    counts = table.measured(hadoop.release, hadoop, wired, lake)
    assert counts == of_docs(counts)


def test_we_send_what_the_docs_say_and_fewer(
    wired: Wire, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same job by us, tracked either way; and fewer in all than the newest Hadoop sends when it
    keeps track in the same way."""
    # A task of more than a second, as on a busy machine, reads its record once more.
    monkeypatch.setattr(fence, "FENCE_SECONDS", 600.0)
    counts, newest = table.ours_measured(wired, lake), f"Hadoop {RELEASES[0]}"
    assert counts == of_docs(counts)
    theirs = (table.documented()[name].total() for name in (newest, f"{newest}, in memory"))
    assert all(o.total() < total for o, total in zip(counts.values(), theirs, strict=True))
