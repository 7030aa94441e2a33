"""Listings are whole on every kind of store, and a refusal is told from absence by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magic_committer.errors import InvalidRequest, NotFound, PermissionDenied
from magic_committer.stores.base import UploadInfo
from magic_committer.stores.s3 import S3Store
from tests.servers import DATE_SECONDS, Asked, Reply, document, error
from tests.transport.lab import DATED, LISTED, TRUNCATED, Lab, ask, upload_rows


def uploads(*entries: tuple[str, str], more: bool = False) -> Reply:
    """A page of uploads; ``more``: it is not the last one."""
    following = TRUNCATED + (
        "<NextKeyMarker>{}</NextKeyMarker><NextUploadIdMarker>{}</NextUploadIdMarker>"
    ).format(*entries[-1] if entries else ("", ""))
    rows = upload_rows(*entries)
    return document("ListMultipartUploads", f"{following if more else ''}{rows}")


def pager(held: list[tuple[str, str]], *, both: bool, inclusive: bool) -> Callable[[Asked], Reply]:
    """A server's listing of uploads, three on a page."""

    def script(asked: Asked) -> Reply:
        key, upload_id = asked.query.get("key-marker", ""), asked.query.get("upload-id-marker", "")
        if key and upload_id and not both:
            return error(400, "InvalidArgument")
        if upload_id:
            rest = [one for one in held if one > (key, upload_id)]
        else:
            rest = [one for one in held if one[0] > key or (inclusive and one[0] == key)]
        return uploads(*rest[:3], more=len(rest) > 3)

    return script


def listed(store: S3Store, prefix: str = "") -> list[tuple[str, str]]:
    """Keys and ids of all that a listing gives."""
    pages = list(store.list_uploads(prefix))
    assert {page.seen_at for page in pages} == {DATE_SECONDS}
    return [(one.key, one.upload_id) for page in pages for one in page.uploads]


HELD = [("a", "1"), ("b", "1"), ("b", "2"), ("c", "1"), ("d", "1"), ("d", "2"), ("e", "1")]


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("inclusive", [True, False])
def test_uploads_are_paged_on_every_kind_of_store(lab: Lab, both: bool, inclusive: bool) -> None:
    """All uploads are listed once, in order, also where both markers together are refused
    (versitygw) and where the key marker is inclusive (RGW)."""
    lab.script(pager(HELD, both=both, inclusive=inclusive))
    assert listed(lab.store) == HELD
    assert both or sum(len(asked.query) > 3 for asked in lab.asked) == 1


def test_the_way_round_is_taken_after_a_refusal_only(lab: Lab) -> None:
    """A first page that is refused is refused; the way round needs a page before."""
    lab.said(error(400, "InvalidArgument"))
    with pytest.raises(InvalidRequest):
        listed(lab.store)
    assert len(lab.asked) == 1


def test_a_page_of_one_key_does_not_hold_up_the_rest(lab: Lab) -> None:
    """Where a key has more uploads than a page on such a store, the listing goes on behind it:
    a sweep that aborts and lists again finds the others."""
    held = [("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("b", "1"), ("c", "1")]
    lab.script(pager(held, both=False, inclusive=False))
    assert listed(lab.store) == [one for one in held if one != ("a", "4")]


def test_what_lies_outside_the_prefix_is_never_given(lab: Lab) -> None:
    """A store that ignores the prefix (nanio) does not make us touch other keys; ``Initiated`` and
    owner may be missing (SeaweedFS)."""
    row = "<Upload><Key>{}</Key><UploadId>2</UploadId></Upload>".format
    lab.said(document("ListMultipartUploads", row("other") + row("p/k")))
    (page,) = lab.store.list_uploads("p/")
    assert page.uploads == (UploadInfo("p/k", "2"),)
    rows = [f"<Contents>{LISTED.replace('>k<', f'>{key}<')}</Contents>" for key in ("other", "p/k")]
    rows += [f"<CommonPrefixes><Prefix>{p}</Prefix></CommonPrefixes>" for p in ("o/", "p/d/")]
    lab.said(document("ListObjects", "".join(rows)))
    (objects,) = lab.store.list("p/", delimiter="/")
    assert [one.key for one in objects.objects] == ["p/k"]
    assert objects.prefixes == ("p/d/",)


@pytest.mark.parametrize("verb", ["get", "head"])
@pytest.mark.parametrize("found", ["", "k", "k-longer", "denied", "come"])
def test_a_refusal_of_what_a_listing_does_not_show_means_that_nothing_is_there(
    lab: Lab, verb: str, found: str
) -> None:
    """AWS answers 403 for a missing key to who may not list by that very request: a listing of the
    key tells. If it shows the key, that is looked at once more, for it may have come meanwhile; a
    refusal then, or of the listing, stands."""
    key = "k" if found == "come" else found
    entry = f"<Contents>{LISTED.replace('>k<', f'>{key}<')}</Contents>"
    listing = document("ListObjects", entry if found else "")
    refused, there = error(403, "AccessDenied"), Reply(body=b"x", headers=DATED)
    last = {"k": [refused], "come": [there]}.get(found, [])
    lab.said(refused, refused if found == "denied" else listing, *last)
    if found == "come":
        ask(lab.store, verb)
    else:
        cls = PermissionDenied if found in ("k", "denied") else NotFound
        with pytest.raises(cls) as told:
            ask(lab.store, verb)
        assert (told.value.status, told.value.operation) == (403, verb)
    assert len(lab.asked) == 2 + len(last)
    assert lab.asked[1].query["prefix"] == "k"
