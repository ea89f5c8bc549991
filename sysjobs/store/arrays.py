"""Arrays in the database: what is fixed of them, and how far their tasks are, as JSON."""

from __future__ import annotations

import json
from typing import Any

from sysjobs.conditions import Hold
from sysjobs.indices import Indices, Places, parse_indices
from sysjobs.jobs import Array, Cancellation, Status
from sysjobs.sweep import Param, dump_params, load_params


def dump_spec(array: Array) -> str:
    spec = {"indices": str(array.indices), "params": dump_params(array.params)}
    return json.dumps({key: value for key, value in spec.items() if value is not None})


def dump_state(array: Array) -> str:
    state = {
        "waiting": array.waiting.dump(),
        "limit": array.limit,
        "held": [[places.dump(), hold.uid, hold.user] for places, hold in array.held],
        "cancelled": [
            [places.dump(), each.uid, each.user, each.reason, each.at, each.grace]
            for places, each in array.cancelled
        ],
        "ended": dict(array.ended),
    }
    return json.dumps({key: value for key, value in state.items() if value or key == "waiting"})


def load_spec(text: str) -> tuple[Indices, tuple[Param, ...]]:
    """As `dump_spec` wrote it. Raises ValueError for what it didn't write."""
    try:
        spec = json.loads(text)
        indices = parse_indices(spec["indices"])
        params = load_params(spec.get("params"))
    except (TypeError, KeyError, AttributeError, RecursionError):
        indices, params = None, ()
    if indices is None:
        raise ValueError(f"its tasks are {text:.80}")
    return indices, params


def load_array(spec: str | None, state: str | None) -> Array | None:
    """Raises ValueError."""
    if spec is None or state is None:
        return None
    indices, params = load_spec(spec)
    try:
        return _array(indices, params, json.loads(state))
    except (TypeError, KeyError, AttributeError, RecursionError, ValueError):
        raise ValueError(f"how far its tasks are is {state:.80}") from None


def _array(indices: Indices, params: tuple[Param, ...], state: dict[str, Any]) -> Array:
    limit = state.get("limit")
    array = Array(
        indices=indices,
        params=params,
        waiting=Places.load(state["waiting"]),
        limit=limit,
        held=tuple((Places.load(text), Hold(uid, user)) for text, uid, user in state.get("held", ())),
        cancelled=tuple((Places.load(text), Cancellation(*how)) for text, *how in state.get("cancelled", ())),
        ended=tuple((Status(status), count) for status, count in state.get("ended", {}).items()),
    )
    within = array.indices.all
    known = array.unstarted
    for places, _ in array.cancelled:
        known |= places
    numbers = [count for _, count in array.ended] + ([] if limit is None else [limit])
    if known - within or array.live < 0 or not all(type(number) is int and number > 0 for number in numbers):
        raise ValueError(state)
    return array
