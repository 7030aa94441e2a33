"""A new user's first five commands, as the README has them, on moto's server and at a terminal."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import moto_options, moto_server, outside
from tools.moto_server import CREDENTIALS

README = Path(__file__).resolve().parents[2] / "README.md"


def commands() -> list[list[str]]:
    """The commands under "The command line"."""
    told = README.read_text(encoding="utf-8").partition("## The command line")[2]
    block = re.search(r"```\n(.*?)```", told, re.DOTALL)
    assert block is not None
    return [shlex.split(line) for line in block[1].splitlines()]


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A user's environment that leads to a server of their own."""
    with moto_server() as url:
        way = {**CREDENTIALS, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}
        yield {**os.environ, **way, "PYTHONPATH": str(README.parent)}


def typed(words: list[str], environment: dict[str, str]) -> str:
    """Run a command at a terminal, whose user says yes to every question; its results."""
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, b"y\n")
        ran = subprocess.run(
            [sys.executable, "-m", "magic_committer", *words[1:]],
            stdin=terminal, capture_output=True, text=True, env=environment, timeout=300,
            check=False,
        )  # fmt: skip
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def test_the_first_five_commands_find_and_remove_a_leak(environment: dict[str, str]) -> None:
    """What the README shows works as it stands, on an upload that another program left."""
    install, find, remove, expect, ensure = commands()
    assert install[:3] == ["pip", "install", "magic-committer"]
    s3 = outside(moto_options(environment["AWS_ENDPOINT_URL"]))
    s3.create_bucket(Bucket="bucket")
    leak = s3.create_multipart_upload(Bucket="bucket", Key="table/leak.bin")
    part = {"UploadId": leak["UploadId"], "PartNumber": 1, "Body": b"x" * 1000}
    s3.upload_part(Bucket="bucket", Key="table/leak.bin", **part)
    near = s3.create_multipart_upload(Bucket="bucket", Key="table2/near.bin")
    found = typed(find, environment)
    assert "table/leak.bin" in found
    assert "1000 B" in found
    assert "table2" not in found
    assert "Aborted 1 upload" in typed(remove, environment)
    typed(expect, environment)
    left = s3.list_multipart_uploads(Bucket="bucket")["Uploads"]
    assert [upload["UploadId"] for upload in left] == [near["UploadId"]]
    typed(ensure, environment)
    (rule,) = s3.get_bucket_lifecycle_configuration(Bucket="bucket")["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
