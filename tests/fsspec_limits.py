"""Which of fsspec's own tests a file system of a job cannot pass, and why: one table, which
tests/unit/test_fsspec_abstract.py holds.

A file system of a job writes uploads. What was written is read from the bytes that were kept
(``keep_bytes_max``); a large file, and every file where nothing is kept, cannot be read before the
commit. So the suite is run twice: with the default all of it must pass; with ``keep_bytes_max=0``
the tests below must fail, with `NotYetAnObject` and nothing else, and all others must pass.
"""

from __future__ import annotations

_COPY = "a copy reads its source: S3 copies objects, and an upload is none"
_GET = "a download reads what was uploaded"
_READ_BACK = "the test reads back what it has written"

CANNOT = {
    "test_copy_directory_to_existing_directory": _COPY,
    "test_copy_directory_to_new_directory": _COPY,
    "test_copy_directory_without_files_with_same_name_prefix": _COPY,
    "test_copy_file_to_existing_directory": _COPY,
    "test_copy_file_to_file_in_existing_directory": _COPY,
    "test_copy_file_to_file_in_new_directory": _COPY,
    "test_copy_file_to_new_directory": _COPY,
    "test_copy_glob_edge_cases": _COPY,
    "test_copy_glob_to_existing_directory": _COPY,
    "test_copy_glob_to_new_directory": _COPY,
    "test_copy_list_of_files_to_existing_directory": _COPY,
    "test_copy_list_of_files_to_new_directory": _COPY,
    "test_copy_two_files_new_directory": _COPY,
    "AbstractCopyTests.test_copy_with_source_and_destination_as_list": _COPY,
    "test_get_directory_recursive": _GET,
    "test_get_directory_to_existing_directory": _GET,
    "test_get_directory_to_new_directory": _GET,
    "test_get_directory_without_files_with_same_name_prefix": _GET,
    "test_get_file_to_existing_directory": _GET,
    "test_get_file_to_file_in_existing_directory": _GET,
    "test_get_file_to_file_in_new_directory": _GET,
    "test_get_file_to_new_directory": _GET,
    "test_get_glob_edge_cases": _GET,
    "test_get_glob_to_existing_directory": _GET,
    "test_get_glob_to_new_directory": _GET,
    "test_get_list_of_files_to_existing_directory": _GET,
    "test_get_list_of_files_to_new_directory": _GET,
    "test_get_with_source_and_destination_as_list": _GET,
    "AbstractPutTests.test_copy_with_source_and_destination_as_list": _READ_BACK,
    "test_open_exclusive": _READ_BACK,
    "test_pipe_exclusive": _READ_BACK,
}
"""A test of fsspec's, with its class where two have one name: why it fails if nothing was kept."""

MATCH_NO_FILE = {"**/subdir0", "**/subdir0/nested*", "subdir[1-2]", "subdir[0-1]"}
"""Globs of the tests' edge cases that mean directories only. Without ``recursive`` they copy and
download nothing, so that these cases pass."""


def limit(suite: str, test: str, case: dict[str, object]) -> str | None:
    """Why a test fails on a file system that has kept nothing; None: it passes.

    Args:
        suite: the name of fsspec's class.
        test: the name of the function.
        case: its parameters.
    """
    if case.get("path") in MATCH_NO_FILE and not case.get("recursive"):
        return None
    return CANNOT.get(f"{suite}.{test}") or CANNOT.get(test)
