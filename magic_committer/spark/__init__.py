"""PySpark: jobs whose tasks run on executors and whose commit runs on the driver.

::

    from magic_committer.spark import write_dataframe, write_partitions

    report = write_dataframe(df, "s3://bucket/table", mode="append")

    def write_rows(task, rows):
        with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file: ...

    report = write_partitions(rdd, "s3://bucket/out", write_rows)

When the JVM side of a task dies, its Python iterator *ends normally*: a task cannot tell the end of
its input from a cut. Only the driver may publish: what Spark accepted, one result for each
partition. Speculative losers and zombies change nothing, and need no lock.
"""

try:
    import pyspark
except ImportError as error:
    raise ImportError(
        "magic_committer.spark needs PySpark: pip install 'magic-committer[spark]'", name="pyspark"
    ) from error

if (*map(int, pyspark.__version__.split(".")[:2]),) < (3, 5):
    raise ImportError(
        f"magic_committer.spark needs PySpark 3.5 or newer, and this is {pyspark.__version__}:"
        " pip install 'magic-committer[spark]'",
        name="pyspark",
    )

from magic_committer.spark.driver import SaveMode, register
from magic_committer.spark.java_session import session
from magic_committer.spark.write import (
    PartitionsReport,
    WriteRows,
    foreach_batch,
    write_dataframe,
    write_partitions,
)

__all__ = [
    "PartitionsReport",
    "SaveMode",
    "WriteRows",
    "foreach_batch",
    "register",
    "session",
    "write_dataframe",
    "write_partitions",
]
