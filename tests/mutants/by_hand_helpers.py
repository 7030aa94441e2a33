"""The mutants written by hand, of the helpers that complete a large job's files."""

from __future__ import annotations

from tests.mutants.handwork import Hand

PIECES, PUBLISH = "commit/pieces.py", "commit/publish.py"

HELPERS = (
    Hand(
        "helpers are believed", PUBLISH, "Publication._to_complete",
        (("if not self._helped:\n    return self._uploads()",
          "if not self._helped:\n    return self._uploads()\n"
          "for upload in self._uploads():\n    self._is_visible(upload)\nreturn iter(())"),),
        "I2: a helper says that all is done, and was killed half-way",
    ),
    Hand(
        "any name in a listing is ours", PIECES, "_listed",
        (("uuid_in_name(info.key) == job.uuid", "True"),),
        "I4: an earlier job's object of the same name and size is taken for the file",
    ),
    Hand(
        "whatever is at the key is the file", PIECES, "_looking",
        (("became(upload, info)", "True"),),
        "I4: the same, where the driver looks by a HEAD",
    ),
    Hand(
        "helpers for every job", PUBLISH, "Publication._let_help",
        (("self.plan.files < helpers.files_min", "False"),),
        "a job of three files starts a Spark job",
    ),
    Hand(
        "a helper's failure fails the commit", PUBLISH, "Publication._let_help",
        (("except Exception:", "except MagicError:"),),
        "I5: executors that cannot reach the store keep the driver from completing its job",
    ),
    Hand(
        "a helper without the job's condition", PIECES, "complete_piece",
        (("job.terms.mode in FAILING", "False"),),
        "I2: a helper of a job of mode fail replaces another's object",
    ),
    Hand(
        "the last piece is lost", PIECES, "cut",
        (("if slices:\n    pieces.append(Piece(tuple(slices)))", "pass"),),
        "the driver completes the last files one by one",
    ),
    Hand(
        "a listing without an end", PIECES, "_listed",
        (("left <= 0 or len(found) >= files", "len(found) >= files"),),
        "an append to ten million objects lists all of them",
    ),
)  # fmt: skip
