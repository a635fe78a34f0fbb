"""What a request costs the client: bare aiohttp, `EndpointLM`, and our whole path, side by side in one run.

    python scripts/bench_client.py                       # CPU and wall clock, about four minutes
    python scripts/bench_client.py --requests 500 --rounds 1 --pairs 1 --json client.json

The server is `personalink.testing.FakeVLLM` in a process of its own, with a fixed latency. All three paths send
the same bodies (news prompts of some 230 tokens, no two alike) and parse every reply. Each round runs the paths one
after the other; CPU is the client process' own (user and system), a figure is the median over rounds, a ratio the
median of the rounds' ratios. The whole path is gateway, journal on disk, ledger, endpoint and transport.

Bare aiohttp encodes the body, posts it, reads and parses the reply, and nothing else: no retry, no key, no record.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp

from personalink.data import load_sample
from personalink.lm import Decoding, EndpointLM, Message, Request
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill
from personalink.tasks import task as named_task
from personalink.testing import fake_vllm_process

BARE, ENDPOINT, WHOLE = "bare aiohttp", "EndpointLM", "EndpointLM + Gateway + Journal"
Ask = Callable[[Request], Awaitable[Any]]


@dataclass(frozen=True)
class Run:
    """One path over the whole list: milliseconds of client CPU a request, and seconds of wall clock."""

    path: str
    cpu_ms: float
    wall_s: float


def prompts(n: int) -> list[Request]:
    """`n` different requests: an item of a news author behind four others of the same author."""
    task = named_task("lamp2")
    found: dict[str, Request] = {}
    for user in load_sample("news").users:
        for place, item in enumerate(user.history):
            around = [user.history[(place + k) % len(user.history)] for k in range(1, 5)]
            context = "\n\n".join(task.demonstration(other.input, other.label) for other in around)
            for part in range(8):  # the same behind fewer characters of context, so that there are enough
                text = f"{context[part * 40 :]}\n\n{task.question(item.input)}"
                messages = (Message("system", task.system()), Message("user", text))
                found.setdefault(text, Request(messages, Decoding(task.max_tokens)))
    if len(found) < n:
        sys.exit(f"bench_client: the sample gives {len(found)} prompts and not {n}")
    step = len(found) // n
    return list(islice(found.values(), 0, n * step, step))


async def send(requests: Iterable[Request], ask: Ask, askers: int) -> None:
    """Every request once, by so many askers that each wait for their answer."""
    waiting = iter(requests)

    async def asker() -> None:
        for request in waiting:
            await ask(request)

    await asyncio.gather(*(asker() for _ in range(askers)))


async def open_path(path: str, url: str, concurrency: int, stack: AsyncExitStack) -> Ask:
    """How one request is asked on a path; what it opens is closed with `stack`."""
    lm = EndpointLM(url, concurrency=concurrency)
    await lm.start()
    stack.push_async_callback(lm.aclose)
    if path == ENDPOINT:
        return lm.complete
    if path == WHOLE:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        gateway = Gateway(lm, stack.enter_context(Journal(Path(folder) / "log" / "journal")))
        bill = Bill("user", "answer", row="rag_4")
        return lambda request: gateway.complete(request, bill)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar())
    await stack.enter_async_context(session)
    chat, headers = f"{lm.api_url}/chat/completions", {"Content-Type": "application/json"}

    async def bare(request: Request) -> Any:
        payload = json.dumps(lm.chat_body(request)[0]).encode()
        async with session.post(chat, data=payload, headers=headers) as response:
            return json.loads(await response.read())["choices"][0]["message"]["content"]

    return bare


async def measure(path: str, url: str, requests: list[Request], warm: list[Request], concurrency: int) -> Run:
    """One path over the list, after a warm-up that opens its connections."""
    async with AsyncExitStack() as stack:
        ask = await open_path(path, url, concurrency, stack)
        await send(warm[:concurrency], ask, concurrency)
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        await send(requests, ask, concurrency)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Run(path, 1000 * cpu / len(requests), wall)


def rounds(url: str, requests: list[Request], warm: list[Request], concurrency: int, n: int) -> list[list[Run]]:
    """`n` rounds of all paths, each in the opposite order of the last."""
    made = []
    for i in range(n):
        order = (BARE, ENDPOINT, WHOLE)[:: -1 if i % 2 else 1]
        runs = [asyncio.run(measure(path, url, requests, warm, concurrency)) for path in order]
        made.append(sorted(runs, key=lambda run: (BARE, ENDPOINT, WHOLE).index(run.path)))
    return made


def pairs(url: str, requests: list[Request], warm: list[Request], concurrency: int, n: int) -> list[tuple[Run, Run]]:
    """`n` alternating pairs of bare aiohttp and the whole path."""
    made = []
    for i in range(n):
        order = (BARE, WHOLE)[:: -1 if i % 2 else 1]
        runs = {path: asyncio.run(measure(path, url, requests, warm, concurrency)) for path in order}
        made.append((runs[BARE], runs[WHOLE]))
    return made


def cpu_lines(concurrency: int, made: list[list[Run]]) -> list[str]:
    """The table's rows of one concurrency."""
    lines = []
    for place, path in enumerate((BARE, ENDPOINT, WHOLE)):
        costs = [runs[place].cpu_ms for runs in made]
        ratio = statistics.median(runs[place].cpu_ms / runs[0].cpu_ms for runs in made)
        wall = statistics.median(runs[place].wall_s for runs in made)
        spread = f"{min(costs):.2f}–{max(costs):.2f}"
        lines.append(
            f"| {path} | {concurrency} | {statistics.median(costs):.3f} | {spread} | {ratio:.2f} | {wall:.2f} |"
        )
    return lines


