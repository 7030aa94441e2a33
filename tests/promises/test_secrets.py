"""No secret leaves the process that uses it: all that it prints at DEBUG is searched."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.servers import Asked, Reply, error, moto_server, scripted_server

ACCESS = "AKIASENTINEL00ACCESS"
SECRET = "SENTINEL/secret+0123456789abcdefghijkl=="
TOKEN = "SENTINEL//token+0123456789abcdefghijklmnopqrstuvwxyz="
PASSWORD = "SENTINELpassword0123"
SIGNATURE = "5e47123456789abcdef0123456789abcdef0123456789abcdef0123456789abc"
KEY = b"SENTINEL-customer-key-\x00\x01\xfe\xff-0123"[:32].ljust(32, b"x")
KEY_TEXT = base64.b64encode(KEY).decode()
SECRETS = {
    "access key": ACCESS,
    "secret key": SECRET,
    "secret key in a URL": quote(SECRET, safe=""),
    "session token": TOKEN,
    "session token in a URL": quote(TOKEN, safe=""),
    "password of a URL": PASSWORD,
    "signature of a URL": SIGNATURE,
    "customer key": KEY_TEXT,
    "customer key as Python shows it": repr(KEY)[2:-1],
    "MD5 of the customer key": base64.b64encode(hashlib.md5(KEY).digest()).decode(),
}
PRESIGNED = (
    f"https://bucket.example/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature={SIGNATURE}"
    f"&X-Amz-Security-Token={quote(TOKEN, safe='')}&X-Amz-Credential={ACCESS}%2F20261120"
)

JOB = """
import logging, os, pickle, sys, traceback
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(name)s %(message)s")
import magic_committer as mc
options = dict(eval(os.environ.pop("GIVEN")), transport=os.environ["TRANSPORT"])
s3 = mc.S3Options(**options)
print(repr(s3), pickle.dumps(s3))
dest, replies = os.environ["DEST"], os.environ["REPLIES"]
work = mc.Options(buffer_bytes_max=0)
with mc.write(dest, s3=s3, options=work) as job, job.open("a.csv") as f:
    f.write(b"1" * 9_000_000)
print(repr(job), repr(job.report), job.report.to_dict(), pickle.dumps(job.job))
left = mc.start(dest, s3=s3, options=work)
with left.task("1") as task, task.open("b.csv") as f:
    f.write(b"2")
print(repr(left), repr(task), repr(f), task.result.to_dict(), pickle.dumps(left))
for path, more in ((dest, {}), ("s3://nobody/x", {}), ("s3://bucket/x", {"endpoint_url": replies})):
    given = {**options, "retry_attempts_max": 2, "retry_seconds_max": 1, **more}
    for call in (
        lambda: mc.attach(path, "absent", s3=mc.S3Options(**given)),
        lambda: mc.start(path, s3=mc.S3Options(**given)).commit(),
    ):
        try:
            call()
        except mc.MagicError as error:
            print(repr(error), error.__dict__, pickle.dumps(error))
            traceback.print_exc()
            logging.getLogger("magic_committer").warning("failed: %s", error, exc_info=True)
print("all done")
"""


def presigned(asked: Asked) -> Reply:
    """A store, or a proxy, that puts a presigned URL, and what it was sent, in what it answers."""
    if asked.method == "GET":
        return Reply(
            302, "<html>moved</html>", {"Location": PRESIGNED, "Content-Type": "text/html"}
        )
    return error(403, "AccessDenied", f"{PRESIGNED.replace('&', '&amp;')} {asked.headers}")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """moto's server, with a bucket."""
    with moto_server("bucket") as url:
        yield url


@pytest.fixture
def environment(url: str, tmp_path: Path) -> dict[str, str]:
    """What a process needs, and no secret yet; its temporary files go to ``tmp``."""
    (tmp_path / "tmp").mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "MAGIC_"))}
    return {
        **kept,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "TMPDIR": str(tmp_path / "tmp"),
        "DEST": f"s3://bucket/{tmp_path.name}",
        "GIVEN": "{}",
        "TRANSPORT": "auto",
    }


