"""A Java for Spark, for the tools: what `magic_committer.spark.session` uses, without a PySpark.

with tools.java.for_spark() as environment:
    os.environ.update(environment)      # then start PySpark
"""

from __future__ import annotations

from magic_committer._java import (
    JAVA_VERSION_MIN,
    MISSING_MODULE,
    Java,
    NoJava,
    bundled_java,
    find,
    for_spark,
    system_java,
)

__all__ = [
    "JAVA_VERSION_MIN",
    "MISSING_MODULE",
    "Java",
    "NoJava",
    "bundled_java",
    "find",
    "for_spark",
    "system_java",
]
