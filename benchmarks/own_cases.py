"""What `benchmarks.own_writers` compares: each library with its own writer to S3, and with ours.

Each `Pair` has two functions that write the same rows below one URL; how many lines of the second
one are not in the first one is counted from their texts. A ``source`` gives the rows; that of a
failure raises half-way, or kills its process. The libraries are imported when a function runs.
"""

from __future__ import annotations

import difflib
import inspect
import os
import signal
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.writers import BUCKET, MiB, payloads_unsigned, pieces

FILE_BYTES = 64 * MiB
PARTITIONS = 32
PARTITION_BYTES = MiB


class Broken(Exception):
    """The source of the rows has failed."""


def die() -> None:
    """End this process as the system does that has no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    """Raise.

    Raises:
        Broken: always.
    """
    raise Broken("the source has failed half-way")


def go_on() -> None:
    """Do nothing: the source is whole."""


TRIPS: dict[str, Callable[[], None]] = {
    "": go_on, "whole": go_on, "raises": fail, "killed": die,
}  # fmt: skip
"""What the source does half-way. A ``whole`` one comes on the same way as one that fails: piece by
piece, where the library can take it so."""


@dataclass
class Source:
    """Rows of noise, which nothing compresses: one column of numbers, and one of partitions.

    Args:
        size: bytes of all rows, about.
        partitions: how many.
        trip: what it does half-way.
    """

    size: int = FILE_BYTES
    partitions: int = 1
    trip: str = ""
    _table: Any = field(default=None, repr=False)

    @property
    def each(self) -> int:
        """Bytes of a partition."""
        return self.size // self.partitions

    def half_way(self, number: int, of: int) -> None:
        """Called before each step."""
        if number == of // 2 + 1:
            TRIPS[self.trip]()

    def pieces(self) -> Iterator[bytes]:
        """All bytes, 1 MiB at a time."""
        for number, piece in enumerate(pieces(self.size)):
            self.half_way(number, self.size // MiB)
            yield piece

    def files(self) -> Iterator[tuple[str, bytes]]:
        """A name and the bytes of each partition."""
        for number in range(self.partitions):
            self.half_way(number, self.partitions)
            yield f"part-{number:03d}.bin", b"".join(pieces(self.each))

    def table(self) -> Any:
        """All rows, as a table of pyarrow; made once."""
        if self._table is None:
            import numpy as np
            import pyarrow as pa

            rows = self.size // 8
            noise = np.random.default_rng(7).random(rows)
            day = np.repeat(np.arange(self.partitions, dtype=np.int32), rows // self.partitions)
            self._table = pa.table({"day": day, "n": noise[: len(day)]})
        return self._table

    def batches(self) -> Iterator[Any]:
        """Batches of pyarrow, of 1 MiB at most."""
        batches = self.table().to_batches(max_chunksize=min(self.each, MiB) // 8)
        for number, batch in enumerate(batches):
            self.half_way(number, len(batches))
            yield batch

    def frames(self) -> Iterator[tuple[int, Any]]:
        """A data frame of pandas for each partition."""
        rows = self.each // 8
        for number in range(self.partitions):
            self.half_way(number, self.partitions)
            yield number, self.table().slice(number * rows, rows).to_pandas()


# How each library is told of the server -----------------------------------------------------------


@cache
def s3fs() -> Any:
    """s3fs, as its manual says."""
    import s3fs as module

    return module.S3FileSystem()


@cache
def arrow() -> Any:
    """pyarrow's own S3."""
    from pyarrow import fs

    place = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    return fs.S3FileSystem(endpoint_override=place.netloc, scheme=place.scheme, region="us-east-1")


def object_store() -> dict[str, str]:
    """polars' ``storage_options``, which object_store reads."""
    unsigned = {"aws_unsigned_payload": "true"} if payloads_unsigned() else {}
    url = os.environ["AWS_ENDPOINT_URL"]
    return {"aws_endpoint_url": url, "aws_allow_http": "true", **unsigned}


