"""What the store's verbs and options put into requests, and what comes back as it was sent."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from magic_committer.errors import OptionError
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import Attributes, Checksum, FileSlice, ObjectSlice, Part
from magic_committer.stores.s3 import S3Store
from tests.certificates import Authority
from tests.servers import DATE_SECONDS, TRANSPORT, Reply, scripted_server
from tests.transport.lab import DATED, PART, PUT, VERBS, Lab, ask, fine, sent_by, way_to

OF_A_KEY = ("get", "head", "put", "create_upload", "put_part", "list_parts", "complete_upload")
"""Verbs that name a data object, and may need its key of encryption."""
KEY = bytes(range(32))
KEY_VARIABLE = "MAGIC_COMMITTER_SSE_CUSTOMER_KEY"
SSE = "x-amz-server-side-encryption"
CUSTOMERS = {
    f"{SSE}-customer-algorithm": "AES256",
    f"{SSE}-customer-key": base64.b64encode(KEY).decode(),
    f"{SSE}-customer-key-md5": base64.b64encode(hashlib.md5(KEY).digest()).decode(),
}
CRC = checksums.of("CRC32", b"x")
ATTRIBUTES = Attributes(
    metadata={"token": "t", "spaces": "a  b", "empty": ""}, content_type="text/csv",
    storage_class="GLACIER", tags={"x": "2"},
)  # fmt: skip
OF_DATA = {"storage_class": "STANDARD_IA", "acl": "private", "tags": (("team", "a b"), ("x", "1"))}
NOTHING = {"storage": None, "acl": None, "tag": None, "checksum": None, "trailer": None}
Headers = Mapping[str, str | None]

SENT: list[tuple[Any, Callable[[S3Store], object], Sequence[Headers]]] = [
    # Options, what is asked, and of each request: headers; None: no name holds this
    # word; "": what its body holds.
    ({}, lambda s: [s.put("k", b"", if_match=etag) for etag in ('"quoted"', "bare")],
     [{"if-match": '"quoted"'}, {"if-match": "bare"}]),  # RGW understands only the latter
    ({}, lambda s: s.delete_one("k", if_match="bare"), [{"if-match": "bare"}]),
    ({}, lambda s: s.put("k", b"", if_none_match=True), [{"if-none-match": "*"}]),
    # S3 refuses a PUT without it in a bucket that retains what it gets (Object Lock).
    ({}, lambda s: s.put("k", b""), [{"content-md5": "1B2M2Y8AsgTpgAmY7PhCfg=="}]),
    ({}, lambda s: s.complete_upload("k", "u", [PART], if_none_match=True),
     [{"if-none-match": "*"}]),
    ({}, lambda s: ask(s, "put", "complete_upload"), [{"if-": None}] * 2),
    (OF_DATA, lambda s: s.create_upload("k", attributes=ATTRIBUTES),
     [{"x-amz-storage-class": "GLACIER", "x-amz-acl": "private", "x-amz-tagging": "team=a+b&x=2",
       "x-amz-meta-token": "t", "x-amz-meta-spaces": "a  b", "x-amz-meta-empty": "",
       "content-type": "text/csv"}]),
    # A control object has none of these, and no body a checksum that is not ours.
    (OF_DATA, lambda s: s.put("k", b"x", content_type="application/json", metadata={"m": "a  b"}),
     [{"content-type": "application/json", "x-amz-meta-m": "a  b", **NOTHING}]),
    ({}, lambda s: ask(s, "put_part"), [{**NOTHING, "expect": None}]),
    ({}, lambda s: s.create_upload("k", attributes=Attributes(), checksum="CRC32"),
     [{"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"}]),
    ({}, lambda s: s.put_part("k", "u", 1, memoryview(b"x"), checksum=CRC),
     [{"x-amz-checksum-crc32": CRC.value}]),
    ({}, lambda s: s.complete_upload("k", "u", [Part(1, "e", 1, CRC)], length=1, checksum=CRC),
     [{"x-amz-checksum-crc32": CRC.value, "x-amz-checksum-type": "FULL_OBJECT",
       "x-amz-mp-object-size": "1", "": f"<ChecksumCRC32>{CRC.value}</ChecksumCRC32>"}]),
    # S3 refuses a range, even the whole one, of an object of at most 5 MiB.
    ({}, lambda s: s.put_part("k", "u", 1, ObjectSlice("o", "a b/é?versionId=1", '"e"', 0, 9, 9)),
     [{"x-amz-copy-source": "o/a%20b/%C3%A9%3FversionId%3D1", "x-amz-copy-source-if-match": '"e"',
       "range": None}]),
    ({}, lambda s: s.put_part("k", "u", 2, ObjectSlice("o", "k", '"e"', 9, 2, 11)),
     [{"x-amz-copy-source": "o/k", "x-amz-copy-source-range": "bytes=9-10"}]),
    ({"encryption": "SSE-C", "sse_customer_key": KEY}, lambda s: ask(s, *OF_A_KEY),
     [CUSTOMERS] * 7),
    *[({"encryption": kind, "kms_key_id": key_id}, lambda s: ask(s, *OF_A_KEY),
       [{SSE: kind, **({f"{SSE}-aws-kms-key-id": key_id} if key_id else {"kms": None})}
        if verb in ("put", "create_upload") else {SSE: None} for verb in OF_A_KEY])
      for kind, key_id in (("AES256", None), ("aws:kms", "key-1"), ("aws:kms", None),
                           ("aws:kms:dsse", "key-1"))],
    ({"requester_pays": True}, lambda s: ask(s, *VERBS),
     [{"x-amz-request-payer": "requester"}] * 12),
    ({"anonymous": True, "access_key": None, "secret_key": None}, lambda s: ask(s, "head"),
     [{"authorization": None}]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "call", "wanted"), SENT)
def test_a_request_has_the_headers_of_its_verb_and_options(
    lab: Lab, options: Any, call: Any, wanted: list[Headers]
) -> None:
    """Conditions letter by letter; attributes and encryption with what makes objects, a customer's
    key with all that names one; the payer in each; no ``Expect``, which costs a round trip."""
    lab.script(fine)
    call(lab.make(**options))
    for asked, headers in zip(lab.asked, wanted, strict=True):
        for name, value in headers.items():
            if not name:
                assert str(value).encode() in asked.body
            elif value is None:
                assert not [one for one in asked.headers if name in one]
            else:
                assert asked.headers[name] == value


def test_the_customer_key_may_come_from_the_environment(lab: Lab) -> None:
    """A process that was sent the options without the key finds it in its environment."""
    lab.script(fine)
    lab.patch.setenv(KEY_VARIABLE, base64.b64encode(KEY).decode())
    ask(lab.make(encryption="SSE-C"), "head")
    assert CUSTOMERS.items() <= lab.asked[0].headers.items()
    for wrong in ("", "not base64!", base64.b64encode(b"short").decode()):
        lab.patch.setenv(KEY_VARIABLE, wrong)
        with pytest.raises(OptionError, match=KEY_VARIABLE):
            lab.make(encryption="SSE-C")


def test_etags_and_dates_come_back_as_they_were_sent(lab: Lab) -> None:
    """Names of metadata have no case; ages come from the reply's Date and Last-Modified, and from
    this machine's clock only where no Date can be read."""
    for etag in ('"quoted"', "bare"):
        lab.said(Reply(headers={**DATED, "ETag": etag}))
        info = lab.store.head("k")
        assert info.etag == lab.store.put("k", b"").etag == etag
        assert (info.seen_at, info.last_modified) == (DATE_SECONDS, DATE_SECONDS - 3600)
    spelled = {"X-Amz-Meta-Magic-Committer-Job": "Value", "x-amz-meta-OTHER": "1"}
    lab.said(Reply(body=b"x", headers={**DATED, **spelled}))  # a Go server or proxy spells so
    for info in (lab.store.head("k"), lab.store.get("k", max_bytes=1).info):
        assert info.metadata == {"magic-committer-job": "Value", "other": "1"}
    for date in ("", "nonsense"):
        lab.said(Reply(headers={**DATED, "Date": date}))
        assert abs(lab.store.head("k").seen_at - DATE_SECONDS) < 10**9
        assert lab.store.head("k").seen_at != DATE_SECONDS


