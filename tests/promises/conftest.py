"""Each kind of destination, the store in memory behind the public calls, and its machine.

What is promised on S3 holds on a directory: the tests of the modules in `ON_TREES` that take `s3`
or `fresh` run on both, and those of `BY_RENAMES` once more with ``committer="manifest"`` there.
What a test says of S3 alone has a reason in `S3_ALONE`.
"""

from __future__ import annotations

import pytest

from tests.destinations import disk, there
from tests.in_memory import buried, clock, fresh, kind, machine, s3

__all__ = ["buried", "clock", "disk", "fresh", "kind", "machine", "s3", "there"]

_ON_TREES = """
    beside cleanup decision exist_ok fence giving_up inspect late_aborts record_swaps recovery
    results signs_of_life streams two_handles uploads_state visibility
"""
ON_TREES = frozenset(f"test_{name}" for name in _ON_TREES.split())
BY_RENAMES = frozenset(("test_recovery", "test_streams"))

_CONTENT = "the ETag of S3 is the content's; a file that was written again is another one"
_ADDED = "Hadoop's magic jobs are on S3"
S3_ALONE = {
    "test_a_half_completed_append_keeps_its_files": _CONTENT,
    "test_a_job_of_results_needs_no_metadata_of_a_set": _CONTENT,
    "test_a_replace_below_that_is_decided_is_in_the_way": "a tree has no empty element",
    "test_litter_goes_by_its_token_with_the_uploads_that_it_names": "opens an upload again",
    "test_a_record_that_is_there_again_keeps_its_jobs_objects": "a disk's uploads show their job",
    "test_an_encrypted_part_that_changed_its_etag_still_completes": "encryption",
    "test_what_an_adopted_job_of_hadoop_left_is_not_told": _ADDED,
    "test_of_one_second_the_uuids_tell": "a tree's times are finer: none of them are the same",
}
NOT_BY_RENAMES = {
    "test_an_unresolved_key_is_named_and_taken_only_on_the_operators_word": "its keys are shorter",
    "test_batches_follow_each_other": "names the destination",
    "test_a_copied_checkpoint_is_refused_and_skips_no_rows": "names a key",
    "test_a_ledger_that_cannot_be_written_leaves_the_job_unfinished": "names a key",
    "test_an_operator_may_take_a_broken_ledger_as_it_is": "names a key",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The stores of a test that takes `s3`."""
    module, name = metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__
    if "kind" not in metafunc.fixturenames:
        return
    if module not in ON_TREES or name in S3_ALONE:
        return
    kinds = ["s3", "tree"]
    if module in BY_RENAMES and name not in NOT_BY_RENAMES:
        kinds.append("manifest")
    metafunc.parametrize("kind", kinds, indirect=True)
