"""Which failed attempts are worth another, and when: one table.

Knows HTTP's status codes; knows no socket, no clock and no server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Literal

Kind = Literal["answered", "unconnected", "lost", "late", "limited", "busy", "broken", "malformed", "final"]
LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Rule:
    """What follows from one kind of failure.

    Attributes:
        again: another attempt may help.
        at_once: after the first attempt without a wait; otherwise Retry-After says how long, or the backoff.
        slower: the server has too much to do, so fewer requests are sent at once from now on.
        doubt: so many failures in a row, with no answer between them, and it is asked whether the server is still
            there, before anything else is sent; 0 for never, since only slow is not gone.
    """

    again: bool
    at_once: bool = False
    slower: bool = False
    doubt: int = 0


RULES: Mapping[Kind, Rule] = {
    "unconnected": Rule(again=True, doubt=1),  # refused, or not accepted in connect_timeout_s: nothing was sent
    "lost": Rule(again=True, at_once=True, doubt=2),  # reset, or a kept connection that the server had closed
    "late": Rule(again=True),  # no answer in timeout_s
    "limited": Rule(again=True, slower=True),  # 429
    "busy": Rule(again=True, slower=True, doubt=2),  # 503
    "broken": Rule(again=True, doubt=2),  # 500, 502, 504
    "malformed": Rule(again=True),  # 200 and no reply: half a JSON, a proxy's page
    "final": Rule(again=False),  # 3xx, 400, 401, 403, 404, 413, 422, 501, …
}
_STATUS: Mapping[int, Kind] = {429: "limited", 503: "busy", 500: "broken", 502: "broken", 504: "broken"}


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP exchange. `status` 0: no answer came; then `fault` says why and `without` is its kind."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    without: Kind = "final"

    @property
    def kind(self) -> Kind:
        """What came; whether an answer (2xx) is well formed is for its reader to say."""
        if self.status == 0:
            return self.without
        return "answered" if 200 <= self.status < 300 else _STATUS.get(self.status, "final")

    @property
    def sent(self) -> bool:
        """Whether the request reached a connection."""
        return self.status > 0 or self.without in ("lost", "late")


@dataclass(slots=True)
class Tries:
    """What one request has come to so far: its attempts, and by the loop's clock when it must be answered."""

    attempts: int = 0
    ends_at: float | None = None

    @property
    def retries(self) -> int:
        """Attempts after the first."""
        return max(0, self.attempts - 1)


def wait_s(rule: Rule, attempt: int, headers: Mapping[str, str], backoff_s: float) -> float:
    """Seconds before the attempt after the `attempt`-th (from 0): none, what Retry-After says, or `backoff_s` · 4ᵏ;
    60 at most."""
    if rule.at_once and attempt == 0:
        return 0.0
    told = _retry_after(headers)
    return min(backoff_s * 4.0 ** min(attempt, 99) if told is None else told, LONGEST_WAIT_S)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After (RFC 9110, 10.2.3), a number or a date, which counts from the server's own Date; None
    where there is none that can be read."""
    told = headers.get("Retry-After", "")
    try:
        seconds = float(told)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(told) - parsedate_to_datetime(headers.get("Date", ""))).total_seconds()
        except (ValueError, TypeError):  # TypeError: one of the two names no time zone
            return None
    return seconds if seconds >= 0 else None
