"""A bucket's lifecycle configuration on AWS's SDK: read as a whole, written as a whole.

``PutBucketLifecycleConfiguration`` replaces all rules. So a part that the SDK did not understand
when it read the rules would be lost when it writes them. **Therefore what the SDK has read is
compared with the document as it came**: an element that this release of the SDK does not know is an
error, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from magic_committer.errors import FormatError, NotFound, NotSupported
from magic_committer.options import S3Options
from magic_committer.runtime.components import Clock
from magic_committer.stores.s3.client import S3Store
from magic_committer.stores.s3.requests import Call
from magic_committer.stores.s3.via_boto3 import ViaBoto3

NONE = "NoSuchLifecycleConfiguration"
"""The error code of a bucket without rules."""
_READ, _WRITE = "GetBucketLifecycleConfiguration", "PutBucketLifecycleConfiguration"


class S3Lifecycle:
    """One bucket's lifecycle. Implements `magic_committer.runtime.wiring.BucketSettings`. Raises as
    `S3Store`."""

    def __init__(
        self, bucket: str, options: S3Options | None = None, *, clock: Clock | None = None
    ) -> None:
        self._bucket = bucket
        by_sdk = replace(options or S3Options(), transport="boto3")
        self._store = S3Store(bucket, by_sdk, clock=clock)

    def lifecycle(self) -> dict[str, Any]:
        try:
            reply = self._ask("get_lifecycle", _READ)
        except NotFound as error:
            if error.code == NONE:
                return {}
            raise
        reply.pop("ResponseMetadata", None)
        document = self._read_document(reply.pop("Document"))
        way = self._store._way
        assert isinstance(way, ViaBoto3)
        shape = way.client.meta.service_model.operation_model(_READ).output_shape
        source = f"the lifecycle of s3://{self._bucket}"
        for path in _unknown(document, shape, ""):
            raise FormatError(
                source, path, "is not known to the installed boto3, which would drop it",
                hint="Upgrade boto3; nothing was changed",
            )  # fmt: skip
        return reply

    def _read_document(self, body: bytes) -> ElementTree.Element:
        """Some stores ignore ``?lifecycle`` and list the bucket, or say nothing."""
        if body.strip():
            document = ElementTree.fromstring(body)
            if document.tag.rpartition("}")[2] == "LifecycleConfiguration":
                return document
        raise NotSupported(
            f"get_lifecycle s3://{self._bucket}/ failed: the answer is no lifecycle",
            operation="get_lifecycle",
            bucket=self._bucket,
            status=200,
            hint="The store does not have this operation",
        )

    def put_lifecycle(self, configuration: Mapping[str, Any]) -> None:
        beside = {name: value for name, value in configuration.items() if name != "Rules"}
        rules = {"Rules": list(configuration["Rules"])}
        self._ask("put_lifecycle", _WRITE, LifecycleConfiguration=rules, **beside)

    def _ask(self, verb: str, operation: str, **parameters: Any) -> dict[str, Any]:
        return self._store._ask(Call(verb, operation, "", parameters))[0]


def _unknown(element: ElementTree.Element, shape: Any, path: str) -> Iterator[str]:
    """The paths of all elements for which a shape of the SDK's model has no member."""
    if shape.type_name == "list":
        yield from _unknown(element, shape.member, path)
    if shape.type_name != "structure":
        return
    members = {
        member.serialization.get("name", name): member for name, member in shape.members.items()
    }
    for child in element:
        name = child.tag.rpartition("}")[2]
        below = f"{path}.{name}" if path else name
        member = members.get(name)
        if member is None:
            yield below
        elif member.type_name == "list" and not member.serialization.get("flattened"):
            for one in child:
                yield from _unknown(one, member.member, below)
        else:
            yield from _unknown(child, member, below)
