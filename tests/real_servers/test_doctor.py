"""What `doctor` finds on a real server is what docs/stores.md says of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from magic_committer.stores.s3 import S3Store
from tests.deviations import STORES
from tests.real_servers.keeper import ROOT
from tests.real_servers.server import Server, command_line, outside

PUT, RIGHT, COMPLETE = "PUT conditions", "right `If-Match`", "Complete `If-None-Match`"
DELETE, SECOND = "DELETE `If-Match`", "second Complete"
PREFIX = "uploads by prefix"


def row_of_docs(store: str) -> dict[str, str]:
    """What docs/stores.md has measured of a store, by the table's column; without bold and
    footnotes."""
    page = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    measured = page.partition("## Stores that were measured")[2]
    lines = [
        [re.sub(r"[*¹²³⁴]", "", cell).strip() for cell in line.strip("|\n").split(" | ")]
        for line in measured.splitlines()
        if line.startswith(("| store ", f"| {STORES[store]} |"))
    ]
    heads, cells = lines
    return dict(zip(heads[1:], cells[1:], strict=True))


def as_docs_say(found: dict[str, Any]) -> dict[str, str]:
    """Doctor's answers in the words of the table."""
    ignored = {"ignores it": "ignored"}

    def kept(name: str) -> str:
        answer, detail = found[name]
        return "yes" if answer == "yes" else ignored.get(detail, detail)

    seconds = {"idempotent": "200", "forgetful": "404"}
    return {
        PUT: kept("conditional_put") if found["swap"][0] == "yes" else kept("swap"),
        RIGHT: found["etag_quoting"][0],
        COMPLETE: kept("conditional_complete"),
        DELETE: kept("conditional_delete"),
        SECOND: seconds.get(found["second_complete"][0], found["second_complete"][1]),
        PREFIX: "yes" if found["uploads_by_prefix"][0] == "yes" else "whole keys only",
    }


@pytest.mark.long
def test_doctor_finds_what_the_docs_say(server: Server, bucket: str, store: S3Store) -> None:
    """Each answer is the one of docs/stores.md, and nothing is left behind."""
    store.put("t/data.csv", b"1")
    words = ("doctor", f"s3://{bucket}/t", "--format", "json")
    ran = command_line(server.url, *words)
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["rows"]
    found = {row["name"]: (row["answer"], row["detail"]) for row in rows if row["about"] == "store"}
    said = row_of_docs(server.NAME)
    assert as_docs_say(found) == {column: said[column] for column in as_docs_say(found)}
    answers = {row["answer"] for row in rows if row["about"] == "permission"}
    assert answers <= {"ok", "unsupported", "error"}
    client = outside(server.url)
    listed = client.list_objects_v2(Bucket=bucket)["Contents"]
    assert [entry["Key"] for entry in listed] == ["t/data.csv"]
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket)
