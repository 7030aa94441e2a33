"""PySpark: jobs whose tasks run on executors and whose commit runs on the driver.

::

    from magic_committer.spark import write_dataframe, write_partitions

    report = write_dataframe(df, "s3://bucket/table", mode="append")

    def write_rows(task, rows):
        with task.open(f"part-{task.task_id}.csv", "w", unique=True) as file: ...

    report = write_partitions(rdd, "s3://bucket/out", write_rows)

Invariants (``docs/spark.md`` tells them to users):

* A task publishes nothing. When the JVM side of a task dies, its Python iterator *ends normally*: a
  task cannot tell the end of its input from a cut. Only the driver may publish.
* The driver takes exactly the results that Spark accepted, one for each partition:
  ``accept="results"``. Speculative losers and zombies change nothing, and need no lock.
* The driver sends a `Job` to the tasks (plain data, no secrets). Each task sends back one
  `TaskCommit` as JSON.

`partitions` and `frame` hold two public functions, `source` and `source_options` the data source
``format("magic")``, `stream` its micro-batches and `batches` those of ``foreachBatch``,
`java_session` a Spark where there is no Java. `driver` is the half that runs in the user's process,
`worker` the half that runs in a task.
"""

try:
    import pyspark
except ImportError as error:
    raise ImportError(
        "magic_committer.spark needs PySpark: pip install 'magic-committer[spark]'",
        name="pyspark",
    ) from error

if (*map(int, pyspark.__version__.split(".")[:2]),) < (3, 5):
    raise ImportError(
        "magic_committer.spark needs PySpark 3.5 or newer, and this is"
        f" {pyspark.__version__}: pip install 'magic-committer[spark]'",
        name="pyspark",
    )

from magic_committer.spark.batches import foreach_batch
from magic_committer.spark.driver import SaveMode, register
from magic_committer.spark.frame import write_dataframe
from magic_committer.spark.java_session import session
from magic_committer.spark.partitions import PartitionsReport, WriteRows, write_partitions

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
