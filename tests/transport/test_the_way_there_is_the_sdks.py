"""Whom a store trusts, and which proxy it asks: as the SDK's settings say, by both ways alike."""

from __future__ import annotations

import datetime
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magic_committer.errors import InvalidRequest, OptionError, StoreError, Unanswered
from magic_committer.stores.base import many_of
from magic_committer.stores.s3 import S3Store, config
from tests.certificates import Authority
from tests.servers import ScriptedServer, scripted_server
from tests.transport.lab import PUT, Lab, at_once, complete, fine, sent_by, way_to
from tests.wire import Raw, forwarding, password_of, raw_server

BODY = bytes(range(256)) * 2000
"""A body that is sent in several pieces."""
HIDDEN, PASSWORD = "a%2Fb:p%40ss%3Aword", "a/b:p@ss:word"
"""A user and a password as a URL holds them, and as they are."""
SETTINGS: tuple[str, ...] = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "AWS_CA_BUNDLE")
SETTINGS += ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names no proxy, no exception from one, and no certificates."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def use(store: S3Store) -> int:
    """A small object, a part, a rare verb, and where it can be, many at once; how many requests
    that is."""
    store.put("a b/ü", b"x")
    store.put_part("k", "u", 1, memoryview(BODY))
    assert store.delete(["k", "l"]) == {}
    asks = [complete(f"k{number}") for number in range(20)] if many_of(store) else []
    told = at_once(store, *asks) if asks else {}
    assert not [one for one in told.values() if isinstance(one, StoreError)]
    return 3 + len(told)