def obstore(prefix: str) -> Any:
    """obstore, below a prefix."""
    from obstore.store import S3Store

    return S3Store(
        BUCKET,
        prefix=prefix,
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        region="us-east-1",
        client_options={"allow_http": True},
        unsigned_payload=payloads_unsigned(),
    )


@cache
def duck() -> Any:
    """A connection of DuckDB with its extension httpfs, which a package of PyPI brings."""
    import duckdb
    import duckdb_extension_httpfs

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    folder = Path(duckdb_extension_httpfs.__file__).parent
    (found,) = folder.rglob("httpfs.duckdb_extension")
    connection.execute(f"load '{found}'")
    place = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    connection.execute(
        "create secret (type s3, key_id 'bench', secret 'bench', region 'us-east-1',"
        f" endpoint '{place.netloc}', use_ssl false, url_style 'path')"
    )
    return connection


def rows_of(source: Source) -> str:
    """The rows, as DuckDB sees them: a query. For a source that fails it calls a function of
    Python at the row in the middle."""
    import numpy as np

    connection, table = duck(), source.table()
    if not source.trip:
        connection.register("rows", table)
        return "select * from rows"
    middle, trip = len(table) // 2, TRIPS[source.trip]
    connection.register("rows", table.append_column("row", [np.arange(len(table))]))
    connection.create_function("half_way", lambda row: trip() or 0.0, ["BIGINT"], "DOUBLE")
    return f"select day, case when row = {middle} then half_way(row) else n end as n from rows"


# The pairs ----------------------------------------------------------------------------------------
#
# Below, ``to`` is a URL of S3 without a slash at its end; what is imported is not counted.


def pandas_own(source: Source, to: str) -> None:
    frame = _frame(source)
    frame.to_parquet(f"{to}/part.parquet", filesystem=s3fs())


def pandas_ours(source: Source, to: str) -> None:
    frame = _frame(source)
    with mc().write(to) as job:
        frame.to_parquet("part.parquet", filesystem=job.filesystem(unique=True))


def pandas_days_own(source: Source, to: str) -> None:
    for day, frame in source.frames():
        frame.to_parquet(f"{to}/day={day}.parquet", filesystem=s3fs())


def pandas_days_ours(source: Source, to: str) -> None:
    with mc().write(to) as job:
        for day, frame in source.frames():
            frame.to_parquet(f"day={day}.parquet", filesystem=job.filesystem(unique=True))


def pandas_partitions_own(source: Source, to: str) -> None:
    frame = _frame(source)
    frame.to_parquet(to, partition_cols=["day"], filesystem=s3fs())


def pandas_partitions_ours(source: Source, to: str) -> None:
    frame = _frame(source)
    with mc().write(to) as job:
        frame.to_parquet(to, partition_cols=["day"], filesystem=job.filesystem(unique=True))


def arrow_own(source: Source, to: str) -> None:
    import pyarrow.parquet as pq

    place = to.removeprefix("s3://")
    with pq.ParquetWriter(f"{place}/part.parquet", source.table().schema, filesystem=arrow()) as w:
        for batch in source.batches():
            w.write_batch(batch)


def arrow_ours(source: Source, to: str) -> None:
    import pyarrow.parquet as pq

    with (
        mc().write(to) as job,
        job.open("part.parquet", unique=True) as file,
        pq.ParquetWriter(file, source.table().schema) as w,
    ):
        for batch in source.batches():
            w.write_batch(batch)


def arrow_table_own(source: Source, to: str) -> None:
    import pyarrow.parquet as pq

    place = to.removeprefix("s3://")
    pq.write_table(source.table(), f"{place}/part.parquet", filesystem=arrow())


def arrow_table_ours(source: Source, to: str) -> None:
    import pyarrow.parquet as pq

    with mc().write(to) as job:
        pq.write_table(source.table(), "part.parquet", filesystem=job.filesystem(unique=True))


def dataset_own(source: Source, to: str) -> None:
    import pyarrow.dataset as ds

    ds.write_dataset(
        source.batches(),
        to.removeprefix("s3://"),
        schema=source.table().schema,
        format="parquet",
        partitioning=["day"],
        filesystem=arrow(),
    )


