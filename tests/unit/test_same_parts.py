"""`same_parts`: a stored part with another ETag is the same part only if its bytes are."""

from __future__ import annotations

import pytest

from magic_committer.commit.complete import same_parts
from magic_committer.commit.ready import ReadyUpload
from magic_committer.stores.base import Checksum, Part

OURS = (
    Part(1, '"a"', 5, Checksum("CRC32", "AAAAAA==")),
    Part(2, '"b"', 3, Checksum("CRC32", "BBBBBB==")),
)
UPLOAD = ReadyUpload("t/a.csv", "id", OURS, 8, None, "token", "")


def test_parts_whose_etags_changed_are_taken_with_the_new_ones() -> None:
    """Under SSE-KMS a late retry changes a part's ETag: same number, size and checksum."""
    stored = [OURS[0], OURS[1]._replace(etag='"new"')]
    assert same_parts(UPLOAD, stored) == tuple(stored)


def test_parts_that_did_not_change_explain_nothing() -> None:
    """Where all is as it was the store refused for another reason."""
    assert same_parts(UPLOAD, list(OURS)) is None


@pytest.mark.parametrize(
    "other",
    [
        {"etag": '"new"', "checksum": Checksum("CRC32", "CCCCCC==")},
        {"etag": '"new"', "checksum": None},
        {"etag": '"new"', "size": 4},
        {"etag": '"b"', "size": 4},
        {"etag": '"new"', "number": 3},
    ],
)
def test_a_part_of_other_bytes_is_another(other: dict[str, object]) -> None:
    """I2: other bytes, or another number, under the same upload are never completed."""
    stored = [OURS[0]._replace(etag='"new"'), OURS[1]._replace(**other)]  # type: ignore[arg-type]
    assert same_parts(UPLOAD, stored) is None


def test_without_a_checksum_only_the_etag_tells() -> None:
    """Two parts without checksums are not the same because both have none."""
    bare = UPLOAD._replace(parts=(Part(1, '"a"', 5),))
    assert same_parts(bare, [Part(1, '"new"', 5)]) is None


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_parts_is_another_upload(count: int) -> None:
    """I2: an upload with fewer or more parts than were sent is never completed."""
    stored = [*(part._replace(etag='"new"') for part in OURS), Part(3, '"c"', 1)]
    assert same_parts(UPLOAD, stored[:count]) is None
