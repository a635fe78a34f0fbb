"""What can go wrong with one request of the fake server, scripted by its index.

Knows HTTP; knows no tokens and no answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from aiohttp import web

from personalink.errors import ConfigError

Kind = Literal["status", "reset", "hang", "half", "html", "empty", "truncated", "slow", "die"]
_HTML = "<html><head><title>Gateway</title></head><body>One moment, please.</body></html>"
_KINDS = ("an HTTP status such as 503", *get_args(Kind)[1:])


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    `kind`: "status" (answer `code`), "reset" (cut the connection), "hang" (answer nothing until the server stops),
    "half" (promise more bytes than are sent), "html" (200 with a web page), "empty" (200 with an empty answer),
    "truncated" (200 with half of the answer and finish_reason "length"), "slow" (answer `seconds` later), "die" (the
    server stops at this request: all that runs is broken off, and nobody listens any more).

    `seconds` is Retry-After for a status (None sends none), the delay for "slow", and for "die" after how long the
    server is back (None: never), which then serves `model` ("": the same).
    """

    kind: Kind
    code: int = 0
    seconds: float | None = None
    model: str = ""

    @classmethod
    def parse(cls, text: str) -> Fault:
        """A fault in words: "503", "429:2" (Retry-After: 2), "slow:0.5", "die:3" (back after three seconds), or just a
        kind, such as "reset".

        Raises:
            ConfigError: it is none of these.
        """
        name, _, number = text.partition(":")
        try:
            seconds = float(number) if number else None
            if name.isdigit() and 400 <= int(name) <= 599:
                return cls("status", int(name), seconds)
        except ValueError:
            raise ConfigError(f"fault {text!r}: {number!r} is no number of seconds") from None
        timed = name == "slow" or (name == "die" and seconds is not None)
        if name not in get_args(Kind)[1:] or (seconds is not None) != timed:
            raise ConfigError(f"fault {text!r} is none of {', '.join(_KINDS)}; slow needs seconds, such as slow:0.5")
        return cls(name, seconds=seconds)  # type: ignore[arg-type]


def status_reply(code: int, message: str, headers: dict[str, str] | None = None, kind: str = "") -> web.Response:
    """An error as vLLM words it."""
    kind = kind or ("BadRequestError" if code == 400 else "NotFoundError" if code == 404 else "InternalServerError")
    error = {"message": message, "type": kind, "param": None, "code": code}
    return web.json_response({"error": error}, status=code, headers=headers)


def fault_reply(fault: Fault) -> web.Response:
    """What a fault answers of itself: the kinds "status" and "html"."""
    if fault.kind == "html":
        return web.Response(text=_HTML, content_type="text/html")
    headers = None if fault.seconds is None else {"Retry-After": f"{fault.seconds:g}"}
    return status_reply(fault.code, "a scripted fault", headers)


def cut(request: web.BaseRequest) -> web.Response:
    """Reset the connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def half_reply(request: web.BaseRequest) -> web.StreamResponse:
    """Promise 500 bytes, send a few and hang up."""
    response = web.StreamResponse(headers={"Content-Length": "500", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"choices": [{"mess')
    if request.transport is not None:
        request.transport.close()
    return response