def dataset_ours(source: Source, to: str) -> None:
    import pyarrow.dataset as ds

    with mc().write(to) as job:
        ds.write_dataset(
            source.batches(),
            "/",
            schema=source.table().schema,
            format="parquet",
            partitioning=["day"],
            filesystem=job.filesystem(unique=True),
        )


def polars_own(source: Source, to: str) -> None:
    frame = _polars(source)
    frame.write_parquet(f"{to}/part.parquet", storage_options=object_store())


def polars_ours(source: Source, to: str) -> None:
    frame = _polars(source)
    with mc().write(to) as job, job.open("part.parquet", unique=True) as file:
        frame.write_parquet(file)


def polars_sink_own(source: Source, to: str) -> None:
    query = _lazy(source)
    query.sink_parquet(f"{to}/part.parquet", storage_options=object_store())


def polars_sink_ours(source: Source, to: str) -> None:
    query = _lazy(source)
    with mc().write(to) as job, job.open("part.parquet", unique=True) as file:
        query.sink_parquet(file)


def polars_partitions_own(source: Source, to: str) -> None:
    import polars as pl

    query = _lazy(source)
    query.sink_parquet(pl.PartitionBy(to, key="day"), storage_options=object_store())


def polars_partitions_ours(source: Source, to: str) -> None:
    from contextlib import ExitStack

    import polars as pl

    query = _lazy(source)
    with mc().write(to) as job, ExitStack() as files:

        def file_of(args: Any) -> Any:
            name = f"day={args.partition_keys.item(0, 'day')}/{args.index_in_partition}.parquet"
            return files.enter_context(job.open(name, unique=True))

        query.sink_parquet(pl.PartitionBy("", key="day", file_path_provider=file_of))


def duckdb_own(source: Source, to: str) -> None:
    rows = rows_of(source)
    duck().execute(f"copy ({rows}) to '{to}/part.parquet' (format parquet)")


def duckdb_ours(source: Source, to: str) -> None:
    rows = rows_of(source)
    with mc().write(to) as job, registered(job.filesystem(unique=True)):
        to = to.replace("s3://", "magic://")
        duck().execute(f"copy ({rows}) to '{to}/part.parquet' (format parquet)")


def duckdb_partitions_own(source: Source, to: str) -> None:
    rows = rows_of(source)
    duck().execute(f"copy ({rows}) to '{to}' (format parquet, partition_by (day))")


def duckdb_partitions_ours(source: Source, to: str) -> None:
    rows = rows_of(source)
    with mc().write(to) as job, registered(job.filesystem(unique=True)):
        to = to.replace("s3://", "magic://")
        duck().execute(f"copy ({rows}) to '{to}' (format parquet, partition_by (day))")


@contextmanager
def registered(files: Any) -> Iterator[None]:
    """A file system that DuckDB knows, for a block."""
    duck().register_filesystem(files)
    try:
        yield
    finally:
        duck().unregister_filesystem("magic")


def dask_own(source: Source, to: str) -> None:
    frame = _dask(source)
    frame.to_parquet(to, write_index=False, filesystem=s3fs())


def dask_ours(source: Source, to: str) -> None:
    frame = _dask(source)
    with mc().write(to) as job:
        frame.to_parquet(to, write_index=False, filesystem=job.filesystem(unique=True))


def zarr_own(source: Source, to: str) -> None:
    from zarr.storage import FsspecStore

    store = FsspecStore.from_url(f"{to}/a.zarr")
    _chunks(source, store)


def zarr_ours(source: Source, to: str) -> None:
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from zarr.storage import FsspecStore

    with mc().write(to) as job:
        files = AsyncFileSystemWrapper(job.filesystem(unique=True), asynchronous=True)
        store = FsspecStore(files, path="a.zarr")
        _chunks(source, store)


def zarr_obstore_own(source: Source, to: str) -> None:
    from zarr.storage import ObjectStore

    store = ObjectStore(obstore(f"{urlsplit(to).path.strip('/')}/a.zarr"))
    _chunks(source, store)


