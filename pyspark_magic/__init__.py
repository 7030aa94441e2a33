"""Where Spark looks for data sources: it imports every top-level ``pyspark_*`` and uses its
``DefaultSource``. So ``format("magic")`` is known wherever this library is installed.

Spark does so for every Python data source that anybody asks for, and an error here would end all of
them. So without `magic_committer.spark` (an older PySpark, a broken environment) there is just no
``DefaultSource``, and Spark says that it does not know the format.
"""

import contextlib

with contextlib.suppress(ImportError):
    from magic_committer.spark.source import MagicSource as DefaultSource

    __all__ = ["DefaultSource"]
