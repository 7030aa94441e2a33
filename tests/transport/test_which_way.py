"""Which way requests go: chosen once, and said by store, doctor, report and command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import OptionError
from magic_committer.options import S3Options
from magic_committer.stores.base import AbortUpload, Written, many_of, transport_of
from magic_committer.stores.s3.answers import Refused
from magic_committer.stores.s3.errors import translate
from magic_committer.stores.s3.fast import Fast
from tests.servers import Asked, HurriedClock, Reply, error, moto_options, moto_server
from tests.transport.lab import PUT, Lab, at_once, sent_by

SAYS = {"fast": "fast", "auto": "fast", "boto3": "boto3 (transport='boto3')"}


@pytest.mark.parametrize("named", SAYS)
def test_the_fast_way_is_taken_where_it_can_be(lab: Lab, named: str) -> None:
    """``auto`` and ``fast`` send by the fast way, ``boto3`` by the SDK; the store says so, and the
    doctor in one phrase."""
    store = lab.make(transport=named)
    store.put("k", b"x")
    assert sent_by(lab.asked) == [store.transport[0]]
    assert transport_of(store) == SAYS[named]


ARN = "arn:aws:s3:eu-north-1:123456789012:accesspoint/"


@pytest.mark.parametrize(
    ("bucket", "more", "why"),
    [
        ("b--usw2-az1--x-s3", {}, "S3 Express"),
        *[(bucket, {}, "an access point")
          for bucket in (f"{ARN}point", "point-op-01ac5d28a6a--op-s3")],
        (f"{ARN}mfzwi23gnjvgw.mrap".replace("eu-north-1", ""), {}, "an access point"),
        ("b", {"region": "us-iso-east-1"}, "us-iso-east-1"),
        ("b", {"region": "eusc-de-east-1"}, "eusc-de-east-1"),
        ("b", {"endpoint_url": "http://user:word@h"}, "has a user"),
        *[("b", {"endpoint_url": url}, "URL")
          for url in ("http://h?a=b", "http://h#a", "http://h:0", "http://h/ü", "http://h/a b")],
        ("b", {"AWS_ENDPOINT_URL": "ftp://h"}, "URL"),
        ("b", {"BOTOCORE_EXPERIMENTAL__PLUGINS": "a=b"}, "BOTOCORE_EXPERIMENTAL__PLUGINS"),
        ("b", {"AWS_SIGV4A_SIGNING_REGION_SET": "*"}, "sigv4a_signing_region_set"),
        ("p--usw2-az1--xa-s3", {}, "S3 Express"),
    ],
)  # fmt: skip
def test_what_is_not_plain_stays_with_the_sdk(bucket: str, more: Any, why: str, lab: Lab) -> None:
    """What has other endpoints or signatures is not guessed: ``auto`` takes the SDK and says why,
    ``fast`` is an error with a hint."""
    for name in filter(str.isupper, more):
        lab.patch.setenv(name, more[name])
    options = {name: text for name, text in more.items() if name in ("region", "endpoint_url")}
    wanted = {"endpoint_url": None, "region": "eu-north-1", **options}
    took, reason = lab.make(bucket, **{**wanted, "transport": "auto"}).transport
    assert took == "boto3"
    assert why in reason
    with pytest.raises(OptionError, match="transport='auto'") as caught:
        lab.make(bucket, **{**wanted, "transport": "fast"})
    assert why in str(caught.value)


KEYS = "".join(f"<{name}>0123456789</{name}>" for name in ("AccessKeyId", "SecretAccessKey"))
SESSION = (
    f"<CreateSessionResult><Credentials>{KEYS}<SessionToken>the token</SessionToken>"
    "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>"
)


def test_a_session_of_s3_express_is_asked_for_without_the_parts_body(lab: Lab) -> None:
    """The SDK asks for it on the way of the first request, which comes after it, whole. An object
    has no MD5 there: S3 Express refuses it."""
    lab.said(Reply(200, SESSION), PUT)
    store = lab.make("b--usw2-az1--x-s3", transport="auto", path_style=True)
    store.put_part("k", "u", 1, memoryview(b"part"))
    assert [("session" in asked.query, asked.body) for asked in lab.asked] == [
        (True, b""),
        (False, b"part"),
    ]
    assert lab.asked[1].headers["x-amz-s3session-token"] == "the token"
    store.put("k", b"x")
    assert "content-md5" not in lab.asked[-1].headers


@pytest.mark.parametrize("among_many", [False, True])
def test_a_bucket_in_another_region_is_found(lab: Lab, among_many: bool) -> None:
    """An answer that names another region: the request is sent again, signed for that one, as if it
    had been sent once; and the next one at once."""

    def script(asked: Asked) -> Reply:
        if "/eu-west-3/" in asked.headers["authorization"]:
            return PUT
        body = str(error(400, "AuthorizationHeaderMalformed").body)
        body = body.replace("<Code>", "<Region>eu-west-3</Region><Code>")
        return Reply(400, body, {"x-amz-bucket-region": "eu-west-3"})

    lab.script(script)
    store = lab.make(region=None)  # us-east-1, until the store says otherwise
    if among_many and many_of(store) is not None:
        count = 4  # each was sent before the first of them knew
        told = at_once(store, *[(name, AbortUpload(name, "u")) for name in "abcd"])
        assert told == dict.fromkeys("abcd", Written(""))
    else:
        count = 1
        assert store.put("k", b"x").attempts == 1
    store.put("k", b"x")
    regions = [asked.headers["authorization"].split("/")[2] for asked in lab.asked]
    assert sorted(regions, reverse=True) == ["us-east-1"] * count + ["eu-west-3"] * (count + 1)
    assert regions[-1] == "eu-west-3"


def test_to_a_region_that_nobody_knows_no_request_moves() -> None:
    """Its endpoint is not guessed: the store's refusal stands, and the hint says what to set."""
    options = S3Options(region="eu-north-1", access_key="k", secret_key="s")
    way = Fast("b", options, HurriedClock())
    for region, moves in (("zz-new-1", False), ("eu-west-3", True)):
        refused = Refused(301, "PermanentRedirect", "", region=region)
        assert way.moves(refused, "eu-north-1") is moves
    assert way.region == "eu-west-3"
    assert "set S3Options(region=" in str(translate(refused, "put", "b", "k"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """moto's server, with an empty bucket."""
    with moto_server("bucket") as running:
        yield running


def test_a_report_says_what_sent_the_requests(transport: str, url: str) -> None:
    """Of a commit, an abort, a failure and a job without conditional writes alike."""
    s3, said = moto_options(url), SAYS[transport]

    def begun(number: int, **more: Any) -> mc.Job:
        return mc.start(f"s3://bucket/{transport}-{number}", s3=s3, **more)

    job, failing = begun(1), begun(3)
    with job.task(0) as task, task.open("a") as file:
        file.write(b"x")
    report = job.commit([task.result]).to_dict()
    assert (report["outcome"], report["transport"]) == ("committed", said)
    with pytest.raises(mc.JobError):
        failing.commit([])
    assert failing.report.error != ""
    off = begun(4, options=mc.Options(conditional_writes="off"))
    reports = [failing.report, begun(2).abort(), off.abort()]
    assert [one.transport for one in reports] == [said] * 3
