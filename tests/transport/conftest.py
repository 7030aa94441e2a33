"""Stores on a server that answers as the test says: each test by boto3 and by the fast way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magic_committer.options import Transport
from magic_committer.stores.s3 import S3Store
from tests.certificates import Authority
from tests.servers import TRANSPORT, ScriptedServer, scripted_server
from tests.transport.lab import PUT, Lab, way_to


@pytest.fixture(scope="module", params=["boto3", "fast"])
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test once by boto3 and once by the fast way, which must not fall back."""
    before = TRANSPORT.set(request.param)
    yield request.param
    TRANSPORT.reset(before)


@pytest.fixture(scope="module")
def running(transport: str) -> Iterator[tuple[ScriptedServer, S3Store]]:
    """A server, and a store for all tests of a module: boto3 takes a while to make one."""
    with scripted_server() as made:
        yield made, way_to(made.url, retry_attempts_max=2)


@pytest.fixture
def lab(running: Any, transport: Transport, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The server, asked nothing yet."""
    server, store = running
    server.asked.clear()
    server.said(PUT)
    return Lab(server, store, transport, monkeypatch)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs certificates of stores and proxies."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The authority, trusted."""
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    return authority


@pytest.fixture
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing on this machine gives credentials; the file where they would be."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return tmp_path / ".aws" / "credentials"
