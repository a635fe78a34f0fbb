"""One workload through every engine: bare client and personalink on a vLLM server, and the engines inside a process.

    bash scripts/serve_vllm.sh DIR 8000 &                 # then, with the process that listens there as PID:
    python scripts/bench_engines.py --url http://127.0.0.1:8000/v1 --server-pid PID --folder DIR

Each user's items are asked in order behind the same demonstrations of that user, user after user, `--concurrency` at a
time. Each round begins its prompts with a number of its own, so that it finds nothing of another round in the cache.
The two clients of the server take turns in one process; every other engine has a process of its own, so that its CPU
and memory are its own. A figure is the median over rounds, a ratio that of the rounds' ratios. The bare client encodes
the body, posts it, reads and parses the reply, and nothing else; personalink is gateway, journal, ledger and client.

CPU is seconds of the processes that took part (the client, what it started and, with --server-pid, the server), and
peak the memory that they held at once at most, as sampled (the model is in it). Both need Linux's /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp

from personalink.data import load_sample
from personalink.lm import LM, Decoding, EndpointLM, Message, Request, Usage, connect
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill
from personalink.lm.wire import read_usage
from personalink.tasks import task as named_task

BARE, SERVED = "bare client", "personalink on the server"
CLIENTS = (BARE, SERVED)
ENGINES: dict[str, Callable[[argparse.Namespace], LM]] = {
    "vllm_engine": lambda args: connect(f"vllm:{args.folder}", concurrency=args.concurrency),
    "transformers": lambda args: connect(f"transformers:{args.folder}", batch_size=args.concurrency),
    "embedded": lambda args: connect("embedded"),  # its own weights, Q4_1, in one slot
}
"""Engines inside the process by name: how each is connected."""

Ask = Callable[[Request], Awaitable[Usage]]
SAMPLE_S = 0.2
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Round:
    """One engine over the whole list once: seconds, tokens, and MiB."""

    engine: str
    requests: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    prompt: int
    cached: int
    answer: int


def workload(args: argparse.Namespace, number: int) -> list[Request]:
    """The requests of a round: `users` times `items`, user after user."""
    task = named_task("lamp2")
    needed = args.demonstrations + args.items
    users = [user for user in load_sample("news").users if len(user.history) >= needed][: args.users]
    made = []
    for user in users:
        persona = "\n\n".join(
            task.demonstration(item.input, item.label) for item in user.history[: args.demonstrations]
        )
        for item in user.history[args.demonstrations : needed]:
            system = Message("system", f"Round {number:06d}. {task.system()}")
            messages = (system, Message("user", f"{persona}\n\n{task.question(item.input)}"))
            made.append(Request(messages, Decoding(args.max_tokens)))
    return made


async def open_engine(name: str, args: argparse.Namespace, stack: AsyncExitStack) -> Ask:
    """How one request is asked; what it opens is closed with `stack`."""
    if name == BARE:
        return await open_bare(args, stack)
    lm = ENGINES[name](args) if name in ENGINES else EndpointLM(args.url, concurrency=args.concurrency)
    stack.push_async_callback(lm.aclose)
    await lm.start()
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    gateway = Gateway(lm, stack.enter_context(Journal(Path(folder) / "journal")))

    async def ours(request: Request) -> Usage:
        return (await gateway.complete(request, Bill("user", "answer", row="rag"))).usage

    return ours


async def open_bare(args: argparse.Namespace, stack: AsyncExitStack) -> Ask:
    """The bare client, with the bodies that ours would send."""
    lm = EndpointLM(args.url)
    stack.push_async_callback(lm.aclose)
    await lm.start()
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    url, headers = f"{lm.api_url}/chat/completions", {"Content-Type": "application/json"}

    async def bare(request: Request) -> Usage:
        payload = json.dumps(lm.chat_body(request)[0]).encode()
        async with session.post(url, data=payload, headers=headers) as response:
            return read_usage(json.loads(await response.read()))

    return bare


async def once(name: str, args: argparse.Namespace, number: int, ask: Ask) -> Round:
    """One round of one engine."""
    requests, usages = workload(args, number), []
    waiting: Iterator[Request] = iter(requests)

    async def asker() -> None:
        for request in waiting:
            usages.append(await ask(request))

    roots = [os.getpid(), *([args.server_pid] if args.server_pid and name in CLIENTS else [])]
    peak = [0.0]
    watching = asyncio.create_task(watch(roots, peak))
    wall, cpu = time.perf_counter(), cpu_s(roots)
    await asyncio.gather(*(asker() for _ in range(args.concurrency)))
    wall, cpu = time.perf_counter() - wall, cpu_s(roots) - cpu
    watching.cancel()
    told = [sum(getattr(usage, field) or 0 for usage in usages) for field in ("prompt", "cached", "completion")]
    return Round(name, len(requests), wall, cpu, peak[0], *told)


async def rounds(names: list[str], args: argparse.Namespace) -> list[Round]:
    """`--rounds` rounds of some engines in turns, each in the opposite order of the last; one before is not counted."""
    made = []
    async with AsyncExitStack() as stack:
        asks = {name: await open_engine(name, args, stack) for name in names}
        number = time.time_ns() // 10**6 % 900_000
        for turn in range(args.rounds + 1):
            for name in names[:: -1 if turn % 2 else 1]:
                number += 1
                done = await once(name, args, number, asks[name])
                made += [done] if turn else []
    return made


def processes(roots: list[int]) -> list[Path]:
    """The /proc folders of some processes and of all that they started."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found, left = [], list(roots)
    while left:
        pid = left.pop()
        found.append(Path("/proc") / str(pid))
        left += children.get(pid, [])
    return found