UNSIGNED = "UNSIGNED-PAYLOAD"
BODY = b"x" * 300_000
SIGNED = hashlib.sha256(BODY).hexdigest()
SUM = Checksum("CRC32", "AAAAAA==")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("configured", ["", "true", "false"])
def test_bodies_are_hashed_where_nothing_else_protects_them(
    lab: Lab, trusted: Authority, tmp_path: Path, tls: bool, configured: str
) -> None:
    """Over plain HTTP every body; over TLS not a part that has a checksum, which the store checks,
    and by boto3 no object, which has an MD5. What ``payload_signing_enabled`` of the AWS
    configuration file says holds for all."""
    said = f"[default]\ns3 =\n    payload_signing_enabled = {configured}\n" if configured else ""
    (tmp_path / "config").write_text(said)
    (tmp_path / "body").write_bytes(b".." + BODY + b"..")
    lab.patch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    context = trusted.server("127.0.0.1") if tls else None
    with scripted_server(lambda _: PUT, context=context) as server:
        store = way_to(server.url)
        store.put_part("k", "u", 1, memoryview(BODY), checksum=SUM)
        store.put_part("k", "u", 1, memoryview(BODY))
        store.put_part("k", "u", 1, FileSlice(str(tmp_path / "body"), 2, len(BODY)))
        store.put("k", BODY)
    by_md5 = UNSIGNED if tls and TRANSPORT.get() == "boto3" else SIGNED
    by_default = [UNSIGNED if tls else SIGNED, SIGNED, SIGNED, by_md5]
    wanted = {"true": [SIGNED] * 4, "false": [UNSIGNED] * 4}.get(configured, by_default)
    assert [asked.headers["x-amz-content-sha256"] for asked in server.asked] == wanted
    assert [asked.body == BODY for asked in server.asked] == [True] * 4
    assert sent_by(server.asked) == [lab.transport] * 4