def wall_line(latency: float, concurrency: int, made: list[tuple[Run, Run]]) -> str:
    """One row of the wall-clock table."""
    bare, whole = (statistics.median(pair[k].wall_s for pair in made) for k in (0, 1))
    ratios = sorted(pair[1].wall_s / pair[0].wall_s for pair in made)
    spread = f"{ratios[0]:.3f}–{ratios[-1]:.3f}"
    median = statistics.median(ratios)
    return f"| {1000 * latency:g} | {concurrency} | {bare:.2f} | {whole:.2f} | {median:.3f} | {spread} |"


def at_least_one(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=at_least_one, default=4000)
    parser.add_argument("--concurrency", type=at_least_one, nargs="+", default=[64, 512])
    parser.add_argument("--latency", type=float, default=0.02, help="seconds, for the CPU table")
    parser.add_argument("--wall-latency", type=float, nargs="+", default=[0.02, 0.1], help="seconds")
    parser.add_argument("--rounds", type=int, default=3, help="of the CPU table; 0 leaves it out")
    parser.add_argument("--pairs", type=int, default=5, help="of wall clock, at the first concurrency; 0 leaves it out")
    parser.add_argument("--json", type=Path, default=None, help="write every run there")
    args = parser.parse_args()
    every = prompts(args.requests + max(args.concurrency))
    requests, warm = every[: args.requests], every[args.requests :]
    record: dict[str, Any] = {"arguments": {k: str(v) for k, v in vars(args).items()}, "cpu": {}, "wall": {}}
    record["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "aiohttp": aiohttp.__version__}
    if args.rounds:
        told = f"{args.requests} requests, latency {1000 * args.latency:g} ms, {args.rounds} rounds"
        print(f"Client CPU a request: {told}\n\n| path | in flight | CPU ms | range | × bare | wall s |")
        print("|---|---|---|---|---|---|", flush=True)
    with fake_vllm_process(answer="politics", latency=args.latency) as url:
        for concurrency in args.concurrency if args.rounds else ():
            made = rounds(url, requests, warm, concurrency, args.rounds)
            record["cpu"][concurrency] = [[asdict(run) for run in runs] for runs in made]
            print("\n".join(cpu_lines(concurrency, made)), flush=True)
    if args.pairs:
        print(f"\nWall clock of the whole path beside bare aiohttp, {args.pairs} alternating pairs")
        print("\n| latency ms | in flight | bare s | ours s | ratio | range |\n|---|---|---|---|---|---|")
    for latency in args.wall_latency if args.pairs else ():
        with fake_vllm_process(answer="politics", latency=latency) as url:
            compared = pairs(url, requests, warm, args.concurrency[0], args.pairs)
            record["wall"][latency] = [[asdict(run) for run in pair] for pair in compared]
            print(wall_line(latency, args.concurrency[0], compared), flush=True)
    if args.json:
        args.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