def with_secrets(how: str, environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of a process that gets its secrets in this way."""
    keys = {"access_key": ACCESS, "secret_key": SECRET, "session_token": TOKEN}
    names = dict(zip(keys, ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"), strict=True))
    from_environment = {f"AWS_{names[k]}": v for k, v in keys.items()}
    if how == "environment":
        return {**environment, **from_environment}
    if how == "options":
        return {**environment, "GIVEN": repr(keys)}
    if how == "profile":
        lines = [f"aws_{names[k].lower()} = {v}" for k, v in keys.items()]
        (tmp_path / "credentials").write_text("\n".join(["[nightly]", *lines]))
        return {**environment, "AWS_PROFILE": "nightly"}
    if how == "a URL with a password":
        parts = urlsplit(environment["AWS_ENDPOINT_URL"])
        endpoint = f"{parts.scheme}://user:{PASSWORD}@{parts.netloc}"
        return {**environment, **from_environment, "GIVEN": repr({"endpoint_url": endpoint})}
    key = {"encryption": "SSE-C", "sse_customer_key": KEY}
    if how == "a customer key in the environment":
        del key["sse_customer_key"]
        from_environment["MAGIC_COMMITTER_SSE_CUSTOMER_KEY"] = KEY_TEXT
    return {**environment, **from_environment, "GIVEN": repr(key)}


def shown(text: str) -> list[str]:
    """The secrets that a text shows, each with a piece of it."""
    places = {name: text.find(secret) for name, secret in SECRETS.items()}
    return [
        f"{name}: …{text[max(0, at - 150) : at + 60]}" for name, at in places.items() if at >= 0
    ]


WAYS = (
    "environment", "options", "profile", "a URL with a password", "a customer key in the options",
    "a customer key in the environment",
)  # fmt: skip


@pytest.mark.parametrize("transport", ["auto", "boto3"])
@pytest.mark.parametrize("how", WAYS)
def test_a_process_at_debug_shows_no_secret(
    environment: dict[str, str], tmp_path: Path, how: str, transport: str
) -> None:
    """A job, refusals, silence, presigned URLs: not in log, repr, pickle, error, report or file."""
    with scripted_server(presigned) as replies:
        given = with_secrets(how, environment, tmp_path)
        given |= {"REPLIES": replies.url, "TRANSPORT": transport}
        ran = subprocess.run(
            [sys.executable, "-c", JOB], env=given, capture_output=True, text=True, timeout=300
        )
        assert ran.stdout.endswith("all done\n"), ran.stderr[-3000:]
        sent = " ".join(str(asked.headers) for asked in replies.asked)
    assert shown(ran.stdout) == []
    assert shown(ran.stderr) == []
    assert "botocore" in ran.stderr or transport == "auto"
    assert "[hidden]" in ran.stderr, "there was something to hide"
    assert TOKEN in sent, "the secrets were used"
    assert "X-Amz-Signature=[hidden]" in ran.stdout + ran.stderr, "the presigned URL was told of"
    assert KEY_TEXT in sent or "customer key" not in how
    assert list((tmp_path / "tmp").iterdir()) == []


COMMANDS = """
import logging, os, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(name)s %(message)s")
from magic_committer.cli.main import run
dest, file = os.environ["DEST"], os.environ["FILE"]
for command in (
    f"job list {dest} --format csv", f"uploads list {dest} --format jsonl", f"doctor {dest}",
    f"report {dest} -o {file}.html", f"cleanup {dest} --format prometheus",
    f"job show {dest} absent", f"inspect {dest}/none", f"job list s3://nobody/x --format json",
):
    print(command, run([*command.split(), "--debug"]))
"""


def test_commands_with_debug_show_no_secret(environment: dict[str, str], tmp_path: Path) -> None:
    """The formats, the page, the metrics and the log of --debug, in success and in failure."""
    given = with_secrets("environment", environment, tmp_path)
    given |= {"MAGIC_COMMITTER_SSE_CUSTOMER_KEY": KEY_TEXT, "FILE": str(tmp_path / "told")}
    ran = subprocess.run(
        [sys.executable, "-c", COMMANDS], env=given, capture_output=True, text=True, timeout=300
    )
    assert "job list s3://nobody/x --format json 44" in ran.stdout
    assert "botocore" in ran.stderr
    assert shown(ran.stdout + ran.stderr) == []
    assert "magic_committer_cleanup_success{" in ran.stdout
    assert shown((tmp_path / "told.html").read_text()) == []
