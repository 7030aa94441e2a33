"""What every command keeps to: formats, exit codes, paths, silence about secrets."""

from __future__ import annotations

from magic_committer import start
from magic_committer.testing import MemoryStore
from tests.cli.conftest import Command


def test_rows_have_a_versioned_schema(command: Command, memory_s3: MemoryStore) -> None:
    """JSON says of which version and kind it is, and a line of jsonl does."""
    start("s3://bucket/table", job_id="mine")
    told = command("job", "list", "s3://bucket/table", "--format", "json").json()
    assert (told["schema"], told["kind"]) == (1, "jobs")
    assert [row["id"] for row in told["rows"]] == ["mine"]
    print(command("job", "list", "s3://bucket/table").out)
    print(command("job", "list", "xs3://bucket/table"))
    print(command("job", "lst", "xs3://bucket/table"))
    print(command("job", "list", "s3://bucket/table2"))
