"""Uploads of eight kinds, classified and cleaned exactly: 5,000 on moto's server, and on versitygw,
whose listing breaks botocore's paginator past 1,000, more than two pages of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magic_committer.options import S3Options
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.s3 import S3Store
from tests import servers
from tests.cli.conftest import Command, command
from tests.eight_kinds import Maker, Told, check_cleaning, check_listing
from tests.real_servers.server import options, outside

__all__ = ["command"]


class Bucket(Told, S3Store):
    """A bucket of a server."""


def check(run: Command, way: S3Options, total: int, *ages: str) -> None:
    """Make the uploads, list them, clean them."""
    customers = replace(way, encryption="SSE-C", sse_customer_key=bytes(range(32)))
    store = Bucket("bucket", way)
    register_store(store)
    try:
        made = Maker(store, s3=way, customers=S3Store("bucket", customers)).make(total)
        assert len(made.all()) == total
        check_listing(run, made, "--no-sizes")
        check_cleaning(run, store, made, older_than=ages)
    finally:
        unregister_store(store)


def test_more_than_two_pages_on_motos_server(command: Command) -> None:
    """Each is of its true class; those go whose job is over, the others stay open."""
    with servers.moto_server("bucket") as url:
        check(command, servers.moto_options(url), 2200)


@pytest.mark.only("versitygw")
def test_more_than_two_pages_on_a_real_server(command: Command, url: str) -> None:
    """The same on versitygw, which takes the time of the last part for the start of an upload."""
    outside(url).create_bucket(Bucket="bucket")
    check(command, options(url), 2200, "--older-than", "0")