def cpu_s(roots: list[int]) -> float:
    """CPU seconds, user and system, that the processes took so far."""
    ticks = 0
    for folder in processes(roots):
        with suppress(OSError):
            ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / TICKS


async def watch(roots: list[int], peak: list[float]) -> None:
    """Keep the most memory in MiB that the processes held together in `peak[0]`; shared pages count in each."""
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        pages = 0
        for folder in processes(roots):
            with suppress(OSError, IndexError):
                pages += int((folder / "statm").read_text().split()[1])
        peak[0] = max(peak[0], pages * page / 2**20)
        await asyncio.sleep(SAMPLE_S)


def line(name: str, made: list[Round], bare: list[Round]) -> str:
    """One row of the table."""

    def median(of: Callable[[Round], float]) -> float:
        return statistics.median(map(of, made))

    ratios = [ours.wall_s / theirs.wall_s for ours, theirs in zip(made, bare, strict=False)]
    ratio = f"{statistics.median(ratios):.3f}" if ratios else "–"
    cells = (
        f"{median(lambda r: r.wall_s):.2f}",
        ratio,
        f"{median(lambda r: r.requests / r.wall_s):.2f}",
        f"{median(lambda r: r.prompt / r.wall_s):.0f}",
        f"{median(lambda r: r.answer / r.wall_s):.1f}",
        f"{median(lambda r: r.cached / max(1, r.prompt)):.1%}",
        f"{median(lambda r: r.cpu_s):.1f}",
        f"{max(r.peak_mib for r in made):.0f}",
    )
    return f"| {name} | {' | '.join(cells)} |"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--url", help="of a vLLM server; without it the two clients are left out")
    add("--server-pid", type=int, help="the server's process, so that its CPU and memory are told too")
    add("--folder", help="the model's Hugging Face folder; without it the engines inside a process are left out")
    add("--engines", nargs="*", default=sorted(ENGINES), choices=sorted(ENGINES), help="inside a process")
    add("--users", type=int, default=4)
    add("--items", type=int, default=8, help="of each user")
    add("--demonstrations", type=int, default=9, help="of the user's own, before each item")
    add("--max-tokens", type=int, default=16)
    add("--concurrency", type=int, default=16)
    add("--rounds", type=int, default=3)
    add("--json", type=Path, help="write every round there")
    add("--only", nargs="*", help=argparse.SUPPRESS)  # what this program calls itself with
    return parser.parse_args()


def main() -> int:
    args = parsed()
    if args.only:
        print(json.dumps([asdict(done) for done in asyncio.run(rounds(args.only, args))]))
        return 0
    groups = [list(CLIENTS)] if args.url else []
    groups += [[name] for name in args.engines] if args.folder else []
    if not groups:
        sys.exit("bench_engines: give --url, --folder, or both")
    made: list[Round] = []
    for names in groups:
        command = [sys.executable, __file__, *sys.argv[1:], "--only", *names]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        made += [Round(**one) for one in json.loads(done.stdout.splitlines()[-1])]
    count = made[0].requests
    print(f"{args.users} users, {args.items} items each ({count} requests), {args.concurrency} at once\n")
    print("| engine | wall s | × bare | requests/s | prompt tokens/s | answer tokens/s | hits | CPU s | peak MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    bare = [one for one in made if one.engine == BARE]
    for name in dict.fromkeys(one.engine for one in made):
        print(line(name, [one for one in made if one.engine == name], bare))
    if args.json:
        args.json.write_text(json.dumps([asdict(one) for one in made], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
