"""Paths against the answers of the real Hadoop 3.5.0, and the rules that are ours alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magic_committer.errors import PathError
from magic_committer.hadoop import paths
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.stores import base
from tests.promises.hands import raises

GOLDEN = Path(__file__).parent.parent / "golden"
TABLE = json.loads((GOLDEN / "magic_paths.json").read_text())
U1, U2 = "0123456789abcdef" * 2, "f" * 32
ERROR = "an error"

# Against Hadoop's table ---------------------------------------------------------------------------

EMPTY = "empty elements are refused: S3 knows the keys a//b and a/b, Hadoop collapses them"
DOTS = "'.' and '..' are refused: Hadoop moves, S3 takes them as names"
CONTROL = "control characters are refused: listings cannot carry them"
BUCKETLESS = "a URL without a bucket is refused"
OLD_MAGIC = "'__magic' of Hadoop 3.3 is magic too, so that its jobs can be read"
NESTED = "magic directories inside one another are refused: the inner is swept with the outer"
MARKER = "a file _SUCCESS is refused: the job's commit overwrites it"
ATTEMPT = (
    "Hadoop takes the fourth element below the magic one whatever it is, or fails with an index"
)
NOT_OURS = "our ids are [A-Za-z0-9._=-]; Hadoop's may be blank, or make directories of their own"
NOT_BUILT = "'_temporary' is for files with absolute paths, which we do not have"

DIFFERENCES: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [(path, "split") for path in ("//", "///", "s3a://bkt//a", "/d/__magic_job-7c1d/")], EMPTY
    ),
    **dict.fromkeys([(path, "split") for path in ("/a/./b", "/a/../b", "/../a", "/.")], DOTS),
    ("/a\tb/c", "split"): CONTROL,
    ("s3a:/a/b", "split"): BUCKETLESS,
    **{
        (path, function): OLD_MAGIC
        for path in ("/d/__magic/__base/x", "/d/__magic/1/2", "/d/__magic", "/__magic/x")
        for function in (
            *("isMagicPath", "magicElementIndex", "finalDestination"),
            *(("isMagicCommitPath",) if path != "/d/__magic" else ()),
        )
    },
    ("/d/__magic_job-1/__magic_job-2/__base/b", "isMagicCommitPath"): NESTED,
    ("/d/__magic_job-1/_SUCCESS", "isMagicCommitPath"): MARKER,
    ("/d/__magic_job-7c1d", "isMagicCommitPath"): "there is no file in it",
    ("/d/__magic_job-1/__base", "isMagicCommitPath"): "there is no file in it",
    **{
        (f"/d/__magic_job-1/{path}", "taskAttemptIdOf"): ATTEMPT
        for path in ("a/__base/b/c", "__base/a/__base/b", "a/b/c/d")
    },
}
"""Everything in which we differ from Hadoop's table, and why: (input, function)."""

FUNCTIONS: dict[str, Callable[[list[str]], Any]] = {
    "isMagicPath": paths.is_magic_path,
    "magicElementIndex": paths.magic_element_index,
    "finalDestination": paths.final_destination,
    "elementsToKey": "/".join,
}
SAME_AS_PYTHON = {
    *("lastElement", "filename", "containsBasePath", "basePathChildren"),
    *("magicPathParents", "magicPathChildren"),
}
"""Slices of a list; nothing of ours to compare, but what they give together: `finalDestination`."""


