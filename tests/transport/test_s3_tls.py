"""A store behind TLS: who is trusted, by both ways alike, and what is told of a store that is not.

The settings are the SDK's. So each test runs once by boto3 and once by the fast way, which must do
the same with them.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magic_committer.errors import OptionError, StoreError, Unanswered
from magic_committer.stores.base import CompleteUpload, Part, many_of
from magic_committer.stores.s3 import S3Store
from tests.certificates import Authority
from tests.servers import HurriedClock, Reply, ScriptedServer, document, scripted_server, way

PUT = Reply(headers={"ETag": '"e"'})
SETTINGS = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
pytestmark = pytest.mark.usefixtures("transport", "no_settings")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who has signed the store's certificate."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Somebody else."""
    return Authority(tmp_path_factory.mktemp("other"), "other")


@pytest.fixture(scope="module")
def running(authority: Authority) -> Iterator[ScriptedServer]:
    """A store behind TLS, known as 127.0.0.1."""
    with scripted_server(lambda _: PUT, context=authority.server("127.0.0.1")) as made:
        yield made


@pytest.fixture
def server(running: ScriptedServer) -> ScriptedServer:
    """It, asked nothing yet."""
    running.asked.clear()
    running.said(PUT)
    return running


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing of certificates."""
    for name in (*SETTINGS, "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def make(url: str, **more: Any) -> S3Store:
    """A store there, by the transport of the test."""
    return S3Store("b", way(url, **more), clock=HurriedClock())


def sent_by(server: ScriptedServer) -> list[str]:
    """What sent each request."""
    sdk_sent = ["amz-sdk-invocation-id" in asked.headers for asked in server.asked]
    return ["boto3" if by_sdk else "fast" for by_sdk in sdk_sent]


def refused(store: S3Store, server: ScriptedServer) -> Unanswered:
    """The error of a store that is not trusted: final, and nothing was sent."""
    with pytest.raises(Unanswered) as caught:
        store.put("k", b"x")
    error = caught.value
    assert server.asked == []
    assert (error.sent, error.attempts) == (False, 1)
    assert "certificate verify failed" in str(error)
    assert "AWS_CA_BUNDLE" in error.hint
    assert "Nothing was sent" in error.hint
    return error


def named_in_the_configuration(folder: Path, pem: str, patch: pytest.MonkeyPatch) -> None:
    """The bundle as the AWS configuration file names it."""
    (folder / "config").write_text(f"[default]\nca_bundle = {pem}\n")
    patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))


# Authorities --------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [*SETTINGS, "ca_bundle"])
def test_a_private_authority_is_trusted_where_it_is_named(
    setting: str,
    transport: str,
    server: ScriptedServer,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each setting of the SDK's lets small objects, parts and rare verbs through, by both ways."""
    if setting == "ca_bundle":
        named_in_the_configuration(tmp_path, authority.pem, monkeypatch)
    else:
        monkeypatch.setenv(setting, authority.pem)
    store = make(server.url)
    assert store.transport[0] == transport
    store.put("k", b"x")
    body = memoryview(bytes(300_000))
    store.put_part("k", "u", 1, body)
    server.said(document("Delete"))
    assert store.delete(["k"]) == {}
    assert sent_by(server) == [transport] * 3
    assert server.asked[1].body == bytes(body)


