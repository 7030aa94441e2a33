"""One versitygw for all tests of this folder, and an empty bucket for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import boto3
import pytest

from magic_committer.s3 import S3Store
from tests.real_servers import versitygw

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The server's URL."""
    with versitygw.running() as url:
        yield url


@pytest.fixture
def bucket(url: str) -> str:
    """An empty bucket of the test's own."""
    name = f"bucket-{next(_numbers)}"
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name=versitygw.REGION,
        aws_access_key_id=versitygw.ACCESS_KEY,
        aws_secret_access_key=versitygw.SECRET_KEY,
    )
    client.create_bucket(Bucket=name)
    client.close()
    return name


@pytest.fixture
def store(url: str, bucket: str) -> S3Store:
    """A look at that bucket."""
    return S3Store(bucket, versitygw.options(url))