def answer(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except PathError:
        return ERROR


def hadoop(cell: dict[str, Any]) -> Any:
    return ERROR if "error" in cell else cell["ok"]


def url_of(path: str) -> str:
    """The table's paths mostly have no bucket; a URL of ours always has."""
    return f"s3a://bkt{path}" if path.startswith("/") else path


def split(path: str) -> list[str]:
    return paths.split_key(paths.parse_url(url_of(path)).key)


def is_magic_file(path: str) -> bool:
    return answer(paths.parse_magic_path, url_of(path)) is not ERROR


def attempt_of(path: str) -> str:
    attempt = paths.parse_magic_path(url_of(path)).attempt
    if attempt is None:
        raise PathError("no attempt")
    return attempt


def compared() -> Iterator[tuple[str, str, Any, Any]]:
    """Input, function, Hadoop's answer, ours: for every row that speaks of paths or lists."""
    for row in TABLE["paths"]:
        path = row["input"]
        yield path, "split", hadoop(row["split"]), answer(split, path)
        if "error" in row["split"] or answer(split, path) is ERROR:
            continue  # nothing follows from a path that one of the two refuses
        for name, cell in row["fns"].items():
            if name not in SAME_AS_PYTHON:
                yield path, name, hadoop(cell), answer(FUNCTIONS[name], split(path))
        yield path, "pathToKey", hadoop(row["pathToKey"]), paths.parse_url(url_of(path)).key
        commit = hadoop(row["isMagicCommitPath"])
        yield path, "isMagicCommitPath", commit, is_magic_file(path)
        yield path, "taskAttemptIdOf", hadoop(row["taskAttemptIdOf"]), answer(attempt_of, path)
        written = row["Path"]["uri"]["ok"].removeprefix("s3a://bkt")
        ours = paths.java_uri("bkt", paths.parse_url(url_of(path)).key).removeprefix("s3a://bkt")
        yield path, "toUri", written, ours
    for row in TABLE["lists"]:
        for name, cell in row["fns"].items():
            if name not in SAME_AS_PYTHON:
                items = row["input"]
                yield str(items), name, hadoop(cell), answer(FUNCTIONS[name], items)


def test_every_row_agrees_with_hadoop_or_is_a_listed_difference() -> None:
    """Each cell of Hadoop's table is answered alike, or stands in DIFFERENCES and nothing else."""
    rows = list(compared())
    differing = {(row, function): (h, o) for row, function, h, o in rows if h != o}
    assert not {k: v for k, v in differing.items() if k not in DIFFERENCES}
    assert set(DIFFERENCES) == set(differing)
    assert len(TABLE["paths"]) == 61
    assert len(TABLE["lists"]) == 15


LAYOUT: dict[str, Callable[[JobPaths], str]] = {
    "jobPath": lambda job: job.directory,
    "jobAttemptsPath": lambda job: job.directory,
    "jobAttemptPath": lambda job: job.job_attempt,
    "taskAttemptsPath": lambda job: job.task_attempts,
}


@pytest.mark.parametrize(
    "row", TABLE["builders"], ids=lambda r: f"{r['dest']}|{r['uuid']}|{r['appAttempt']}"
)
def test_control_directories_are_hadoops(row: dict[str, Any]) -> None:
    """Where Hadoop's builders put them (NOT_BUILT apart); ids that differ are refused."""
    dest, uuid, number = Destination.parse(row["dest"]), row["uuid"], row["appAttempt"]
    adopted = f"__magic_job-{uuid}/job-{uuid}/{number:02d}/" if number else ""
    job = answer(JobPaths, dest, uuid, adopted)
    if row["uuid"] in ("a/b", " ", "ü"):
        assert job is ERROR, NOT_OURS
        return
    assert set(row) - {"dest", "uuid", "appAttempt", *LAYOUT} == {"tempJobAttemptPath"}, NOT_BUILT
    for name, of in LAYOUT.items():
        ours = ERROR if job is ERROR else f"s3a://bkt/{of(job)}".removesuffix("/")
        assert ours == hadoop(row[name]), name
    cells = TABLE["task_builders"]
    task, attempt = JobPaths(Destination("bkt", "d/"), "7c1d"), "attempt_20260101_0001_m_000003_1"
    assert f"s3a://bkt/{task.base(attempt)}" == f"{cells['magicTaskAttempt']['ok']}/"
    directory = f"s3a://bkt/{task.attempt_directory(attempt)}"
    assert directory == f"{cells['baseMagicTaskAttempt']['ok']}/"
    assert set(cells) == {"magicTaskAttempt", "baseMagicTaskAttempt", "tempTaskAttempt"}, NOT_BUILT


@pytest.mark.parametrize(
    "index", sorted(GOLDEN.glob("3.*/*/index.json")), ids=lambda p: "/".join(p.parts[-3:-1])
)
def test_the_control_keys_that_hadoop_wrote_are_understood(index: Path) -> None:
    """From the magic key of each golden `.pending`: destination, job, attempt, and its key."""
    for name, entry in json.loads(index.read_text()).get("files", {}).items():
        if entry["kind"] != "pending":
            continue
        magic = paths.parse_magic_path(f"s3a://bkt/{entry['key'].removesuffix('.pending')}")
        written = json.loads((index.parent / name).read_text())
        assert magic.final_key == written["destinationKey"]
        assert magic.job_id == "7c1d0000-aaaa-4bbb-8ccc-000000000001"
        assert magic.attempt is not None
        assert magic.attempt.startswith("attempt_202601010000_0001_m_00000")
        assert paths.java_uri("bkt", magic.key) == written["uri"]
        release = index.parts[-3]
        assert magic.layout == ("plain" if release.startswith("3.3") else "job")
        if magic.layout == "job":
            job = JobPaths(magic.dest, magic.job_id)
            assert job.pending(magic.attempt, magic.name).removesuffix(".pending") == magic.key
            assert job.pending(magic.attempt, magic.name) == entry["key"]


# URLs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "b/x", "/a/b", "hdfs://b/x", "s3://", "s3:///x", "s3:/b/x", "s3://b c/x", "s3://b/a\x00b",
     "s3a://AKIAKEY:topsecret@bucket/x"],
)  # fmt: skip
def test_what_is_no_s3_url_is_refused_with_a_hint(url: str) -> None:
    """The error says what to write, and never a secret before an "@"."""
    caught = raises(PathError, paths.parse_url, url)
    assert caught.hint
    assert "secret" not in str(caught)
    assert "AKIAKEY" not in str(caught)