def test_the_sdks_own_variable_comes_first(
    server: ScriptedServer,
    authority: Authority,
    other: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the two variables name different bundles, ``AWS_CA_BUNDLE`` counts, by both ways."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority.pem)
    monkeypatch.setenv("AWS_CA_BUNDLE", other.pem)
    refused(make(server.url), server)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", other.pem)
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    make(server.url).put("k", b"x")
    assert len(server.asked) == 1


@pytest.mark.parametrize("named", [False, True], ids=["no bundle", "another bundle"])
def test_an_authority_that_is_not_named_is_refused(
    named: bool, server: ScriptedServer, other: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of an unknown authority ends the request at once: nothing was sent, the error
    says what to set, and it is not tried again."""
    if named:
        monkeypatch.setenv("AWS_CA_BUNDLE", other.pem)
    refused(make(server.url), server)


def test_only_the_named_bundle_counts(
    server: ScriptedServer,
    authority: Authority,
    other: Authority,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Who names a bundle trusts nobody else: OpenSSL's variables add nothing to it."""
    monkeypatch.setenv("AWS_CA_BUNDLE", other.pem)
    monkeypatch.setenv("SSL_CERT_FILE", authority.pem)
    system = authority.folder(tmp_path_factory.mktemp("system").name)
    monkeypatch.setenv("SSL_CERT_DIR", system)
    refused(make(server.url), server)


def test_a_bundle_needs_the_authority_at_the_top(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A bundle with an authority in the middle, and not the one that signed it, is not enough: the
    fast verbs do not accept what the rare ones, by the SDK, refuse."""
    middle = Authority(tmp_path, "middle", above=authority)
    with scripted_server(lambda _: PUT, context=middle.server("127.0.0.1")) as below:
        monkeypatch.setenv("AWS_CA_BUNDLE", middle.pem)
        refused(make(below.url), below)
        whole = tmp_path / "whole.pem"
        whole.write_bytes(Path(middle.pem).read_bytes() + Path(authority.pem).read_bytes())
        monkeypatch.setenv("AWS_CA_BUNDLE", str(whole))
        make(below.url).put("k", b"x")
        assert len(below.asked) == 1


def test_a_certificate_for_another_name_is_refused(
    server: ScriptedServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trusted authority vouches for the names in the certificate, and for no other."""
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    refused(make(server.url.replace("127.0.0.1", "localhost")), server)


def test_a_certificate_that_has_expired_is_refused(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of a trusted authority counts until its end, and the error says that it is
    over."""
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    ended = authority.server("127.0.0.1", end=datetime.datetime(2021, 1, 1))
    with scripted_server(lambda _: PUT, context=ended) as late:
        error = refused(make(late.url), late)
    assert "expired" in str(error)


def test_a_batch_trusts_whom_the_verbs_trust(
    transport: str,
    server: ScriptedServer,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many Completes at once go to the same authority's store, and to no other."""
    if transport == "boto3":
        pytest.skip("boto3 sends each request in a thread")
    server.said(document("CompleteMultipartUpload", '<ETag>"e-1"</ETag>'))
    asks = [(n, CompleteUpload(f"k{n}", "u", (Part(1, '"p"', 1),))) for n in range(20)]
    for trusted in (False, True):
        if trusted:
            monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
        many = many_of(make(server.url))
        assert many is not None
        told = dict(many.ask_each(partial(next, iter(asks), None), in_flight=8))
        failed = [one for one in told.values() if isinstance(one, StoreError)]
        assert len(failed) == (0 if trusted else 20)
        assert not any(one.sent for one in failed)
        assert len(server.asked) == (20 if trusted else 0)


# What cannot be read ------------------------------------------------------------------------------


@pytest.mark.parametrize("bundle", ["missing", "folder"])
def test_a_bundle_that_is_no_file_is_refused_at_once(
    bundle: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A bundle that is not there, or is a folder, is an error before any request, which names it
    and the settings that may have named it."""
    path = tmp_path / "bundle"
    if bundle == "folder":
        path.mkdir()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(path))
    with pytest.raises(OptionError, match=rf"{path}.*AWS_CA_BUNDLE"):
        make(server.url)


def test_a_bundle_without_a_certificate_is_no_permission(
    monkeypatch: pytest.MonkeyPatch, server: ScriptedServer, tmp_path: Path
) -> None:
    """A bundle that holds no certificate is refused; it never means "trust everybody"."""
    (tmp_path / "bundle").write_text("no certificate\n")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "bundle"))
    with pytest.raises(OptionError, match=r"bundle.*AWS_CA_BUNDLE"):
        make(server.url)


# A server that asks for more ----------------------------------------------------------------------


def test_without_the_certificate_that_is_asked_for_nothing_arrives(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that asks for a certificate answers nobody who has none; by both ways that is no
    answer, and the store got nothing."""
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    with scripted_server(lambda _: PUT, context=asking_for_a_certificate(authority)) as strict:
        with pytest.raises(Unanswered):
            make(strict.url, retry_attempts_max=1).put("k", b"x")
        assert strict.asked == []


def asking_for_a_certificate(authority: Authority) -> ssl.SSLContext:
    """The context of a server that wants its clients' certificates."""
    context = authority.server("127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.pem)
    return context
