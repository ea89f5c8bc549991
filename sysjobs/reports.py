"""Calls that sum up what jobs had and used: of each user, name or day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sysjobs.errors import Refused
from sysjobs.ports import storage_unreadable
from sysjobs.protocol import Call, Params
from sysjobs.server import Exchange, News
from sysjobs.store import Store
from sysjobs.store.sums import Sums

AT_ONCE = 5000
"""Records that are read before others are served again."""

KEYS = ("user", "name", "day")
MAX_ROWS = 100_000
MAX_MOMENT = 2**62


@dataclass(slots=True)
class Reports:
    store: Store

    def table(self) -> dict[str, Callable[[Exchange, Call], None]]:
        return {"io.sysjobs.Report": self.report}

    def report(self, exchange: Exchange, call: Call) -> None:
        params = Params(call.parameters, frozenset(("by", "since", "until", "all_users")))
        by = params.text("by") or "user"
        if by not in KEYS:
            raise Refused(f"There is no report by {by!r:.80}.", f"Give {', '.join(KEYS)}.", code="bad-key")
        since, until = _moment(params, "since") or 0, _moment(params, "until")
        uid = None if params.flag("all_users") else exchange.peer.uid
        last = self.store.last_id()
        found: dict[str, Sums] = {}
        first = 1

        def news() -> News:
            nonlocal first
            if first > last:
                rows = [{by: key, **sums.view()} for key, sums in sorted(found.items())]
                return {"rows": rows}, True
            try:
                part = self.store.sums(by, range(first, first + AT_ONCE), since, until, uid)
            except Store.failure as error:
                raise storage_unreadable(error) from None
            for key, sums in part:
                found[key] = found[key].plus(sums) if key in found else sums
            if len(found) > MAX_ROWS:
                raise Refused(
                    f"There are more than {MAX_ROWS:,} lines.",
                    "Give --since, or another --by.",
                    code="too-many",
                )
            first += AT_ONCE
            exchange.pump()
            return None, False

        exchange.follow(news)


def _moment(params: Params, name: str) -> int | None:
    moment = params.integer(name)
    if moment is not None and not 0 <= moment <= MAX_MOMENT:
        raise Refused(
            f"{name} is {moment}, which no job can have ended at.",
            "Give microseconds since 1970.",
            code="bad-moment",
        )
    return moment
