"""How every verb sends one request: patience, retries, deadline, and the translation of errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from magic_committer._patience import Kind, patience
from magic_committer._runtime import Clock
from magic_committer.errors import StoreError, Unanswered
from magic_committer.options import S3Options
from magic_committer.stores.s3.errors import SDK_ERRORS, let_go, translate
from magic_committer.stores.s3.retry import Attempts

R = TypeVar("R")

HURRIED_SECONDS = 0.7
"""How many seconds a store may be silent during the clean-up after Ctrl-C."""
CLEANING_SHARE = 0.25
"""The clean-up after a failure waits for this share of ``retry_seconds_max``: the store has had its
chance."""


def seconds_max(options: S3Options) -> float:
    """For how many seconds a request is tried now, and its phase accepts silence."""
    now = patience()
    kind = now.kind if now is not None else Kind.USUAL
    if kind is Kind.DECIDED:
        return options.decided_seconds_max
    if kind is Kind.CLEANING:
        return options.retry_seconds_max * CLEANING_SHARE
    if kind is Kind.HURRIED:
        return min(HURRIED_SECONDS, options.retry_seconds_max)
    return options.retry_seconds_max


def ask(
    options: S3Options,
    clock: Clock,
    endpoint: str,
    bucket: str,
    verb: str,
    key: str,
    send: Callable[[], R],
    *,
    conflict_final: bool = False,
) -> tuple[R, int]:
    """Send a request until it is answered.

    Args:
        options, clock, verb: the options, the clock and the port's verb.
        endpoint: the store's; one that has not answered yet in this process is given up sooner.
        bucket: the bucket; "" if the request is about the account.
        key: the key, or the prefix of a listing.
        send: sends the request once, by the SDK.
        conflict_final: as in `Attempts`.

    Returns:
        The reply, and how often the request was sent.

    Raises:
        StoreError: the meaning of the SDK's error.
        Unanswered: no answer came; or the phase had already waited long enough: then nothing was
            sent.
    """
    complete = verb == "complete_upload"
    seconds = seconds_max(options)
    request = f"{verb} s3://{bucket}/{key}" if bucket else verb
    attempts = Attempts(
        verb,
        request,
        clock,
        endpoint,
        attempts_max=options.retry_attempts_max,
        seconds_max=seconds,
        try_seconds_max=options.complete_seconds_max if complete else options.read_seconds_max,
        conflict_final=conflict_final,
    )
    if attempts.given_up:
        raise Unanswered(
            f"{request} was not sent: the store has not answered for"
            f" {seconds:g} s, or the work was interrupted",
            operation=verb,
            bucket=bucket,
            key=key,
            attempts=0,
            sent=False,
            hint="Nothing took effect: try again when the store answers",
        )
    before = sys.exception()
    try:
        return attempts.call(send), attempts.count
    except SDK_ERRORS as error:
        let_go(error, before=before)
        raise translate(
            error, verb, bucket, key, attempts=attempts.count, sent=attempts.sent
        ) from error
    except StoreError as error:  # from ``send``, which knows about one try only
        error.attempts = attempts.count
        raise