# Destinations -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("s3://b", ""),
        ("s3n://b/", ""),
        ("S3A://b/a%20b/c?x#y", "a%20b/c?x#y/"),
        ("s3a://b/t/u/", "t/u/"),
    ],
)
def test_a_destination_is_a_directory(url: str, prefix: str) -> None:
    """By any scheme of S3, with or without a slash; nothing is decoded, "" is a whole bucket."""
    dest = Destination.parse(url)
    assert dest.prefix == prefix
    assert dest.url == f"s3://b/{prefix}"
    assert dest.success_key == f"{prefix}_SUCCESS"
    assert dest.jobs_prefix == f"{prefix}__magic_job-"
    assert dest.key("a/b.csv") == f"{prefix}a/b.csv"
    assert dest.relative(dest.key("a/b.csv")) == "a/b.csv"


@pytest.mark.parametrize(
    "path",
    [
        "/", "t//", "/t", "a//b", "a/./b", "a/../b", "..", "a/__magic", "__magic/x",
        "a/__magic_job-1/x", "__magic_job-", "a/__magic_stream", "a\nb", "a\x7f", "a\ud800",
        "a\uffff", "x" * 900, "ü" * 450,
    ],
)  # fmt: skip
def test_a_destination_that_loses_data_is_refused(path: str) -> None:
    """Committers' directories, elements that Hadoop reads otherwise, keys without room below."""
    raises(PathError, Destination.parse, f"s3://b/{path}")
    for bucket, prefix in (("b", "x"), ("b", "/"), ("", "x/"), ("a/b", "x/")):
        raises(PathError, Destination, bucket, prefix)
    for url in ("file://host/x", "file:///", "smb://host/x", "file:///t/__magic_job-1/x"):
        raises(PathError, Destination.parse, url)


def test_dataset1_does_not_hold_dataset10() -> None:
    """A destination holds what is below it: no neighbour that starts alike, and not itself."""
    dest = Destination.parse("s3://b/dataset1")
    assert [key for key in ("/x", "0/x", "/", "") if dest.contains(f"dataset1{key}")] == ["/x"]
    raises(PathError, dest.relative, "dataset10/x")


def test_an_adopted_job_lies_in_hadoops_directories_and_nowhere_else() -> None:
    """A record may name a directory of its own job in either layout: what lies there is swept."""
    dest = Destination.parse("s3://b/t")
    older = JobPaths(dest, "7.1", "__magic/job-7.1/00/")
    assert older.job_attempt == "t/__magic/job-7.1/00/"
    assert older.directories == ("t/__magic_job-7.1/", "t/__magic/job-7.1/")
    assert JobPaths(dest, "7.1", "__magic/job-7.1/").tree == "t/__magic/job-7.1/"
    newer = JobPaths(dest, "7.1", "__magic_job-7.1/job-7.1/02/")
    assert newer.directories == (newer.tree,) == ("t/__magic_job-7.1/",)
    for wrong in ("x/", "__magic/", "__magic/job-7/", "__magic/job-721/", "__magic_job-7.1/",
                  "__magic/job-7.1/00", "__magic/job-7.1/../", "__magic_job-8/job-7.1/00/",
                  "__magic/job-7.1/00/\n"):  # fmt: skip
        raises(PathError, JobPaths, dest, "7.1", wrong)


