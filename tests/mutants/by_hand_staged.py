"""Mutants written by hand: the rules of `write_dataframe` with ``via=``, which is not ours to lose
files from, and whose scratch directories lie beside what is not ours."""

from __future__ import annotations

from tests.mutants.handwork import Hand

SCRATCH, STAGED = "spark/scratch.py", "spark/staged.py"

STAGING = (
    Hand(
        "staged: a directory of any owner goes", SCRATCH, "_is_ours",
        (("bool(_owner_of(files, path).get('job') == uuid)", "True"),),
        "I6: a directory that is only named like ours is removed",
    ),
    Hand(
        "staged: a directory without an owner goes", SCRATCH, "_only_bones",
        (("found <= BONES", "True"),),
        "I6: a directory that is only named like ours is removed",
    ),
    Hand(
        "staged: a link goes", SCRATCH, "_is_directory_of",
        (("stat.S_ISDIR(seen.st_mode)", "True"),),
        "I6: somebody's link into a directory of ours is removed",
    ),
    Hand(
        "staged: another user's directory goes", SCRATCH, "_is_directory_of",
        (("seen.st_uid == user", "True"),),
        "a job reads, and removes, what somebody else made: a pipe there stops it for ever",
    ),
    Hand(
        "staged: what vanishes fails the job", SCRATCH, "_last_change",
        (("max((time for time in times if time is not None), default=None)",
          "max([time for time in times if time is not None])"),),
        "of two jobs that remove a dead directory at once one fails",
    ),
    Hand(
        "staged: a young left-over goes", SCRATCH, "remove_dead",
        (("seconds >= dead_after", "True"),),
        "the directory of a job that runs is removed",
    ),
    Hand(
        "staged: a sign of life is not looked at", SCRATCH, "_last_change",
        (("f'/{ALIVE}'", "''"),),
        "the directory of a job that runs for two days is removed",
    ),
    Hand(
        "staged: a write that did not end", SCRATCH, "Staging.staged",
        (("SUCCESS not in found", "False"),),
        "I2: a part of the files is published",
    ),
    Hand(
        "staged: hidden files go up", SCRATCH, "Staging.staged", (("not is_hidden(name)", "True"),),
        "I2: what no task has committed is published",
    ),
    Hand(
        "staged: bytes are not counted", SCRATCH, "Staging.read", (("size != file.size", "False"),),
        "a file that grows while it is read is noticed by its time only",
    ),
    Hand(
        "staged: no look at a file's time", SCRATCH, "Staging.read",
        (("self._refuse_changed(file, path)", "pass"),),
        "I2: bytes that Spark's writer did not write are published", times=2,
    ),
    Hand(
        "staged: files are unpacked", SCRATCH, "Staging.read",
        (("self.place.files.open_input_stream(path, compression=None)",
          "self.place.files.open_input_stream(path)"),),
        "I2: part.csv.gz holds text",
    ),
    Hand(
        "staged: any directory of that name", SCRATCH, "Staging.wrong_here",
        (("nonce != self.nonce", "False"),),
        "an executor reads from a directory of its own machine",
    ),
    Hand(
        "staged: everybody may read the rows", SCRATCH, "Staging.make", (("0o700", "0o777"),),
        "other users of the machine read what the job writes",
    ),
    Hand(
        "staged: what Spark counted is not asked", STAGED, "refuse_other_than",
        (("there != written", "False"),),
        "I2: the files of an executor that does not share the directory are missing",
    ),
    Hand(
        "staged: hidden partitions pass", STAGED, "Layout.__post_init__",
        (("[name for name in self.partition_by if name.startswith(('_', '.'))]", "[]"),),
        "I2: the files of a partition are taken for hidden ones, and are not uploaded",
    ),
    Hand(
        "staged: options lead elsewhere", STAGED, "Layout.__post_init__",
        (("name.lower() in REFUSED", "False"),),
        "Spark's writer writes past the scratch directory",
    ),
    Hand(
        "staged: names without the job", STAGED, "final_name",
        (("return f'{directory}{slash}{own}'", "return name"),),
        "two names for one thing: Spark's UUID and the job's",
    ),
)  # fmt: skip
