"""Secrets stay where they are used: no log, no error, no repr, no pickle shows one."""

from __future__ import annotations

import base64
import hashlib
import logging
import pickle
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import botocore.auth
import pytest

from magic_committer.errors import StoreError
from magic_committer.stores.s3 import S3Store, redact
from tests.servers import Asked, HurriedClock, Reply, error, way
from tests.transport import lab as verbs
from tests.transport.lab import LOST, VERBS, Lab

ACCESS = "AKIASENTINELACCESS01"
SECRET = "sentinel/secret+key/0123456789abcdefghij"
TOKEN = "sentinel//session+token==/0123456789abcdefghijklmnopqrstuvwxyz"
KEY = b"sentinel-customer-key-\x00\x01\xfe\xff-01234"
CODED = base64.b64encode(KEY).decode()
SENTINELS = {
    "access key": ACCESS, "secret key": SECRET, "session token": TOKEN,
    "customer key in base64": CODED, "customer key": repr(KEY)[2:-1],
    "customer key as text": KEY.decode("latin-1"), "customer key in hex": KEY.hex(),
    "MD5 of the customer key": base64.b64encode(hashlib.md5(KEY).digest()).decode(),
}  # fmt: skip
GIVEN: dict[str, Any] = {
    "access_key": ACCESS, "secret_key": SECRET, "session_token": TOKEN, "encryption": "SSE-C",
    "sse_customer_key": KEY, "retry_attempts_max": 2,
}  # fmt: skip
"""Options that hold every secret there is."""
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN,
    "MAGIC_COMMITTER_SSE_CUSTOMER_KEY": CODED,
}  # fmt: skip


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> Callable[[], list[str]]:
    """All that is logged at DEBUG, formatted with its tracebacks, and its raw arguments: root, the
    SDK, the HTTP library."""
    monkeypatch.setattr(redact, "_known", [set(), set()])
    caplog.set_level(logging.DEBUG)
    form = logging.Formatter("%(name)s %(message)s").format
    return lambda: [f"{form(one)} {one.msg} {one.args!r}" for one in caplog.records]


def echo(asked: Asked) -> Reply:
    """A store that repeats what it was sent in its error, as SignatureDoesNotMatch does."""
    sent = " ".join(f"{name}: {value}" for name, value in asked.headers.items())
    return error(403, "SignatureDoesNotMatch", f"{sent} {SECRET}")


def fine(asked: Asked) -> Reply:
    """A store to which everything is well; objects repeat what it was sent."""
    reply = verbs.fine(asked)
    return replace(
        reply, headers={**reply.headers, "x-amz-meta-e": asked.headers.get("authorization", "")}
    )


def use(store: S3Store) -> list[str]:
    """Each verb once; the texts of the errors, with their whole chains."""
    texts = []
    for verb in VERBS:
        try:
            verbs.ask(store, verb)
        except StoreError as caught:
            chain: BaseException | None = caught
            while chain is not None:
                texts += [str(chain), repr(chain), repr(vars(chain)), repr(chain.args)]
                chain = chain.__cause__ or chain.__context__
            texts += traceback.format_exception(caught)
            texts.append(pickle.dumps(caught, 0).decode("latin-1"))
    return texts


def shown(texts: list[str]) -> list[str]:
    """The names of the sentinels that some text shows, with the text."""
    return [f"{name}: {t[:400]}" for t in texts for name, s in SENTINELS.items() if s in t]


@pytest.mark.parametrize("script", [fine, echo, lambda _: LOST])
@pytest.mark.parametrize("source", ["options", "environment"])
@pytest.mark.parametrize("signer", ["installed", "pure"])
def test_no_secret_is_shown(
    lab: Lab, log: Callable[[], list[str]], script: Any, source: str, signer: str
) -> None:
    """No log line at DEBUG and no error shows a secret, in success, refusal and silence; from the
    options or from the environment; also where the store repeats what it was sent. Neither repr nor
    pickle of the options holds one: the copy asks the environment."""
    if signer == "pure":  # where awscrt is installed, the SDK signs with that, and logs otherwise
        for name in ("v4", "s3v4"):
            lab.patch.setitem(botocore.auth.AUTH_TYPE_MAPS, name, botocore.auth.S3SigV4Auth)
    lab.script(script)
    options = way(lab.url, **GIVEN)
    pickled = pickle.dumps(options, 0)
    texts = [repr(options), str(options), pickled.decode("latin-1")]
    assert pickle.loads(pickled).access_key is None
    if source == "environment":
        for name, value in ENVIRONMENT.items():
            lab.patch.setenv(name, value)
        options = pickle.loads(pickled)
    store = S3Store("b", options, clock=HurriedClock())
    texts += [*use(store), repr(store), str(vars(store)["_way"]), store.identity]
    assert shown(texts) == []
    assert shown(lines := log()) == []
    assert lab.asked[0].headers["x-amz-security-token"] == TOKEN, "the secrets were used"
    if options.transport == "boto3":
        assert signer != "pure" or any("CanonicalRequest" in line for line in lines)
        assert any(redact.HIDDEN in line for line in lines), "there was something to hide"


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
    """What a credential service answers is logged before anybody knows it: patterns hide it.
    Nothing else is changed, and short placeholders are not hunted."""
    assert "unknown/value+of=secret" not in redact.redacted(text.format("unknown/value+of=secret"))
    redact.know("ab", "test")
    plain = "put_part s3://b/test/ab failed: 403 AccessDenied"
    assert redact.redacted(plain) == plain


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