def test_a_control_key_over_1024_bytes_is_refused() -> None:
    """The limit counts UTF-8 bytes, and the `.pending`, not the file, is what has to fit."""
    job = JobPaths(Destination.parse("s3://b/t"), "7")
    room = base.KEY_BYTES_MAX - len(job.base("a")) - len(".pending")
    assert len(job.pending("a", "x" * room)) == base.KEY_BYTES_MAX
    for name in ("x" * (room + 1), "ü" * (room // 2 + 1)):
        raises(PathError, job.pending, "a", name, match="1024")
        raises(PathError, paths.parse_magic_path, f"s3://b/{job.base('a')}{name}", match="1024")


LONG = "x" * (paths.ID_CHARS_MAX + 1)


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "a/b", "a b", "ü", LONG, "a\n", "__base", "__magic", "__magic_job-1"],
)
def test_an_id_that_would_move_a_key_is_refused(value: str) -> None:
    """Ids are one plain element; those that mean something in a path are not ids."""
    raises(PathError, paths.check_id, "attempt", value, match="attempt")
    raises(PathError, JobPaths, Destination("b", ""), value)
    for plain in ("1", "a_0", "x" * paths.ID_CHARS_MAX, "a.b=c-d", "-", "_", "..."):
        assert paths.check_id("task", plain) == plain


# Names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "a.csv", "dt=1/a b+c&d%20.csv", "ü/日.txt", "_meta", "_x/.y", "a/_SUCCESS", "pending",
        "x.pending/y", "x.PENDING", "__magic_job", "x__magic_job-1", "__base/x",
    ],
)  # fmt: skip
def test_an_ordinary_name_is_published_as_it_is(name: str) -> None:
    """Any other name is fine, hidden ones too, and the magic path of it leads back to it."""
    paths.check_name(name)
    job = JobPaths(Destination.parse("s3://b/t"), "7")
    magic = paths.parse_magic_path(f"s3a://b/{job.base('a')}{name}")
    assert (magic.dest, magic.job_id, magic.attempt, magic.name) == (job.dest, "7", "a", name)
    assert magic.final_key == job.dest.key(name)
    assert magic.layout == "job"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "needs a name"),
        ("/a", "not relative"),
        ("s3://b/a", "not relative"),
        ("a//b", "empty element"),
        ("a/", "empty element"),
        ("./a", "element '.'"),
        ("a/../b", "element '..'"),
        ("a\tb", "character"),
        ("a\x85b", "character"),
        ("a\ud800", "character"),
        ("__magic/a", "committer's own"),
        ("a/__magic_job-1/b", "committer's own"),
        ("__magic_stream/a", "committer's own"),
        ("a.pending", "ends like"),
        ("d/.pendingset", "ends like"),
        ("_SUCCESS", "marker"),
        ("_SUCCESS/x", "marker"),
    ],
)
def test_a_name_that_would_lose_data_is_refused_with_its_reason(name: str, why: str) -> None:
    """Each rule has its own message; a magic path to such a file is refused as well."""
    raises(PathError, paths.check_name, name, match=why)
    if name:
        with pytest.raises(PathError):
            paths.parse_magic_path(f"s3://b/t/__magic_job-7/job-7/00/tasks/a/__base/{name}")


def test_a_name_with_another_jobs_token_is_refused_for_a_job() -> None:
    """The clean-up of the job that the token names would abort the upload."""
    paths.check_name(f"a-mcj{U1}.csv")
    paths.check_name(f"a-mcj{U1}.csv", uuid=U1)
    raises(PathError, paths.check_name, f"a-mcj{U1}.csv", uuid=U2, match=U1)


# Unique names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "unique"),
    [
        ("b.csv", f"b-mcj{U1}.csv"),
        ("d.x/b.csv.gz", f"d.x/b-mcj{U1}.csv.gz"),
        ("b", f"b-mcj{U1}"),
        (".b", f".b-mcj{U1}"),
        ("..b.csv", f"..b-mcj{U1}.csv"),
        (f"b-mcj{U1}.csv", f"b-mcj{U1}.csv"),
    ],
)
def test_the_token_stands_before_the_first_dot(name: str, unique: str) -> None:
    """Twice changes nothing; another job's token, and an owner that is no UUID, are refused."""
    assert paths.unique_name(name, U1) == unique
    assert paths.unique_name(unique, U1) == unique
    for other, uuid in ((f"b-mcj{U2}.csv", U1), (name, "not-a-uuid")):
        raises(PathError, paths.unique_name, other, uuid)


