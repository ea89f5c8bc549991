"""Jobs as the wire has them, for tests."""

from __future__ import annotations

from typing import Any

from sysjobs.answers import JobDetails, JobView


def job(**fields: object) -> dict[str, Any]:
    defaults: dict[str, object] = {
        "id": 42,
        "name": "train",
        "user": "alice",
        "uid": 1000,
        "status": "PENDING",
        "attempt": 1,
        "submitted_at": 1_700_000_000_000_000,
        "cpus": 0.5,
        "unit": "sysjobs-42.service",
        "log": "/var/log/sysjobs/alice/42.log",
    }
    return defaults | fields


def view(**fields: object) -> JobView:
    return JobView.from_wire(job(**fields))


def details(fields: dict[str, object] | None = None, **more: object) -> JobDetails:
    return JobDetails.from_wire({"job": job(**(fields or {})), "grace": 30.0} | more)
