"""The port's values from the SDK's replies, and the SDK's parameters from the port's values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, get_args

from magic_committer._runtime import Clock
from magic_committer.checksum import joins
from magic_committer.stores.base import Checksum, ChecksumAlgorithm, ObjectInfo, Part, UploadInfo

Reply = Mapping[str, Any]

CHECKSUM_FIELDS: Mapping[ChecksumAlgorithm, str] = {
    name: f"Checksum{name}" for name in get_args(ChecksumAlgorithm)
}


def seen_at_of(reply: Reply, clock: Clock) -> float:
    """The reply's ``Date``, which HTTP demands. This machine's time if a store leaves it out or
    sends no valid date."""
    try:
        text = reply["ResponseMetadata"]["HTTPHeaders"]["date"]
        return parsedate_to_datetime(text).timestamp()
    except (KeyError, ValueError, OverflowError):
        return float(int(clock.now()))


def object_of(key: str, reply: Reply, clock: Clock, *, size: int | None = None) -> ObjectInfo:
    """Make an object's description from the answer to GET or HEAD.

    Args:
        key: the object's key.
        reply, clock: the answer, and this machine's clock.
        size: how many bytes came, if the answer does not say: an answer in chunks has no length.
    """
    return ObjectInfo(
        key,
        int(reply["ContentLength"]) if size is None else size,
        reply.get("ETag", ""),
        seconds(reply["LastModified"]),
        seen_at_of(reply, clock),
        # Names of headers have no case: Go's servers and proxies write "Magic-Committer-Job".
        metadata={name.lower(): value for name, value in reply.get("Metadata", {}).items()},
        version_id=reply.get("VersionId"),
    )


def listed(one: Reply, seen_at: float) -> ObjectInfo:
    """Make an object's description from a listing."""
    return ObjectInfo(
        one["Key"], int(one["Size"]), one.get("ETag", ""), seconds(one["LastModified"]), seen_at
    )


def given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None}


def seconds(moment: datetime) -> float:
    """Seconds since the epoch. A time without a zone is UTC, as all times of S3 are."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def checksum_of(reply: Reply) -> Checksum | None:
    for algorithm, name in CHECKSUM_FIELDS.items():
        if reply.get(name):
            return Checksum(algorithm, reply[name])
    return None


def parts_of(reply: Reply) -> tuple[Part, ...]:
    """The parts on a page of ListParts."""
    return tuple(
        Part(one["PartNumber"], one.get("ETag", ""), one["Size"], checksum_of(one))
        for one in reply.get("Parts", ())
    )


def checksum_type(algorithm: ChecksumAlgorithm | None) -> str | None:
    if algorithm is None:
        return None
    return "FULL_OBJECT" if joins(algorithm) else "COMPOSITE"


def named_part(part: Part) -> dict[str, Any]:
    named: dict[str, Any] = {"PartNumber": part.number, "ETag": part.etag}
    if part.checksum is not None:
        named[CHECKSUM_FIELDS[part.checksum.algorithm]] = part.checksum.value
    return named


def upload_of(one: Reply) -> UploadInfo:
    initiated = one.get("Initiated")
    return UploadInfo(
        one["Key"],
        one["UploadId"],
        initiated=None if initiated is None else seconds(initiated),
        storage_class=one.get("StorageClass", ""),
        owner=_who(one.get("Owner")),
        initiator=_who(one.get("Initiator")),
    )


def _who(person: Mapping[str, str] | None) -> str:
    return (person or {}).get("DisplayName") or (person or {}).get("ID", "")


def key_markers(page: Sequence[UploadInfo]) -> Iterator[str]:
    """Keys from which a listing can go on if it has no upload markers, the best first. First the
    last keys whose uploads are all on the page; then the very last key, some of whose uploads may
    be missed."""
    last = page[-1].key if page else ""
    yield from (one.key for one in reversed(page) if one.key != last)
    yield last
