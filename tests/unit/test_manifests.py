"""Hadoop's task manifest, read and written."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from magic_committer.errors import FormatError
from magic_committer.hadoop.manifests import (
    ManifestFile,
    TaskManifest,
    decode_manifest,
    encode_manifest,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "3.5.0" / "manifest-committer"
ROOT = "file:///data/t/"
TASKS = "_temporary/manifest_j/00/tasks"


def test_a_manifest_is_read_as_it_was_written() -> None:
    """Blanks, percent signs and letters of all languages come back."""
    files = tuple(ManifestFile(n, 3, "e") for n in ("a b.txt", "dt=1/%25.csv", "日/ü+&.x"))
    manifest = TaskManifest("j", "u", "t", "a0", files, ("empty/one",))
    data = encode_manifest(manifest, ROOT, f"{TASKS}/a0")
    assert decode_manifest(data, ROOT, TASKS, "m") == manifest


def test_a_manifest_of_hadoop_is_read() -> None:
    """What Hadoop 3.5.0 wrote: two files, one of them in a directory, and no UUID of ours."""
    data = (GOLDEN / "task-manifest-1.json").read_bytes()
    tasks = "_temporary/job_202601010000_0001/00/tasks"
    manifest = decode_manifest(data, ROOT, tasks, "golden")
    assert manifest.attempt == "attempt_202601010000_0001_m_000000_0"
    assert manifest.files == (ManifestFile("a b.txt", 1), ManifestFile("dt=1/part-0.txt", 5))
    assert (manifest.directories, manifest.uuid, sum(file.size for file in manifest.files)) == (
        ("dt=1",),
        "",
        6,
    )


def test_a_manifest_has_hadoops_form() -> None:
    """Source and destination are URIs as Hadoop 3.5.0 writes and reads them."""
    manifest = TaskManifest("j", "u", "t", "a0", (ManifestFile("a b.txt", 1),))
    document = orjson.loads(encode_manifest(manifest, ROOT, f"{TASKS}/a0"))
    assert document["type"].endswith(".manifest.files.TaskManifest/1")
    assert document["files"] == [
        {"s": f"file:/data/t/{TASKS}/a0/a%20b.txt", "d": "file:/data/t/a%20b.txt", "z": 1}
    ]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("file:/etc/passwd", "file:/data/t/passwd"),
        (f"file:/data/t/{TASKS}/other/x", "file:/data/t/x"),
        (f"file:/data/t/{TASKS}/a0/x", "file:/data/u/x"),
        (f"file:/data/t/{TASKS}/a0/../x", "file:/data/t/../x"),
        (f"file:/data/t/{TASKS}/a0/_temporary/x", "file:/data/t/_temporary/x"),
    ],
)
def test_a_forged_manifest_moves_no_other_file(source: str, target: str) -> None:
    """A source outside of the attempt, or a destination outside of the job's, is refused."""
    manifest = TaskManifest("j", "u", "t", "a0")
    document = orjson.loads(encode_manifest(manifest, ROOT, f"{TASKS}/a0"))
    document["files"] = [{"s": source, "d": target, "z": 1}]
    with pytest.raises(FormatError):
        decode_manifest(orjson.dumps(document), ROOT, TASKS, "m")
