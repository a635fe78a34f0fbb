"""A request, a client of the double with short waits, and a URL where nobody listens."""

from __future__ import annotations

import socket
from typing import Any

from personalink.lm import Decoding, EndpointLM, Message, Request

from .double import Double, Fault

KEY = "sk-secret-4711-do-not-show"


def ask(text: str = "hi", **more: Any) -> Request:
    return Request((Message("system", "Answer."), Message("user", text)), Decoding(max_tokens=16), **more)


def client(double: Double, **options: Any) -> EndpointLM:
    return EndpointLM(double.url, **{"backoff_s": 0.001, "timeout_s": 5.0, **options})


async def one(fault: Fault, **options: Any) -> Any:
    """The completion of a request whose every attempt meets `fault`."""
    with Double(faults=dict.fromkeys(range(9), fault)) as double:
        lm = client(double, **{"retries": 1, **options})
        try:
            return await lm.complete(ask())
        finally:
            await lm.aclose()


def dead_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