@pytest.mark.parametrize(
    "key",
    [
        f"mcj{U1}/b.csv", f"b-mcj{U1}0.csv", f"b-mcj{U1[:-1]}.csv", f"xmcj{U1}.csv",
        f"b-mcj{U1.upper()}.csv", f"part-00000-{U1}.csv", f"b-mcj{U1}\n", f"mcj{U1}-mcj{U2}.csv",
    ],
)  # fmt: skip
def test_only_one_whole_token_of_ours_names_an_owner(key: str) -> None:
    """Directories, substrings, other cases, two tokens and Spark's own UUIDs belong to nobody."""
    assert paths.uuid_in_name(key) is None


ELEMENT = st.text("ab.-_=mcj0f é", min_size=1, max_size=12).filter(lambda e: e not in (".", ".."))
NAME = st.lists(ELEMENT, min_size=1, max_size=3).map("/".join)
UUID = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(NAME, UUID, UUID)
def test_a_unique_name_names_its_owner(name: str, uuid: str, other: str) -> None:
    """That job and no other, in the same directory, hidden exactly if the name was."""
    unique = paths.unique_name(name, uuid)
    assert paths.uuid_in_name(unique) == uuid
    assert paths.uuid_in_name(f"s/{unique}") == uuid
    assert unique.rpartition("/")[0] == name.rpartition("/")[0]
    assert paths.is_hidden(unique) == paths.is_hidden(name)
    assert paths.unique_name(name, other) == unique.replace(f"mcj{uuid}", f"mcj{other}")


@given(st.text(max_size=60), st.text(max_size=60))
def test_nothing_but_a_path_error_comes_out(url: str, name: str) -> None:
    """Whatever the text, each reader answers or raises PathError."""
    for function in (paths.parse_url, Destination.parse, paths.parse_magic_path):
        answer(function, url)
        answer(function, f"s3://b/{url}")
        answer(function, f"s3://b/d/__magic_job-1/{name}")
    answer(paths.check_name, name)
    answer(paths.check_id, "id", name)
    assert paths.uuid_in_name(name) is None


# Magic paths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "dest", "name", "job_id", "attempt"),
    [
        ("d/__magic/1", "d/", "1", None, None),
        ("d/__magic/1/2", "d/", "2", None, None),
        ("d/__magic/job1/task003/__base/4/5", "d/", "4/5", None, None),
        ("__magic/job-7/tasks/a/__base/x", "", "x", "7", "a"),
        ("d/__magic/job-7/00/tasks/a/__base/x", "d/", "x", "7", "a"),
        ("d/__magic_job-7/job-7/01/tasks/a/__base/x", "d/", "x", "7", "a"),
        ("d/__magic_job-7/job-8/00/tasks/a/__base/x", "d/", "x", "8", "a"),
        ("d/__magic_job-7/job-7/00/tasks/a/x", "d/", "x", "7", None),
        ("d/__magic_job-a b/job-a b/00/tasks/a/__base/x", "d/", "x", "a b", "a"),
        ("d/__magic_job-/__base/x", "d/", "x", None, None),
    ],
)
def test_every_other_magic_form_is_plain(
    path: str, dest: str, name: str, job_id: str | None, attempt: str | None
) -> None:
    """Older layouts, flattening and what is not exactly ours are legal, but never a job's own."""
    magic = paths.parse_magic_path(f"s3a://b/{path}")
    assert magic.layout == "plain"
    assert (magic.dest.prefix, magic.name) == (dest, name)
    assert (magic.job_id, magic.attempt) == (job_id, attempt)
    assert magic.key == path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("d/x", "no element"),
        ("d/__magic_job-1", "no file named"),
        ("d/__magic_job-1/__base", "no file named"),
        ("d/__magic_job-1/", "empty element"),
        ("d/__magic_job-1/__magic_job-2/__base/x", "below '__magic_job-1'"),
        ("d/__magic/a/__magic/x", "below '__magic'"),
        ("d/__magic_job-1/__base/x.pending", "ends like"),
        ("d/__magic_stream/__magic_job-1/__base/x", "own directory"),
    ],
)
def test_a_magic_path_that_loses_data_is_refused_with_its_reason(path: str, why: str) -> None:
    """Where Hadoop would write and then destroy the file, we say which rule the path breaks."""
    raises(PathError, paths.parse_magic_path, f"s3a://b/{path}", match=why)
