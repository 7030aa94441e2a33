"""A store behind a proxy, and one at an address of IPv6: by both ways alike.

The SDK decides whether a proxy is asked, and which. So each test runs once by boto3 and once by
the fast way, which must do the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from magic_committer.errors import InvalidRequest, OptionError, StoreError, Unanswered
from magic_committer.stores.base import CompleteUpload, Part, many_of
from magic_committer.stores.s3 import S3Store
from tests.certificates import Authority
from tests.servers import HurriedClock, Reply, ScriptedServer, document, scripted_server, way
from tests.transport.forwarder import Forwarder, forwarder

PUT = Reply(headers={"ETag": '"e"'})
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
BODY = bytes(range(256)) * 2000
"""A body that is sent in several pieces."""
HIDDEN = "a%2Fb:p%40ss%3Aword"
"""A user and a password as a URL holds them."""
PASSWORD = "a/b:p@ss:word"
pytestmark = pytest.mark.usefixtures("transport", "no_proxies")


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names no proxy, and no exception from one."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who has signed the certificates of store and proxy."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The authority, trusted."""
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    return authority


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A store without TLS."""
    with scripted_server(lambda _: PUT) as running:
        yield running


@pytest.fixture
def hidden(authority: Authority) -> Iterator[ScriptedServer]:
    """A store with TLS, whose certificate names a host that no resolver knows."""
    with scripted_server(lambda _: PUT, context=authority.server("store.invalid")) as running:
        yield running


def make(url: str, **more: Any) -> S3Store:
    """A store there, by the transport of the test, which waits for nothing."""
    return S3Store("b", way(url, **more), clock=HurriedClock())


def sent_by(server: ScriptedServer) -> list[str]:
    """What sent each request."""
    sdk_sent = ["amz-sdk-invocation-id" in asked.headers for asked in server.asked]
    return ["boto3" if by_sdk else "fast" for by_sdk in sdk_sent]


def with_user(proxy: Forwarder, user: str = HIDDEN) -> str:
    """The proxy's URL with a user and a password."""
    return proxy.url.replace("//", f"//{user}@")