zarr_obstore_ours = zarr_ours


def s3fs_own(source: Source, to: str) -> None:
    with s3fs().open(f"{to}/part.bin", "wb") as file:
        for piece in source.pieces():
            file.write(piece)


def s3fs_ours(source: Source, to: str) -> None:
    with mc().write(to) as job, job.open("part.bin", unique=True) as file:
        for piece in source.pieces():
            file.write(piece)


def s3fs_files_own(source: Source, to: str) -> None:
    for name, content in source.files():
        with s3fs().open(f"{to}/{name}", "wb") as file:
            file.write(content)


def s3fs_files_ours(source: Source, to: str) -> None:
    with mc().write(to) as job:
        for name, content in source.files():
            with job.open(name, unique=True) as file:
                file.write(content)


def smart_open_own(source: Source, to: str) -> None:
    import smart_open

    with smart_open.open(f"{to}/part.bin", "wb", transport_params=_client()) as file:
        for piece in source.pieces():
            file.write(piece)


def smart_open_ours(source: Source, to: str) -> None:
    with mc().write(to) as job, job.open("part.bin", unique=True) as file:
        for piece in source.pieces():
            file.write(piece)


# What both of a pair begin with -------------------------------------------------------------------


def mc() -> Any:
    """This library, imported when a function runs."""
    import magic_committer

    return magic_committer


@cache
def _client() -> dict[str, Any]:
    import boto3

    return {"client": boto3.client("s3")}


def _frame(source: Source) -> Any:
    return _once(source, "pandas", lambda: source.table().to_pandas())


def _polars(source: Source) -> Any:
    import polars as pl

    return _once(source, "polars", lambda: pl.from_arrow(source.table()))


_MADE: dict[tuple[int, str], Any] = {}


def _once(source: Source, kind: str, make: Callable[[], Any]) -> Any:
    if (id(source), kind) not in _MADE:
        _MADE[id(source), kind] = make()
    return _MADE[id(source), kind]


def _lazy(source: Source) -> Any:
    import polars as pl

    if not source.trip:
        return _polars(source).lazy()
    from polars.io.plugins import register_io_source

    def batches(*_: object) -> Iterator[Any]:
        for batch in source.batches():
            yield pl.from_arrow(batch)

    return register_io_source(batches, schema={"day": pl.Int32, "n": pl.Float64})


def _dask(source: Source) -> Any:
    import dask
    import dask.dataframe as dd

    dask.config.set(scheduler="threads", **({"num_workers": 1} if source.trip else {}))
    if not source.trip:
        frame = _frame(source)
        return _once(source, "dask", lambda: dd.from_pandas(frame, npartitions=source.partitions))
    rows = source.each // 8

    def part(number: int) -> Any:
        source.half_way(number, source.partitions)
        return source.table().slice(number * rows, rows).to_pandas()

    meta = source.table().slice(0, 0).to_pandas()
    return dd.from_map(part, range(source.partitions), meta=meta)


def _chunks(source: Source, store: Any) -> None:
    import zarr

    rows, many = source.each // 8, source.partitions
    noise = source.table()["n"].to_numpy()
    array = zarr.create_array(
        store, shape=(rows * many,), chunks=(rows,), dtype="float64", compressors=None
    )
    for number in range(many):
        source.half_way(number, many)
        array[number * rows : (number + 1) * rows] = noise[number * rows : (number + 1) * rows]