@pytest.fixture(scope="module")
def files(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a setting may name."""
    folder = tmp_path_factory.mktemp("files")
    other, middle = Authority(folder, "other"), Authority(folder, "middle", above=authority)
    made = {"authority": authority.pem, "other": other.pem, "middle": middle.pem}
    made |= {name: str(folder / name) for name in ("missing", "text", "whole", "config")}
    made |= {"folder": str(folder), "system": authority.folder("system")}
    made["below middle"] = middle.signed("server", ("127.0.0.1",))
    Path(made["text"]).write_text("no certificate\n")
    Path(made["whole"]).write_text(Path(middle.pem).read_text() + Path(authority.pem).read_text())
    Path(made["config"]).write_text(f"[default]\nca_bundle = {authority.pem}\n")
    return made


MINE, OTHER = {"AWS_CA_BUNDLE": "authority"}, {"AWS_CA_BUNDLE": "other"}
REFUSED = "certificate verify failed"
TRUST: dict[str, tuple[dict[str, str], str, str]] = {
    # What each setting names; whose server it is; and what is said, "" if it is trusted.
    "the SDK's variable": (MINE, "", ""),
    "the other variable": ({"REQUESTS_CA_BUNDLE": "authority"}, "", ""),
    "the configuration": ({"AWS_CONFIG_FILE": "config"}, "", ""),
    "the SDK's first": ({**MINE, "REQUESTS_CA_BUNDLE": "other"}, "", ""),
    "not the other first": ({**OTHER, "REQUESTS_CA_BUNDLE": "authority"}, "", REFUSED),
    "no bundle": ({}, "", REFUSED),
    "another bundle": (OTHER, "", REFUSED),
    "OpenSSL's variables add nothing": (
        {**OTHER, "SSL_CERT_FILE": "authority", "SSL_CERT_DIR": "system"}, "", REFUSED,
    ),
    "not an authority in the middle": ({"AWS_CA_BUNDLE": "middle"}, "below middle", REFUSED),
    "with the one at the top": ({"AWS_CA_BUNDLE": "whole"}, "below middle", ""),
    "another name": (MINE, "of another", REFUSED),
    "one that has expired": (MINE, "expired", "expired"),
    "a bundle that is not there": ({"AWS_CA_BUNDLE": "missing"}, "", "cannot be used"),
    "a folder": ({"AWS_CA_BUNDLE": "folder"}, "", "cannot be used"),
    "a bundle without a certificate": ({"AWS_CA_BUNDLE": "text"}, "", "cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUST)
def test_those_are_trusted_whom_the_sdks_settings_name(
    transport: str, authority: Authority, files: dict[str, str], monkeypatch: Any, name: str
) -> None:
    """Nobody else is: then nothing is sent, the error is final and says what to set. A bundle that
    cannot be read is refused before any request, and never means "trust everybody"."""
    settings, server, said = TRUST[name]
    for variable, file in settings.items():
        monkeypatch.setenv(variable, files[file])
    named = "store.invalid" if server == "of another" else "127.0.0.1"
    end = datetime.datetime(2021 if server == "expired" else 2121, 1, 1)
    context = authority.server(named, end=end)
    if server == "below middle":
        context.load_cert_chain(files[server])
    with scripted_server(fine, context=context) as running:
        make = partial(way_to, running.url)
        if said == "cannot be used":
            with pytest.raises(OptionError, match=r"bundle of certificates .*AWS_CA_BUNDLE"):
                make()
            return
        store = make(retry_attempts_max=3)
        assert store.transport[0] == transport
        if not said:
            assert use(store) == len(running.asked)
            assert sent_by(running.asked) == [transport] * len(running.asked)
            return
        with pytest.raises(Unanswered, match=said) as caught:
            use(store)
        assert (caught.value.sent, caught.value.attempts, running.asked) == (False, 1, [])
        assert "AWS_CA_BUNDLE" in caught.value.hint
        assert "Nothing was sent" in caught.value.hint
        if many_of(store) is not None:
            told = at_once(store, complete("k"))["k"]
            assert (type(told), told.sent) == (Unanswered, False)


def test_without_the_certificate_that_is_asked_for_nothing_arrives(trusted: Authority) -> None:
    """A server that asks for a certificate answers nobody who has none; the store got nothing."""
    context = trusted.server("127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(trusted.pem)
    with scripted_server(lambda _: PUT, context=context) as strict:
        with pytest.raises(Unanswered):
            way_to(strict.url).put("k", b"x")
        assert strict.asked == []


@pytest.fixture(params=["http", "https"])
def behind(request: pytest.FixtureRequest, authority: Authority) -> Iterator[ScriptedServer]:
    """The store behind the proxy; with TLS, for a host that no resolver knows."""
    context = authority.server("store.invalid") if request.param == "https" else None
    with scripted_server(fine, context=context) as running:
        yield running


@contextmanager
def proxied(
    behind: ScriptedServer, patch: pytest.MonkeyPatch, *, user: str = "", **more: Any
) -> Iterator[tuple[Raw, Callable[..., S3Store]]]:
    """A proxy before a store, and what makes stores that only it can reach."""
    scheme, context = behind.url.partition(":")[0], more.pop("context", None)
    with raw_server(forwarding(behind.url, **more), context) as proxy:
        patch.setenv(f"{scheme}_PROXY".upper(), proxy.url.replace("//", f"//{user}"))
        yield proxy, partial(way_to, f"{scheme}://store.invalid")


@pytest.mark.parametrize(("password", "tls"), [("", False), (PASSWORD, False), (PASSWORD, True)])
def test_each_request_goes_through_the_proxy(
    transport: str,
    behind: ScriptedServer,
    trusted: Authority,
    monkeypatch: Any,
    password: str,
    tls: bool,
) -> None:
    """It arrives as it was signed, whole. The proxy gets its password, decoded, and the store does
    not; of an encrypted request the proxy sees neither signature nor a byte of the body. The proxy
    itself may be reached by TLS."""
    more: Any = {"user": f"{HIDDEN}@" if password else "", "password": password}
    context = trusted.server("127.0.0.1") if tls else None
    with proxied(behind, monkeypatch, context=context, **more) as (proxy, make):
        store = make()
        assert store.transport[0] == transport
        count = use(store)
    assert sent_by(behind.asked) == [transport] * count
    assert {asked.headers["host"] for asked in behind.asked} == {"store.invalid"}
    assert (behind.asked[0].path, behind.asked[1].body) == ("/b/a b/ü", BODY)
    assert not [one for asked in behind.asked for one in asked.headers if one[:6] == "proxy-"]
    assert {password_of(asked) for asked in proxy.asked} == {password}
    lines = [asked.head.partition(" HTTP/1.1\r\n")[0] for asked in proxy.asked]
    if behind.url.startswith("http:"):
        assert lines[0] == "PUT http://store.invalid/b/a%20b/%C3%BC"
        assert len(lines) == count
    else:
        assert set(lines) == {"CONNECT store.invalid:443"}
        assert not [one for one in proxy.asked if one.body or one.header("authorization")]


@pytest.mark.parametrize("of_proxy", [False, True])
def test_behind_a_proxy_each_certificate_is_looked_at(
    behind: ScriptedServer, authority: Authority, files: Any, monkeypatch: Any, of_proxy: bool
) -> None:
    """A tunnel does not replace the store's. Nothing is sent, by the proxy or around it; the error
    names whose certificate is not trusted, and of the proxy the bundle, and what to set."""
    if behind.url.startswith("http:") and not of_proxy:
        pytest.skip("neither has one")
    monkeypatch.setenv("AWS_CA_BUNDLE", files["other"])
    context = authority.server("127.0.0.1") if of_proxy else None
    with proxied(behind, monkeypatch, context=context) as (proxy, make):
        with pytest.raises(Unanswered) as caught:
            make(retry_attempts_max=3).put("k", b"x")
        where = proxy.url if of_proxy else "https://store.invalid"
        assert behind.asked == []
        assert not (of_proxy and proxy.asked)
    told, text = caught.value, str(caught.value)
    assert (told.sent, told.attempts) == (False, 1)
    wanted = [f"could not reach {where}: certificate verify failed", "AWS_CA_BUNDLE"]
    wanted += [files["other"], "The proxy itself", "http://"] if of_proxy else []
    assert [words for words in wanted if words not in text] == []


def test_a_tunnel_names_an_address_of_ip_version_6_in_brackets(
    trusted: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its URL does, and with the port, which ``Host`` leaves out where it is the usual one."""
    with scripted_server(fine, context=trusted.server("::1")) as behind:
        with proxied(behind, monkeypatch) as (proxy, _):
            for url in ("https://[::1]", "https://[::1]:9443"):
                way_to(url).put("k", b"x")
        heads = [asked.head.partition("\r\n")[0] for asked in proxy.asked]
    assert heads == [f"CONNECT [::1]:{port} HTTP/1.1" for port in (443, 9443)]


@pytest.mark.parametrize(
    ("settings", "through"),
    [
        *[({"HTTP_PROXY": written}, True) for written in ("http://{}", "{}", "//{}")],
        ({"http_proxy": "http://{}", "NO_PROXY": "example.com"}, True),
        ({"HTTP_PROXY": "http://{}", "NO_PROXY": ""}, True),
        ({"HTTP_PROXY": "http://{}", "NO_PROXY": "127.0.0.1"}, False),
        ({"HTTP_PROXY": "http://{}", "no_proxy": "*"}, False),
        ({"HTTP_PROXY": "http://{}", "no_proxy": "example.com,127.0.0.1"}, False),
        ({"HTTPS_PROXY": "http://{}", "ALL_PROXY": "http://{}"}, False),  # the SDK reads no ALL_
    ],
)
def test_the_proxy_and_its_exceptions_are_the_sdks(lab: Lab, settings: Any, through: bool) -> None:
    """However its URL is written; what ``NO_PROXY`` names, and another scheme, go directly."""
    with raw_server(forwarding(lab.url)) as proxy:
        for name, value in settings.items():
            lab.patch.setenv(name, value.format(proxy.url.removeprefix("http://")))
        lab.make().put("k", b"x")
    assert sent_by(lab.asked) == [lab.transport]
    assert len(proxy.asked) == int(through)


@pytest.mark.parametrize("shown", ["", "a:wrong@"])
@pytest.mark.usefixtures("trusted")
def test_a_proxy_that_wants_a_password_is_an_error_that_says_so(
    behind: ScriptedServer, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    """The store gets nothing; the error has the proxy's 407, names the settings, and holds no
    password. To a plain request it is final; of a tunnel it may pass, and nothing was sent."""
    with (
        proxied(behind, monkeypatch, user=shown, password=PASSWORD) as (_, make),
        pytest.raises(StoreError, match="407") as caught,
    ):
        make(retry_attempts_max=2).put("k", b"x")
    told = caught.value
    assert behind.asked == []
    assert "wrong" not in str(told)
    if behind.url.startswith("http:"):
        assert (type(told), told.status, told.attempts) == (InvalidRequest, 407, 1)
        assert "http://user:password@host:port" in told.hint
    else:
        assert (type(told), told.sent, told.attempts) == (Unanswered, False, 2)
        assert "HTTPS_PROXY" in told.hint


@pytest.mark.parametrize("end", ["/s3same@127.0.0.1:3128", "#s@h:1", "?s@h:1", "@h:99999", "@[::1"])
def test_a_proxy_whose_url_cannot_be_read_is_an_error_that_says_so(lab: Lab, end: str) -> None:
    """What is taken for its port may be of the password, and is not shown."""
    lab.patch.setenv("HTTP_PROXY", f"http://user:0pen{end}")
    said = "the proxy's URL cannot be read.*%2F stands for a /"
    with pytest.raises(OptionError, match=said) as caught:
        way_to(lab.url).put("k", b"x")
    assert "0pen" not in str(caught.value)


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.usefixtures("trusted")
def test_a_proxy_that_finds_no_store_for_a_moment_is_asked_again(
    behind: ScriptedServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The proxy's own 502, 503 or 504 is not the store's answer. To a plain request it tells
    nothing about the store, which may have got it; of a tunnel, that it has not."""
    with proxied(behind, monkeypatch) as (proxy, make):
        proxy.refuses = [status, status]
        assert make(retry_attempts_max=3).put("k", b"x").attempts == 3
        assert len(behind.asked) == 1
        proxy.refuses = [status, status]
        with pytest.raises(Unanswered, match=str(status)) as caught:
            make(retry_attempts_max=2).put("k", b"x")
    assert (caught.value.sent, caught.value.attempts) == (behind.url.startswith("http:"), 2)


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="it has no IPv6")
@pytest.mark.parametrize("tls", [False, True])
def test_a_store_at_an_address_of_ip_version_6(
    transport: str, trusted: Authority, tls: bool
) -> None:
    """A literal address in the endpoint works, with its brackets in ``Host``, and as a name of the
    certificate."""
    context = trusted.server("::1") if tls else None
    with scripted_server(fine, context=context, host="::1") as server:
        count = use(way_to(server.url))
    assert sent_by(server.asked) == [transport] * count
    assert {asked.headers["host"] for asked in server.asked} == {server.url[7 + tls :]}
    assert server.asked[1].body == BODY


def test_a_certifi_without_a_bundle_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Distributions ship the package without its file: the SDK's own bundle is there."""
    (tmp_path / "certifi").mkdir()
    (tmp_path / "certifi" / "__init__.py").write_text("")
    monkeypatch.delitem(sys.modules, "certifi", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert Path(config._usual_bundle()).parent.name == "botocore"