# Through a proxy ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "written"),
    [("HTTP_PROXY", "{}"), ("HTTP_PROXY", "//{}"), ("http_proxy", "http://{}")],
)
def test_a_plain_request_goes_through_the_proxy(
    variable: str,
    written: str,
    transport: str,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that only the proxy can reach gets each request as it was signed, whole, however the
    proxy's URL is written."""
    with forwarder(server.url) as proxy:
        monkeypatch.setenv(variable, written.format(proxy.url.removeprefix("http://")))
        store = make("http://store.invalid:9000")
        assert store.transport[0] == transport
        store.put("a b/ü", b"x")
        store.put_part("k", "u", 1, memoryview(BODY))
    assert sent_by(server) == [transport] * 2
    assert [asked.headers["host"] for asked in server.asked] == ["store.invalid:9000"] * 2
    assert (server.asked[0].path, server.asked[1].body) == ("/b/a b/ü", BODY)
    assert proxy.lines[0] == "PUT http://store.invalid:9000/b/a%20b/%C3%BC HTTP/1.1"


@pytest.mark.usefixtures("trusted")
def test_an_encrypted_request_goes_through_a_tunnel(
    transport: str, hidden: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy connects; the store's certificate is checked behind it; and the proxy sees neither
    the key, nor the signature, nor a byte of the body."""
    with forwarder(hidden.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        store = make("https://store.invalid")
        store.put_part("secret-key", "u", 1, memoryview(b"secret-bytes" * 50_000))
        assert sent_by(hidden) == [transport]
        assert {line.rpartition(" ")[0] for line in proxy.lines} == {"CONNECT store.invalid:443"}
        assert b"secret" not in proxy.seen
        assert b"uthorization" not in proxy.seen


def test_a_tunnel_does_not_replace_the_certificate(
    hidden: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store behind a tunnel that is not trusted gets nothing: final, not sent, and the error
    speaks of the certificate and not of the proxy."""
    with forwarder(hidden.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(Unanswered, match="certificate verify failed") as caught:
            make("https://store.invalid").put("k", b"x")
    assert (caught.value.sent, caught.value.attempts, hidden.asked) == (False, 1, [])
    assert "https://store.invalid" in str(caught.value)


def test_a_batch_goes_through_the_proxy(
    transport: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many Completes at once take the same way, with the same password."""
    if transport == "boto3":
        pytest.skip("boto3 sends each request in a thread")
    server.said(document("CompleteMultipartUpload", '<ETag>"e-1"</ETag>'))
    asks = [(n, CompleteUpload(f"k{n}", "u", (Part(1, '"p"', 1),))) for n in range(40)]
    with forwarder(server.url, password=PASSWORD) as proxy:
        monkeypatch.setenv("HTTP_PROXY", with_user(proxy))
        many = many_of(make("http://store.invalid:9000"))
        assert many is not None
        left = iter(asks)
        told = dict(many.ask_each(lambda: next(left, None), in_flight=8))
    assert not [one for one in told.values() if isinstance(one, StoreError)]
    assert len(server.asked) == len(proxy.lines) == 40


@pytest.mark.parametrize(
    ("variable", "exception", "through"),
    [
        ("NO_PROXY", "127.0.0.1", False),
        ("no_proxy", "*", False),
        ("no_proxy", "example.com,127.0.0.1", False),
        ("NO_PROXY", "example.com", True),
        ("NO_PROXY", "", True),
    ],
)
def test_exceptions_are_the_sdks(
    variable: str,
    exception: str,
    through: bool,
    transport: str,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that ``NO_PROXY`` names is asked directly, any other one by the proxy."""
    with forwarder(server.url) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv(variable, exception)
        make(server.url).put("k", b"x")
    assert sent_by(server) == [transport]
    assert len(proxy.lines) == int(through)


def test_a_proxy_for_the_other_scheme_is_not_asked(
    transport: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain request does not go by ``HTTPS_PROXY``, nor by ``ALL_PROXY``, which the SDK does not
    read."""
    with forwarder(server.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        make(server.url).put("k", b"x")
    assert (sent_by(server), proxy.lines) == ([transport], [])


# Passwords ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.usefixtures("trusted")
def test_the_proxy_gets_its_password_and_the_store_does_not(
    scheme: str,
    transport: str,
    server: ScriptedServer,
    hidden: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """User and password of the proxy's URL, decoded, are shown to the proxy alone."""
    behind = server if scheme == "http" else hidden
    with forwarder(behind.url, password=PASSWORD) as proxy:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", with_user(proxy))
        make(f"{scheme}://store.invalid").put("k", b"x")
    assert set(proxy.shown) == {PASSWORD}
    assert sent_by(behind) == [transport]
    assert not [name for name in behind.asked[0].headers if name.startswith("proxy-")]


@pytest.mark.parametrize("shown", ["", "a:wrong"])
@pytest.mark.usefixtures("trusted")
def test_a_tunnel_that_wants_a_password_is_an_error_that_says_so(
    shown: str, hidden: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the password nothing is sent; the error has the proxy's 407, names the settings, and
    holds no password."""
    with forwarder(hidden.url, password=PASSWORD) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", with_user(proxy, shown) if shown else proxy.url)
        with pytest.raises(Unanswered, match="407") as caught:
            make("https://store.invalid", retry_attempts_max=2).put("k", b"x")
    error = caught.value
    assert (error.sent, error.attempts, hidden.asked) == (False, 2, [])
    assert "HTTPS_PROXY" in error.hint
    assert "wrong" not in str(error)


def test_a_proxy_that_wants_a_password_is_told_apart_from_the_store(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 407 to a plain request is final, and the hint says that the proxy wants a password."""
    with forwarder(server.url, password=PASSWORD) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(InvalidRequest) as caught:
            make("http://store.invalid").put("k", b"x")
    assert (caught.value.status, caught.value.attempts, server.asked) == (407, 1, [])
    assert "http://user:password@host:port" in caught.value.hint


# Proxies that fail --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "status"), [("http", 502), ("http", 504), ("https", 502), ("https", 503)]
)
@pytest.mark.usefixtures("trusted")
def test_a_proxy_that_finds_no_store_for_a_moment_is_asked_again(
    scheme: str,
    status: int,
    server: ScriptedServer,
    hidden: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proxy's own 502, 503 or 504 is not the store's answer: it is tried again."""
    behind = server if scheme == "http" else hidden
    with forwarder(behind.url) as proxy:
        proxy.refuses = [status, status]
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", proxy.url)
        assert make(f"{scheme}://store.invalid").put("k", b"x").attempts == 3
    assert len(behind.asked) == 1


@pytest.mark.parametrize(("scheme", "sent"), [("http", True), ("https", False)])
@pytest.mark.usefixtures("trusted")
def test_what_a_proxy_refused_was_sent_or_not(
    scheme: str, sent: bool, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 502 to a plain request tells nothing about the store: it may have got it. A 502 to a
    tunnel means that it has not."""
    with forwarder(server.url) as proxy:
        proxy.refuses = [502] * 2
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", proxy.url)
        with pytest.raises(Unanswered, match="502") as caught:
            make(f"{scheme}://store.invalid", retry_attempts_max=2).put("k", b"x")
    assert (caught.value.sent, caught.value.attempts) == (sent, 2)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_there_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was sent; the error names the proxy, without its password, and the settings."""
    monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://{HIDDEN}@127.0.0.1:1")
    with pytest.raises(Unanswered) as caught:
        make(f"{scheme}://store.invalid", retry_attempts_max=2).put("k", b"x")
    error = caught.value
    assert (error.sent, error.attempts) == (False, 2)
    assert "http://127.0.0.1:1" in str(error)
    assert "HTTP_PROXY" in error.hint
    assert "word" not in str(error)


# Proxies that are reached by TLS ------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Unverified HTTPS")  # the SDK's, of a plain request
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_reached_by_tls_is_left_to_the_sdk(
    scheme: str,
    trusted: Authority,
    server: ScriptedServer,
    hidden: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``auto`` sends by boto3 through it, also an encrypted request within the encrypted one, and
    says why; ``fast`` is refused with the reason."""
    behind = server if scheme == "http" else hidden
    with forwarder(behind.url, context=trusted.server("127.0.0.1")) as proxy:
        assert proxy.url.startswith("https://")
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", proxy.url)
        store = make(f"{scheme}://store.invalid", transport="auto", retry_attempts_max=1)
        store.put_part("k", "u", 1, memoryview(BODY))
        assert store.transport[0] == "boto3"
        assert store.transport[1].startswith("the proxy is not reached by plain HTTP")
        with pytest.raises(OptionError, match="the proxy is not reached by plain HTTP"):
            make(f"{scheme}://store.invalid", transport="fast")
    assert sent_by(behind) == ["boto3"]
    assert behind.asked[0].body == BODY


# IPv6 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_store_at_an_address_of_ip_version_6(
    tls: bool, transport: str, trusted: Authority
) -> None:
    """A literal address in the endpoint works, with its brackets in ``Host``, and as a name of the
    certificate."""
    context = trusted.server("::1") if tls else None
    try:
        running = scripted_server(lambda _: PUT, context=context, host="::1")
        with running as server:
            make(server.url).put_part("k", "u", 1, memoryview(BODY))
            assert sent_by(server) == [transport]
            assert server.asked[0].headers["host"] == server.url.partition("//")[2]
            assert server.asked[0].headers["host"].startswith("[::1]:")
            assert server.asked[0].body == BODY
    except OSError as error:
        if os.path.exists("/proc/net/if_inet6"):
            raise
        pytest.skip(f"this machine has no IPv6: {error}")
