"""Stored plans: written before the decision, read back, and checked against the job that names
them."""

from __future__ import annotations

import logging

from magic_committer._runtime import Runtime
from magic_committer.errors import FormatError, StoreError
from magic_committer.protocol.plan import PLAN_BYTES_MAX, Plan, check_plan
from magic_committer.protocol.record import JOB_METADATA, ObjectRef, StartedJob
from magic_committer.stores.base import same_etag

logger = logging.getLogger("magic_committer")


def store_plan(runtime: Runtime, job: StartedJob, plan: Plan) -> ObjectRef:
    """Store a plan at a key of its own. One PUT."""
    key = job.paths.plan(plan.nonce)
    body = plan.encode()
    written = runtime.store.put(key, body, metadata={JOB_METADATA: job.uuid})
    return ObjectRef(key, written.etag)


def drop_plan(runtime: Runtime, job: StartedJob, key: str) -> None:
    """Delete a plan by which nobody decides; "" means: no plan. If it stays, it is litter that the
    sweep may delete."""
    if not key:
        return
    try:
        runtime.store.delete_one(key)
    except StoreError as error:
        logger.warning("job %s: %s could not be deleted: %s", job.id, key, error)


def load_plan(runtime: Runtime, job: StartedJob, ref: ObjectRef) -> Plan:
    """Read the plan that a job's record names, and check it against the job. One GET. NotFound:
    another process has finished the job: read the record again."""
    stored = runtime.store.get(ref.key, max_bytes=PLAN_BYTES_MAX)
    if not same_etag(stored.info.etag, ref.etag):
        raise FormatError(ref.key, "", "is not the version that the job's record names")
    plan = Plan.decode(stored.body, ref.key)
    check_plan(plan, job, ref.key)
    return plan
