"""Whether there may be open uploads that no listing shows. A listing of uploads is a hint on every
store (store.py); on some it is always empty (docs/stores.md)."""

from __future__ import annotations

from magic_committer._runtime import Runtime
from magic_committer.commit.probe import hides_uploads
from magic_committer.errors import StoreError
from magic_committer.maintenance.attribution import directory_of
from magic_committer.maintenance.uploads import Scope


def blind_spot(runtime: Runtime, scope: Scope) -> str:
    """Why uploads may be open under a scope although no listing shows them; "" if there is no
    reason. Ask this only if a listing does not prove the contrary (`Scope.shows_more_than_keys`).
    The first time in a process it creates two uploads in a job's directory there, lists them and
    aborts them: 9 requests. Repeatable.

    Raises:
        StoreError: it could not be found out. `PermissionDenied`: the caller may not create
            uploads.
    """
    try:
        how = hides_uploads(runtime, directory_of(scope.prefix))
    except StoreError as error:
        what = f"whether the store shows all open uploads under {scope.url} cannot be told"
        raise error.ending(what) from error
    if not how:
        return ""
    return (
        f"uploads may be open under {scope.url} that cannot be seen: the store {how}. Only a"
        " lifecycle rule takes them (magic-committer lifecycle ensure), or the store's own rule"
        " (MinIO: after 24 hours)"
    )