@dataclass(frozen=True)
class Pair:
    """A library, its own writer to S3, and ours.

    Attributes:
        library: its name, with the call. writer: what it has for S3.
        needs: packages that must be there.
        own, ours: write a source below a URL.
        partitions: how many files; 1: one of 64 MiB.
        timed, failing: in which of the tables it is.
    """

    library: str
    writer: str
    needs: tuple[str, ...]
    own: Callable[[Source, str], None]
    ours: Callable[[Source, str], None]
    partitions: int = 1
    timed: bool = True
    failing: bool = False

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return self.own.__name__.removesuffix("_own")

    @property
    def missing(self) -> list[str]:
        """Packages that are not installed."""
        return [name for name in self.needs if not _version(name)]

    @property
    def lines(self) -> int:
        """How many lines of ours are not in its own; those that hold an import, or give the
        function's name, are not counted."""
        own, ours = (_lines(one) for one in (self.own, self.ours))
        changes = difflib.SequenceMatcher(None, own, ours, autojunk=False).get_opcodes()
        return sum(to - at for what, _, _, at, to in changes if what in ("replace", "insert"))

    def source(self, trip: str = "") -> Source:
        """What it writes."""
        size = FILE_BYTES if self.partitions == 1 else self.partitions * PARTITION_BYTES
        return Source(size, self.partitions, trip)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _lines(function: Callable[..., object]) -> list[str]:
    text = textwrap.dedent(inspect.getsource(function)).splitlines()[1:]
    lines = [line.strip() for line in text]
    return [line for line in lines if line and not line.startswith(("import ", "from "))]


_FS = ("s3fs", "fsspec")
PAIRS: tuple[Pair, ...] = (
    Pair("pandas to_parquet", "s3fs", ("pandas", "pyarrow", *_FS), pandas_own, pandas_ours),
    Pair(
        "pyarrow.parquet write_table", "S3FileSystem", ("pyarrow", "fsspec"),
        arrow_table_own, arrow_table_ours,
    ),
    Pair(
        "pyarrow.parquet ParquetWriter", "S3FileSystem", ("pyarrow",), arrow_own, arrow_ours,
        failing=True,
    ),
    Pair("polars write_parquet", "object_store", ("polars", "pyarrow"), polars_own, polars_ours),
    Pair(
        "polars sink_parquet", "object_store", ("polars", "pyarrow"),
        polars_sink_own, polars_sink_ours, failing=True,
    ),
    Pair(
        "DuckDB COPY", "httpfs", ("duckdb", "duckdb-extension-httpfs", "pyarrow", "fsspec"),
        duckdb_own, duckdb_ours, failing=True,
    ),
    Pair("s3fs open", "s3fs", _FS, s3fs_own, s3fs_ours, failing=True),
    Pair(
        "smart_open open", "boto3", ("smart_open",), smart_open_own, smart_open_ours, failing=True
    ),
    Pair(
        "pandas to_parquet, a loop", "s3fs", ("pandas", "pyarrow", *_FS),
        pandas_days_own, pandas_days_ours, PARTITIONS, timed=False, failing=True,
    ),
    Pair(
        "pandas partition_cols", "s3fs", ("pandas", "pyarrow", *_FS),
        pandas_partitions_own, pandas_partitions_ours, PARTITIONS,
    ),
    Pair(
        "pyarrow.dataset write_dataset", "S3FileSystem", ("pyarrow", "fsspec"),
        dataset_own, dataset_ours, PARTITIONS, failing=True,
    ),
    Pair(
        "polars sink_parquet PartitionBy", "object_store", ("polars", "pyarrow"),
        polars_partitions_own, polars_partitions_ours, PARTITIONS, failing=True,
    ),
    Pair(
        "DuckDB COPY PARTITION_BY", "httpfs",
        ("duckdb", "duckdb-extension-httpfs", "pyarrow", "fsspec"),
        duckdb_partitions_own, duckdb_partitions_ours, PARTITIONS, failing=True,
    ),
    Pair(
        "dask to_parquet", "s3fs", ("dask", "pandas", "pyarrow", *_FS),
        dask_own, dask_ours, PARTITIONS, failing=True,
    ),
    Pair(
        "zarr create_array", "s3fs", ("zarr", "pyarrow", *_FS), zarr_own, zarr_ours, PARTITIONS,
        failing=True,
    ),
    Pair(
        "zarr create_array", "obstore", ("zarr", "obstore", "pyarrow", "fsspec"),
        zarr_obstore_own, zarr_obstore_ours, PARTITIONS,
    ),
    Pair("s3fs open, a loop", "s3fs", _FS, s3fs_files_own, s3fs_files_ours, PARTITIONS),
)  # fmt: skip
"""The order is that of the tables."""
