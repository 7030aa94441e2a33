"""Mutants written by hand: the rules of `write_dataframe` with ``via=``, which is not ours to lose
files from."""

from __future__ import annotations

from tests.mutants.handwork import Hand

VIA = "spark/via.py"

STAGING = (
    Hand(
        "staged: a write that did not end", VIA, "listed",
        (("SUCCESS not in {file.name for file in files}", "False"),),
        "I2: a part of the files is published",
    ),
    Hand(
        "staged: hidden files go up", VIA, "listed", (("not is_hidden(file.name)", "True"),),
        "I2: what no task has committed is published",
    ),
    Hand(
        "staged: no look at a file's time", VIA, "upload_file",
        (("_refuse_changed(path, file)", "pass"),),
        "I2: bytes that Spark's writer did not write are published", times=2,
    ),
    Hand(
        "staged: everybody may read the rows", VIA, "scratch",
        (("tempfile.mkdtemp(prefix=f'magic-{uuid}-', dir=folder)",
          "os.mkdir(f'{folder}/magic-{uuid}-') or f'{folder}/magic-{uuid}-'"),),
        "other users of the machine read what the job writes",
    ),
    Hand(
        "staged: what Spark counted is not asked", VIA, "listed",
        (("there != counted", "False"),),
        "I2: the files of an executor that does not share the directory are missing",
    ),
    Hand(
        "staged: hidden partitions pass", VIA, "refuse_layout",
        (("[name for name in parts if name.startswith(('_', '.'))]", "[]"),),
        "I2: the files of a partition are taken for hidden ones, and are not uploaded",
    ),
    Hand(
        "staged: options lead elsewhere", VIA, "refuse_option",
        (("name.lower() in REFUSED", "False"),),
        "Spark's writer writes past the scratch directory",
    ),
    Hand(
        "staged: names without the job", VIA, "final_name",
        (("directory + slash + _SPARKS_UUID.sub(f'\\\\g<1>mcj{uuid}', last, count=1)", "name"),),
        "two names for one thing: Spark's UUID and the job's",
    ),
)  # fmt: skip
