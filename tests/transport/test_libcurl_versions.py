"""Which releases of pycurl are used: those that can send safely."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from magic_committer._libcurl import VERSION_MIN, too_old

ROOT = Path(__file__).parents[2]
BUILT = {"PREREQFUNCTION": 20312}


@pytest.mark.parametrize(
    ("version", "constants", "why"),
    [
        ("PycURL/7.49.0 libcurl/8.23.0 OpenSSL/3.6.5", BUILT, ""),
        ("PycURL/7.46.0 libcurl/8.19.0 OpenSSL/3.6.2", BUILT, ""),
        ("PycURL/8.0.0 libcurl/9.0.0", BUILT, ""),
        ('PycURL/"7.46.0" libcurl/7.88.1 GnuTLS/3.7.9', BUILT, ""),
        ("PycURL/7.45.7 libcurl/8.16.0-DEV OpenSSL/3.5.3", BUILT, "older than 7.46"),
        ('PycURL/"7.45.2" libcurl/7.88.1 GnuTLS/3.7.9', {}, "older than 7.46"),
        ("PycURL/7.46.0 libcurl/7.74.0 OpenSSL/1.1.1w", {}, "libcurl older than 7.80"),
        ("something else", {}, "libcurl older than 7.80"),
    ],
)
def test_a_pycurl_that_cannot_send_safely_is_told(
    version: str, constants: dict[str, int], why: str
) -> None:
    """Without the callback that stops a second sending, or with a release that refuses a memoryview
    as a body, there is a reason in one phrase; otherwise there is none."""
    told = too_old(SimpleNamespace(version=version, **constants))
    assert why in told
    assert bool(told) is bool(why)
    assert "\n" not in told


def said_with(pycurl: str, folder: Path, *program: str) -> str:
    """What a program prints where pycurl is the given source."""
    (folder / "pycurl.py").write_text(pycurl)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(program)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_without_pycurl_the_modules_can_be_imported(tmp_path: Path) -> None:
    """Where pycurl is missing, importing is fine, and `available` says no."""
    said = said_with(
        "raise ImportError('none here')\n",
        tmp_path,
        "import magic_committer.stores.s3.curl_threads",
        "from magic_committer._libcurl import available",
        "print(available())",
    )
    assert said == "False\n"


def test_an_old_pycurl_counts_as_missing(tmp_path: Path) -> None:
    """With the release before the first good one a store sends by boto3, and says what to do."""
    said = said_with(
        "version = 'PycURL/7.45.7 libcurl/8.16.0'\n",
        tmp_path,
        "from magic_committer.options import S3Options",
        "from magic_committer.stores.s3 import S3Store",
        "from magic_committer._libcurl import available, sends_by",
        "assert not available()",
        "print(sends_by())",
        "print(*S3Store('b', S3Options(access_key='a', secret_key='s')).transport)",
    )
    why = "PycURL/7.45.7 libcurl/8.16.0 is older than 7.46 (pip install -U 'magic-committer[fast]')"
    assert said.splitlines() == [f"boto3: {why}", f"boto3 {why}"]


def test_the_extra_asks_for_the_oldest_good_release() -> None:
    """The project's own list of what to install, and what the code takes, name the same release."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = (said["project"]["optional-dependencies"]["fast"], said["dependency-groups"]["dev"])
    floors = [re.match(r"pycurl>=(\d+)\.(\d+)$", one) for names in lists for one in names]
    assert [(int(m[1]), int(m[2])) for m in floors if m] == [VERSION_MIN, VERSION_MIN]
