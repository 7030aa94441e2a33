"""Secrets stay where they are used: no log, no error, no repr, no pickle shows one."""

from __future__ import annotations

import base64
import hashlib
import logging
import pickle
import traceback
from collections.abc import Iterator
from dataclasses import replace

import botocore.auth
import pytest

from magic_committer.errors import StoreError
from magic_committer.options import S3Options
from magic_committer.stores.base import Attributes, Part
from magic_committer.stores.s3 import S3Store, redact
from tests.servers import (
    TRANSPORT,
    Asked,
    HurriedClock,
    Reply,
    ScriptedServer,
    document,
    error,
    scripted_server,
)

pytestmark = pytest.mark.usefixtures("transport")

ACCESS = "AKIASENTINELACCESS01"
SECRET = "sentinel/secret+key/0123456789abcdefghij"
TOKEN = "sentinel//session+token==/0123456789abcdefghijklmnopqrstuvwxyz"
KEY = b"sentinel-customer-key-\x00\x01\xfe\xff-01234"
SENTINELS = {
    "access key": ACCESS,
    "secret key": SECRET,
    "session token": TOKEN,
    "customer key in base64": base64.b64encode(KEY).decode(),
    "customer key": repr(KEY)[2:-1],
    "customer key as text": KEY.decode("latin-1"),
    "customer key in hex": KEY.hex(),
    "MD5 of the customer key": base64.b64encode(hashlib.md5(KEY).digest()).decode(),
}


class Everything(logging.Handler):
    """Keeps all that is logged, formatted with its tracebacks and its raw arguments."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = logging.Formatter("%(name)s %(message)s").format(record)
        self.lines.append(f"{text} {record.msg} {record.args!r}")


@pytest.fixture
def log() -> Iterator[Everything]:
    """All logs at DEBUG: root, the SDK, the HTTP library."""
    handler, root = Everything(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)


def echo(asked: Asked) -> Reply:
    """A store that repeats what it was sent in its error, as SignatureDoesNotMatch does."""
    sent = " ".join(f"{name}: {value}" for name, value in asked.headers.items())
    return error(403, "SignatureDoesNotMatch", f"{sent} {SECRET}")


def fine(asked: Asked) -> Reply:
    """A store to which everything is well."""
    if asked.method == "POST" and "uploads" in asked.query:
        return document("InitiateMultipartUpload", "<UploadId>u1</UploadId>")
    headers = {"ETag": '"e"', "Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT"}
    return Reply(headers={**headers, "x-amz-meta-echo": asked.headers.get("authorization", "")})


def use(store: S3Store) -> list[str]:
    """Each verb once; the texts of the errors, with their whole chains."""
    texts = []
    for ask in (
        lambda: store.put("k", b"x"),
        lambda: store.head("k"),
        lambda: store.get("k", max_bytes=9),
        lambda: store.create_upload("k", attributes=Attributes(metadata={"a": "b"})),
        lambda: store.put_part("k", "u1", 1, memoryview(b"x")),
        lambda: store.complete_upload("k", "u1", [Part(1, '"e"', 1)]),
        lambda: store.delete(["k"]),
        lambda: list(store.list_uploads("k")),
    ):
        try:
            ask()
        except StoreError as caught:
            chain: BaseException | None = caught
            while chain is not None:
                texts += [str(chain), repr(chain), repr(vars(chain))]
                chain = chain.__cause__ or chain.__context__
            texts += traceback.format_exception(caught)
            texts.append(pickle.dumps(caught, 0).decode("latin-1"))
    return texts


def shown(texts: list[str]) -> list[str]:
    """The names of the sentinels that some text shows, with the text."""
    return [f"{name}: {t[:400]}" for t in texts for name, s in SENTINELS.items() if s in t]


def given(server: ScriptedServer) -> S3Options:
    """Options that hold every secret there is."""
    return S3Options(
        endpoint_url=server.url,
        access_key=ACCESS,
        secret_key=SECRET,
        session_token=TOKEN,
        encryption="SSE-C",
        sse_customer_key=KEY,
        retry_attempts_max=2,
        transport=TRANSPORT.get(),
    )


@pytest.mark.parametrize("script", [fine, echo, lambda _: Reply(lost=True)])
@pytest.mark.parametrize("source", ["options", "environment"])
@pytest.mark.parametrize("signer", ["installed", "pure"])
def test_no_secret_is_shown(
    log: Everything, monkeypatch: pytest.MonkeyPatch, script: object, source: str, signer: str
) -> None:
    """No log line at DEBUG and no error shows a secret, in success, refusal and silence; from the
    options or from the environment; also where the store repeats what it was sent."""
    monkeypatch.setattr(redact, "_known", [set(), set()])
    if signer == "pure":  # where awscrt is installed, the SDK signs with that, and logs otherwise
        for name in ("v4", "s3v4"):
            monkeypatch.setitem(botocore.auth.AUTH_TYPE_MAPS, name, botocore.auth.S3SigV4Auth)
    with scripted_server(script) as server:  # type: ignore[arg-type]
        options = given(server)
        if source == "environment":
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
            monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
            name = "MAGIC_COMMITTER_SSE_CUSTOMER_KEY"
            monkeypatch.setenv(name, SENTINELS["customer key in base64"])
            options = pickle.loads(pickle.dumps(options))
        store = S3Store("b", options, clock=HurriedClock())
        texts = use(store)
        sent = server.asked[0].headers
        texts += [repr(store), str(vars(store)["_way"]), store.identity, repr(options)]
    assert shown(texts) == []
    assert shown(log.lines) == []
    assert sent["x-amz-security-token"] == TOKEN, "the secrets were used"
    if options.transport == "boto3":
        assert signer != "pure" or any("CanonicalRequest" in line for line in log.lines)
        assert any(redact.HIDDEN in line for line in log.lines), "there was something to hide"


def test_the_log_shows_secrets_without_the_filter(
    log: Everything, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This test's handler does see secrets when nothing hides them: the test above can fail."""
    monkeypatch.setattr(redact._Filter, "filter", lambda self, record: True)
    with scripted_server(fine) as server:
        use(S3Store("b", replace(given(server), transport="boto3"), clock=HurriedClock()))
    assert shown(log.lines) != []


