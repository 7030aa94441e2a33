"""What readers see of a bucket, and what is hidden in it."""

from __future__ import annotations

from magic_committer.stores.base import objects, uploads
from magic_committer.stores.s3 import S3Store

BYTES_MAX = 1000


def visible(store: S3Store) -> dict[str, bytes]:
    """What a reader sees, but markers; nothing hidden may be left, and no upload."""
    keys = [one.key for one in objects(store, "")]
    assert not [key for key in keys if "__magic" in key]
    assert list(uploads(store, "")) == []
    data = [key for key in keys if not key.endswith("_SUCCESS")]
    return {key: store.get(key, max_bytes=BYTES_MAX).body for key in data}
