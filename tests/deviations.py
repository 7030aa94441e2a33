"""Where each store is known to break a rule: one table, which tests hold and
tests/real_servers/README.md prints.

    python -m tests.deviations        write the table there

A rule is the name of a test, of `tests/contract` or of `tests/real_servers`. A test that a store is
known to fail runs all the same and must fail: the day it passes, the suite says so, and its line
here goes. One that fails without a line here is a new deviation, and fails the suite.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "real_servers" / "README.md"
BEGIN = "<!-- deviations: written by `python -m tests.deviations` -->"
END = "<!-- end of deviations -->"

STORES = {
    "moto": "moto 5.2.5",
    "versitygw": "versitygw 1.8.0, POSIX",
    "minio": "MinIO, February 2026",
    "ceph": "Ceph RGW 16.2",
    "tree": "a directory",
    "fsspec": "fsspec's",
}
"""The stores that are run, as docs/stores.md calls them."""

_ERROR_500 = "answers 500"
_NO_CHECKSUMS = "keeps and compares no checksums"
_IN_PROGRESS = "answers 500, “already in progress”"
_REPLACED = "lists U+FFFD in place of such characters"
_PREFIX = "lists uploads by whole keys only"
_FILE_OR_DIRECTORY = "a key that another continues after a slash is refused"
_IGNORED = "ignores the condition"
_NO_SUMS = "compares no checksum: no byte travels"
_OWN_ETAGS = "an ETag is inode, time and size"
_TIME_ETAGS = "an ETag is time and size, or drawn"
_ONE_PART = "an upload has one part, and no checksums"
_COPIES_NOTHING = "copies nothing"
_FRACTIONS = "tells fractions"
_NO_METADATA = "keeps metadata of control objects alone"
_UNLOCKED = "looks, then writes, without a lock"
_MILLISECONDS = "listings tell milliseconds, HEAD whole seconds"

DEVIATIONS: dict[str, dict[str, str]] = {
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
        "test_a_part_is_copied_from_that_version_only": _IGNORED,
        "test_one_of_many_creators_wins": _UNLOCKED,
        "test_one_of_many_swappers_wins": _UNLOCKED,
    },
    # keys are paths of files
    "versitygw": {
        "test_keys_come_in_the_order_of_their_bytes": _FILE_OR_DIRECTORY,
        "test_a_neighbour_is_not_listed": _FILE_OR_DIRECTORY,
        "test_keys_keep_their_empty_elements": "a key that ends in a slash takes no bytes",
        "test_a_key_may_begin_with_a_slash": "the slash is dropped",
        "test_a_second_complete_does_not_bring_back_what_was_replaced": "200; it stays replaced",
        "test_uploads_are_listed_by_key_then_initiation": "the uploads of one key come by chance",
        "test_an_upload_of_a_key_that_xml_cannot_hold_is_listed": _REPLACED,
        "test_a_file_may_lie_below_the_name_of_another": "Complete answers 409 ObjectParentIsFile",
        "test_a_file_may_have_the_name_of_a_directory": "Complete answers 500 for ever",
        "test_a_name_may_have_256_bytes": "Complete answers 400",
        "test_an_aborted_upload_is_never_taken_for_completed": "200, if any object holds the key",
    },
    # keys are paths of directories
    "minio": {
        "test_keys_come_in_the_order_of_their_bytes": "a key is hidden where another is the"
        " directory that it lies in",
        "test_a_listing_tells_size_etag_and_time": _MILLISECONDS,
        "test_a_neighbour_is_not_listed": "a key is hidden where another is the directory that it"
        " lies in",
        "test_keys_keep_their_empty_elements": "an empty element is refused",
        "test_a_key_may_begin_with_a_slash": "the slash is dropped",
        "test_a_conditional_delete_takes_only_the_named_version": _IGNORED,
        "test_a_repeated_part_is_refused": "publishes it once",
        "test_a_wrong_length_is_refused": "ignores MpuObjectSize",
        "test_parts_are_copied_into_an_upload_with_a_checksum": "answers 400",
        "test_open_uploads_are_listed_until_they_end": _PREFIX,
        "test_a_neighbours_upload_is_not_listed": _PREFIX,
        "test_uploads_are_listed_by_key_then_initiation": _PREFIX,
        "test_uploads_of_all_kinds_of_keys": _PREFIX,
        "test_an_upload_of_a_key_that_xml_cannot_hold_is_listed": _PREFIX,
        "test_a_file_may_lie_below_the_name_of_another": "takes it; listings hide it",
        "test_a_file_may_have_the_name_of_a_directory": "takes it; listings hide what lies below",
        "test_a_name_may_have_256_bytes": "UploadPart answers 400",
    },
    "ceph": {
        "test_a_listing_tells_size_etag_and_time": _MILLISECONDS,
        "test_large_metadata_is_refused": "takes it",
        "test_if_match_swaps": "takes only an ETag without its quotes",
        "test_if_match_on_an_absent_key_is_not_found": "answers 412",
        "test_a_conditional_delete_takes_only_the_named_version": _IGNORED,
        "test_one_of_many_swappers_wins": "takes only an ETag without its quotes",
        "test_the_etag_is_that_of_the_parts": "Complete's reply tells no ETag; HEAD does",
        "test_a_part_is_copied_from_a_key_with_an_escape": "reads the escape: 404, or another key",
        "test_a_part_is_copied_from_that_version_only": _IGNORED,
        "test_parts_may_be_left_out": "refused: all parts that are stored must be named",
        "test_parts_out_of_order_are_refused": "takes them",
        "test_a_repeated_part_is_refused": "takes it",
        "test_a_wrong_length_is_refused": "ignores MpuObjectSize",
        "test_part_numbers_start_at_1": "takes 0",
        "test_part_numbers_end_at_10_000": "takes 10,001",
        "test_a_wrong_checksum_of_a_part_is_refused": _NO_CHECKSUMS,
        "test_a_wrong_checksum_of_the_whole_is_refused": _NO_CHECKSUMS,
        "test_a_wrong_checksum_in_the_list_of_parts_is_refused": _NO_CHECKSUMS,
        "test_a_second_complete_repeats_the_answer_or_finds_nothing": "200, without an ETag",
        "test_a_second_complete_does_not_bring_back_what_was_replaced": _IN_PROGRESS,
        "test_a_second_complete_does_not_bring_back_what_was_deleted": _IN_PROGRESS,
        "test_complete_if_none_match_never_overwrites": _IGNORED,
        "test_parts_of_an_upload_that_never_was_are_not_found": "404, but NoSuchKey",
        "test_completing_an_upload_that_never_was_is_not_found": _IN_PROGRESS,
        "test_an_upload_belongs_to_its_key": _IN_PROGRESS,
        "test_completing_an_aborted_upload_is_not_found": _IN_PROGRESS,
        "test_uploads_are_listed_by_key_then_initiation": "the uploads of one key come by chance",
    },
    # keys are paths of files
    "tree": {
        "test_uploads_are_listed_by_key_then_initiation": "unsorted",
        "test_keys_come_in_the_order_of_their_bytes": _FILE_OR_DIRECTORY,
        "test_a_neighbour_is_not_listed": _FILE_OR_DIRECTORY,
        "test_keys_keep_their_empty_elements": "an empty element is refused",
        "test_a_key_may_begin_with_a_slash": "it is refused",
        "test_etags_are_quoted_hashes_and_the_same_everywhere": _OWN_ETAGS,
        "test_the_etag_is_that_of_the_parts": _OWN_ETAGS,
        "test_a_part_of_a_file_has_the_etag_of_its_bytes": "a part's ETag is drawn",
        "test_last_modified_has_whole_seconds": _FRACTIONS,
        "test_one_of_many_swappers_wins": "the condition is a look, but for control objects",
        "test_a_small_part_that_is_not_the_last_is_refused": "takes it",
        "test_a_wrong_checksum_of_a_part_is_refused": _NO_SUMS,
        "test_a_wrong_checksum_of_the_whole_is_refused": _NO_SUMS,
    },
    # keys are paths of files without attributes
    "fsspec": {
        "test_a_key_may_begin_with_a_slash": "it is refused",
        "test_a_listing_tells_size_etag_and_time": _NO_METADATA,
        "test_a_neighbour_is_not_listed": _FILE_OR_DIRECTORY,
        "test_a_part_is_copied_from_a_key_with_an_escape": _COPIES_NOTHING,
        "test_a_part_is_copied_from_that_version_only": _COPIES_NOTHING,
        "test_a_part_of_a_file_has_the_etag_of_its_bytes": _TIME_ETAGS,
        "test_a_part_that_was_not_stored_is_refused": _ONE_PART,
        "test_a_put_replaces": _NO_METADATA,
        "test_a_repeated_part_is_refused": _ONE_PART,
        "test_a_right_checksum_of_the_whole_is_taken": _ONE_PART,
        "test_a_second_complete_does_not_bring_back_what_was_deleted": _ONE_PART,
        "test_a_second_complete_does_not_bring_back_what_was_replaced": _ONE_PART,
        "test_a_second_complete_repeats_the_answer_or_finds_nothing": _ONE_PART,
        "test_a_slice_beyond_its_file_is_refused": "answers IncompleteBody",
        "test_a_small_part_that_is_not_the_last_is_refused": _ONE_PART,
        "test_a_wrong_checksum_in_the_list_of_parts_is_refused": _ONE_PART,
        "test_a_wrong_checksum_of_a_part_is_refused": _ONE_PART,
        "test_a_wrong_checksum_of_the_whole_is_refused": _ONE_PART,
        "test_a_wrong_etag_is_refused": _ONE_PART,
        "test_a_wrong_length_is_refused": _ONE_PART,
        "test_aborting_a_completed_upload_leaves_the_object": _ONE_PART,
        "test_an_aborted_upload_is_gone": _ONE_PART,
        "test_an_aborted_upload_takes_no_part": _ONE_PART,
        "test_an_upload_belongs_to_its_key": _ONE_PART,
        "test_an_upload_is_invisible_until_it_is_completed": _ONE_PART,
        "test_complete_if_none_match_never_overwrites": _ONE_PART,
        "test_completing_an_aborted_upload_is_not_found": _ONE_PART,
        "test_completing_an_upload_that_never_was_is_not_found": _ONE_PART,
        "test_uploads_are_listed_by_key_then_initiation": "unsorted",
        "test_etags_are_quoted_hashes_and_the_same_everywhere": _TIME_ETAGS,
        "test_head_agrees_with_get": _NO_METADATA,
        "test_keys_come_in_the_order_of_their_bytes": _FILE_OR_DIRECTORY,
        "test_keys_keep_their_empty_elements": "an empty element is refused",
        "test_large_metadata_is_refused": _NO_METADATA,
        "test_last_modified_has_whole_seconds": _FRACTIONS,
        "test_metadata_goes_through_an_upload": _NO_METADATA,
        "test_metadata_names_come_back_in_lower_case": _NO_METADATA,
        "test_no_parts_are_refused": _ONE_PART,
        "test_parts_are_copied_from_an_object": _COPIES_NOTHING,
        "test_parts_are_copied_into_an_upload_with_a_checksum": _COPIES_NOTHING,
        "test_parts_are_listed_by_number": _ONE_PART,
        "test_parts_go_up_from_many_threads": _ONE_PART,
        "test_parts_may_be_left_out": _ONE_PART,
        "test_parts_out_of_order_are_refused": _ONE_PART,
        "test_sha_sums_of_parts_are_taken": _ONE_PART,
        "test_the_etag_is_that_of_the_parts": _TIME_ETAGS,
        "test_what_is_asked_at_once_is_answered_as_by_the_verbs": _NO_METADATA,
        "test_what_is_put_can_be_got": _NO_METADATA,
    },
}
"""Store: test: what the store does instead."""
DEVIATIONS["tree-control"] = {
    test: what
    for test, what in DEVIATIONS["tree"].items()
    if test != "test_one_of_many_swappers_wins"
}
DEVIATIONS["fsspec-control"] = {
    test: what
    for test, what in DEVIATIONS["fsspec"].items()
    if what != _NO_METADATA or test == "test_metadata_goes_through_an_upload"
}
DEVIATIONS["sftp"] = {
    **{test: what for test, what in DEVIATIONS["fsspec"].items() if what != _FRACTIONS},
    "test_a_conditional_delete_takes_only_the_named_version": "files of one second look the same",
    "test_one_of_many_swappers_wins": "the condition is a look, but for control objects",
    "test_uploads_are_listed_by_key_then_initiation": "those of one second come by chance",
}

BY_CHANCE = {
    ("sftp", "test_a_conditional_delete_takes_only_the_named_version"),
    ("sftp", "test_one_of_many_swappers_wins"),
    ("sftp", "test_uploads_are_listed_by_key_then_initiation"),
    ("fsspec", "test_one_of_many_swappers_wins"),
    ("moto", "test_one_of_many_creators_wins"),
    ("moto", "test_one_of_many_swappers_wins"),
    ("versitygw", "test_uploads_are_listed_by_key_then_initiation"),
    ("ceph", "test_uploads_are_listed_by_key_then_initiation"),
    ("tree", "test_one_of_many_swappers_wins"),
}
"""Deviations that do not show in every run: these tests may pass."""


TO_MEND: dict[tuple[str, str], str] = {}
"""What is our own fault, and will be mended: the point of the issue. Not for the docs."""


def deviation(store: str, test: str) -> str | None:
    """What the store is known to do instead of what the test claims; None if it keeps the rule."""
    return DEVIATIONS.get(store, {}).get(test) or TO_MEND.get((store, test))


def by_chance(store: str, test: str) -> bool:
    """Whether the store does so in some runs only."""
    return (store, test) in BY_CHANCE


def table() -> str:
    """The table in Markdown: a line for each rule that a store breaks, a column for each store."""
    rules = {test: "" for of_store in DEVIATIONS.values() for test in of_store}
    lines = [f"| rule | {' | '.join(STORES.values())} |", "|---" * (len(STORES) + 1) + "|"]
    for rule in sorted(rules):
        cells = [
            DEVIATIONS[store].get(rule, "") + (" *" if (store, rule) in BY_CHANCE else "")
            for store in STORES
        ]
        lines.append(f"| {rule_words(rule)} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "\\* Not in every run."])


def rule_words(test: str) -> str:
    """A test's name as the rule that it claims."""
    return test.removeprefix("test_").replace("_", " ").replace("10 000", "10,000")


def with_table(document: str) -> str:
    """The document with the table as it is now.

    Raises:
        ValueError: the document does not have the two lines that the table stands between.
    """
    found = re.subn(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}",
        lambda _: f"{BEGIN}\n\n{table()}\n\n{END}",
        document,
        flags=re.DOTALL,
    )
    if found[1] != 1:
        raise ValueError(f"{PAGE.name} has {found[1]} places for the table, not one")
    return found[0]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