def test_options_leave_secrets_behind() -> None:
    """Neither repr nor pickle of the options holds a secret; the copy asks the environment."""
    with scripted_server() as server:
        options = given(server)
    texts = [repr(options), str(options), pickle.dumps(options, 0).decode("latin-1")]
    assert shown(texts) == []
    assert pickle.loads(pickle.dumps(options)).access_key is None


@pytest.mark.parametrize(
    "text",
    [
        "x-amz-security-token:{}",
        "{{'X-Amz-Security-Token': b'{}', 'Host': 'h'}}",
        "Credential={}/20261120/us-east-1/s3/aws4_request",
        "<Credentials><SecretAccessKey>{}</SecretAccessKey></Credentials>",
        "<SessionToken>{}</SessionToken>",
        '{{"AccessKeyId" : "{}", "Code": "Success"}}',
        '{{"SecretAccessKey" : "{}"}}',
        '{{"Token" : "{}"}}',
        "x-amz-server-side-encryption-customer-key:{}",
        "{{'x-amz-server-side-encryption-customer-key-MD5': '{}'}}",
    ],
)
def test_secrets_nobody_told_of_are_found_by_their_place(text: str) -> None:
    """What a credential service answers is logged before anybody knows it: patterns hide it."""
    assert "unknown/value+of=secret" not in redact.redacted(text.format("unknown/value+of=secret"))


def test_plain_text_stays() -> None:
    """Nothing else is changed, and short placeholders are not hunted."""
    redact.know("ab", "test")
    text = "put_part s3://b/test/ab failed: 403 AccessDenied"
    assert redact.redacted(text) == text


def test_keys_of_many_jobs_are_forgotten_but_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that gives each job its own keys does not keep them all; a key that is told again
    with each signature stays hidden."""
    monkeypatch.setattr(redact, "_known", [set(), set()])
    for number in range(5 * redact.FORMS_MAX):
        redact.know(SECRET, f"the secret of job {number}")
        assert SECRET not in redact.redacted(f"with {SECRET}")
    assert sum(map(len, redact._known)) <= 2 * redact.FORMS_MAX + 8
    last = f"the secret of job {number}"
    assert redact.redacted(last) == redact.HIDDEN
