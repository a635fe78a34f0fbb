"""The fake server as a process of its own, for benchmarks: there its work is not counted as the client's.

Knows the command line of `python -m personalink.testing`, and how to start and stop it.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from personalink.errors import ConfigError, PersonalinkError
from personalink.testing.server import FakeVLLM

_STOP = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, after one line on stdout: the URL. Returns the exit code."""
    options = vars(_parser().parse_args(arguments))
    options["labels"] = [label for label in options["labels"].split(",") if label]
    fixed = options.pop("answer")
    options["answer"] = None if fixed is None else lambda body: fixed
    options["token_details"] = not options.pop("no_token_details")
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        options["faults"] = dict(map(_fault, options["faults"]))
        if not 0 <= options["port"] <= 65535:
            raise ConfigError(f"--port is {options['port']}; it must be from 0 to 65535")
        with FakeVLLM(**options) as server:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            signal.sigwait(_STOP)
    except (PersonalinkError, OSError) as error:
        sys.stderr.write(f"personalink.testing: {error}\n")
        return getattr(error, "exit_code", 1)
    return 0


def _fault(text: str) -> tuple[int, str]:
    """The index of a request and what goes wrong with it, in words.

    Raises:
        ConfigError: there is no index.
    """
    index, equals, fault = text.partition("=")
    if not equals or not index.isdecimal():
        raise ConfigError(f"--fault {text!r} names no request; write its index, such as 3=503")
    return int(index), fault


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m personalink.testing", description="a vLLM-shaped fake server")
    add = parser.add_argument
    add("--port", type=int, default=0, help="0 finds a free one")
    add("--model", default="fake-7b", help="name of the model")
    add("--window", type=int, default=32768, help="context length in tokens")
    add("--latency", type=float, default=0.0, dest="latency_s", metavar="S", help="seconds that an answer takes")
    add("--max-num-seqs", type=int, default=None, metavar="N", help="requests that run at once")
    add("--kv-tokens", type=int, default=None, metavar="N", help="room of the prefix cache in tokens")
    add("--block", type=int, default=16, metavar="N", help="tokens of a cache block")
    add("--answer", default=None, metavar="TEXT", help="answer this to everything without a constraint")
    add("--labels", default="", metavar="A,B", help="what answers are drawn from")
    add(
        "--fault",
        action="append",
        default=[],
        dest="faults",
        metavar="I=FAULT",
        help="such as 3=503, 7=slow:2 or 9=die:3",
    )
    add("--no-token-details", action="store_true", help="do not tell cached tokens in replies")
    return parser


@contextlib.contextmanager
def fake_vllm_process(
    *, labels: Sequence[str] = (), faults: Mapping[int, str] | None = None, **options: Any
) -> Iterator[str]:
    """A fake server in a process of its own; its URL inside the `with`.

    Args:
        labels, faults: as for `FakeVLLM`, faults in words.
        options: the others of the command line by their long names: `answer`, `latency`, `kv_tokens`, `max_num_seqs`,
            `window`, `model`, `port`, `block`.

    Raises:
        PersonalinkError: it did not start; the message is its own.
    """
    command = [sys.executable, "-m", "personalink.testing", "--labels", ",".join(labels)]
    command += [f"--fault={index}={fault}" for index, fault in (faults or {}).items()]
    command += [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip() if process.stdout else ""
        if not url:
            raise PersonalinkError(f"the fake server did not start (exit code {process.wait(10)}); see its stderr")
        yield url
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout:
            process.stdout.close()
