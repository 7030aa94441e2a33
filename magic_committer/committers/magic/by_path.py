"""A file in plain Hadoop shape: no record, no token, no fence. S3A's guarantees, no more.

For programs that write into the tree of a job that Hadoop's own committer commits. The upload is
started on the final key, and its close saves a marker and a `.pending` as S3A's stream does. The
process that commits that job completes the upload.
"""

from __future__ import annotations

import logging

from magic_committer._runtime import Runtime
from magic_committer.commit.probe import refuse_long_element
from magic_committer.hadoop.formats import UploadEtag, encode_pending, new_pending
from magic_committer.hadoop.paths import PENDING_SUFFIX, MagicPath, java_uri
from magic_committer.options import Options, refuse_lost_checksums
from magic_committer.stores.base import Attributes
from magic_committer.upload import BlockSource, FinishedUpload, UploadStream

logger = logging.getLogger("magic_committer")

MARKER_LENGTH_METADATA = "x-hadoop-s3a-magic-data-length"
"""Hadoop's name: the length of the final object, on the zero-byte marker under the magic path
(3.1+)."""


def open_plain(
    runtime: Runtime,
    path: MagicPath,
    options: Options,
    blocks: BlockSource,
    attributes: Attributes,
) -> UploadStream:
    """Open a magic path of any legal form. Closing the file saves a `.pending` in Hadoop's
    shape."""
    refuse_lost_checksums(options.etag_form, options.checksum, hadoop_commits=True)
    refuse_long_element(runtime, path.key + PENDING_SUFFIX, "")
    logger.warning(
        "%s is written without a fence: it has S3A's guarantees, and is for Hadoop's committer",
        path.key,
    )
    bucket = runtime.store.bucket

    def closed(finished: FinishedUpload) -> None:
        pending = new_pending(
            uri=java_uri(bucket, path.key),
            upload_id=finished.upload_id,
            bucket=bucket,
            destination_key=finished.key,
            created_ms=int(runtime.clock.now() * 1000),
            etags=tuple(
                UploadEtag(part.etag, part.checksum.algorithm, part.checksum.value)
                if part.checksum
                else UploadEtag(part.etag, None, None)
                for part in finished.parts
            ),
            length=finished.length,
            extra_data={},
        )
        length = {MARKER_LENGTH_METADATA: str(finished.length)}
        runtime.store.put(path.key, b"", metadata=length)
        runtime.store.put(path.key + PENDING_SUFFIX, encode_pending(pending, options.etag_form))

    return UploadStream(
        runtime,
        path.final_key,
        attributes=attributes,
        options=options,
        blocks=blocks,
        on_close=closed,
    )
