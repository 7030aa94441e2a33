"""The stores that the suite runs on, and, in one place, where each is known to break a rule.

A test that a store is known to fail runs all the same and must fail: the day it passes, the suite
says so and the line here goes. The rules are S3's; design notes on what stores do differently were
measured by hand, these lines by every run.

A real server joins by environment: ``MAGIC_COMMITTER_TEST_ENDPOINT`` (its URL),
``MAGIC_COMMITTER_TEST_BUCKET`` (an existing bucket), ``MAGIC_COMMITTER_TEST_STORE`` (its row below,
if it has one), and credentials as for every AWS tool.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from magic_committer.memory import MemoryStore
from magic_committer.options import S3Options
from magic_committer.s3 import S3Store
from magic_committer.store import ObjectStore
from tests.servers import HurriedClock, make_bucket, moto_options, moto_server

ENDPOINT = "MAGIC_COMMITTER_TEST_ENDPOINT"
BUCKET = "MAGIC_COMMITTER_TEST_BUCKET"
STORE = "MAGIC_COMMITTER_TEST_STORE"

NAMES = ("memory", "memory-paged", "moto", *(("real",) if ENDPOINT in os.environ else ()))

_ERROR_500 = "answers 500"
_FILE_OR_DIRECTORY = "a key that another continues after a slash is refused"

DEVIATIONS: dict[str, dict[str, str]] = {
    "memory": {},
    "memory-paged": {},
    # moto 5.2.5
    "moto": {
        "test_a_long_key_is_refused": "takes it",
        "test_large_metadata_is_refused": "takes it",
        "test_a_repeated_part_is_refused": "publishes it twice",
        "test_part_numbers_start_at_1": "answers 404 NoSuchUpload",
        "test_a_wrong_length_is_refused": "ignores MpuObjectSize",
        "test_a_wrong_checksum_of_a_part_is_refused": "compares no checksum",
        "test_a_wrong_checksum_of_the_whole_is_refused": "compares no checksum",
        "test_a_wrong_checksum_in_the_list_of_parts_is_refused": "compares no checksum",
        "test_a_second_complete_does_not_bring_back_what_was_replaced": _ERROR_500,
        "test_a_second_complete_does_not_bring_back_what_was_deleted": _ERROR_500,
        "test_a_part_for_an_upload_that_never_was_is_not_found": _ERROR_500,
        "test_completing_an_upload_that_never_was_is_not_found": _ERROR_500,
        "test_an_aborted_upload_takes_no_part": _ERROR_500,
        "test_completing_an_aborted_upload_is_not_found": _ERROR_500,
        "test_an_upload_belongs_to_its_key": "publishes the other key",
        "test_uploads_are_listed_by_key_then_initiation": "unsorted",
        "test_a_listing_of_uploads_tells_when_it_was_made": "Initiated is always in 2010",
    },
    # versitygw 1.8.0, POSIX backend: keys are paths of files
    "versitygw": {
        "test_keys_come_in_the_order_of_their_bytes": _FILE_OR_DIRECTORY,
        "test_a_neighbour_is_not_listed": _FILE_OR_DIRECTORY,
        "test_keys_keep_their_empty_elements": "a key that ends in a slash takes no bytes",
        "test_a_key_may_begin_with_a_slash": "the slash is dropped",
        "test_a_second_complete_does_not_bring_back_what_was_replaced": "200; it stays replaced",
        "test_uploads_are_listed_by_key_then_initiation": "the uploads of one key come by chance",
    },
}
"""Store: test: what the store does instead."""

BY_CHANCE = {("versitygw", "test_uploads_are_listed_by_key_then_initiation")}
"""Deviations that do not show in every run: these tests may pass."""


def deviation(name: str, test: str) -> str | None:
    """What the store is known to do instead of what the test claims; None if it keeps the rule."""
    return DEVIATIONS.get(_row(name), {}).get(test)


def by_chance(name: str, test: str) -> bool:
    """Whether the store does so in some runs only."""
    return (_row(name), test) in BY_CHANCE


def _row(name: str) -> str:
    return os.environ.get(STORE, "") if name == "real" else name


@contextmanager
def opened(name: str) -> Iterator[ObjectStore]:
    """A store of that name with an empty bucket (a real one's is as it was)."""
    if name == "memory":
        yield MemoryStore()
    elif name == "memory-paged":
        yield MemoryStore(page_keys=2, forgetful_complete=True)
    elif name == "moto":
        with moto_server() as url:
            make_bucket(url, "contract")
            yield S3Store("contract", moto_options(url), clock=HurriedClock())
    else:
        options = S3Options(endpoint_url=os.environ[ENDPOINT], retry_attempts_max=2)
        yield S3Store(os.environ[BUCKET], options)
