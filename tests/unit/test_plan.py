"""`Plan`: what one driver wants decided; what cannot be trusted is not executed."""

from __future__ import annotations

import orjson
import pytest

from magic_committer.commit.plan import Plan, PlannedSet
from magic_committer.errors import FormatError
from magic_committer.job import ObjectRef

PLAN = Plan(
    job_id="j", uuid="0" * 32, nonce="1" * 32, files=1, data_bytes=2,
    sets=(PlannedSet("a.pendingset", '"a"', "1", "a"),),
    deletes=(ObjectRef("t/old.csv", '"b"'),),
    partitions=("dt=1/",), marker=ObjectRef("t/_SUCCESS", '"c"'),
)  # fmt: skip


def test_a_plan_is_read_as_it_was_written() -> None:
    """Every field comes back."""
    assert Plan.decode(PLAN.encode(), "plan") == PLAN


def test_a_plan_of_a_newer_version_is_refused() -> None:
    """A plan that this version does not know whole is not executed in part."""
    document = orjson.loads(PLAN.encode())
    document["version"] += 1
    with pytest.raises(FormatError, match="Upgrade magic-committer"):
        Plan.decode(orjson.dumps(document), "plan")


@pytest.mark.parametrize("field", ["sets", "deletes", "nonce", "uuid", "partitions"])
def test_a_plan_without_a_field_is_refused(field: str) -> None:
    """A plan that was cut, or written by something else, names the field that is missing."""
    document = orjson.loads(PLAN.encode())
    del document[field]
    with pytest.raises(FormatError, match=field):
        Plan.decode(orjson.dumps(document), "plan")
