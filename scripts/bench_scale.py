#!/usr/bin/env python3
"""How the fleet scales: time, memory and the resume scan from 10² to 10⁵ users.

Users are made one by one and forgotten as they end, each answer goes into a journal on disk and into the ledger, and
each size runs in a process of its own, so that its peak memory is its own. The agent is that of `bench_fleet.py`; over
HTTP it sits in another process and answers at once, in process it is a function. Then a new process opens the journal
that was written and enters its bills into a ledger, as a run that goes on does.

    pip install -e . && python scripts/bench_scale.py
    python scripts/bench_scale.py --http 100 1000 --in-process 100 1000 10000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_fleet import TASK, answer, label, server

from personalink.agent import Agent
from personalink.data.types import Item, User
from personalink.fleet import Done, each_user
from personalink.lm.base import LM, Completion, Request, Usage
from personalink.lm.counters import EstimateCounter
from personalink.lm.endpoint import EndpointLM
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.optimizer import Optimizer, OptimizerConfig

KINDS = {"http": "over HTTP", "in_process": "in process"}


class Function:
    """The agent of `bench_fleet.py` as a model inside this process: 0 ms, and nothing kept."""

    identity = model = "function"
    window = None
    concurrency, users_in_flight = 64, 256

    def __init__(self) -> None:
        self.counter = EstimateCounter()

    async def start(self) -> None:
        """Nothing to start."""

    async def complete(self, request: Request) -> Completion:
        """At once, but behind whoever waits already."""
        await asyncio.sleep(0)
        text = answer({"messages": [{"content": m.content} for m in request.messages]})
        prompt = sum(len(m.content) for m in request.messages) // 4
        return Completion(text, "ok", Usage(prompt, None, 1 + len(text) // 4), model=self.model)

    async def aclose(self) -> None:
        """Nothing to give back."""

    def describe(self) -> dict[str, Any]:
        """Its name."""
        return {"kind": "function"}


def people(n: int, m: int = 24) -> Iterator[User]:
    """`n` users of `m` items, each made when it is its turn."""
    for u in range(n):
        labels = [label(u, i) for i in range(m)]
        items = (Item(f"{i}", f"item {i} of user {u} lies {gold}", gold) for i, gold in enumerate(labels))
        yield User(f"u{u}", "bench", tuple(items))


def peak_mb() -> float:
    """Most memory that this process ever held, in MB (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


async def fleet(lm: LM, n: int, journal: Path) -> dict[str, float]:
    """Every user through the loop; seconds, CPU seconds of this process, calls and peak memory."""
    await lm.start()
    with Journal(journal) as kept:
        gateway = Gateway(lm, kept)
        optimizer = Optimizer(Agent(TASK, gateway), OptimizerConfig(audit=0))
        began, cpu, done = time.perf_counter(), time.process_time(), 0
        async for ended in each_user(people(n), optimizer.refine, at_once=lm.users_in_flight):
            if not isinstance(ended, Done):
                raise ended.error
            done += 1
        seconds, cpu, peak = time.perf_counter() - began, time.process_time() - cpu, peak_mb()
        if gateway.ledger.total().calls != gateway.sent or done != n:
            sys.exit(f"bench_scale: {done} of {n} users, and the ledger does not have the {gateway.sent} calls")
    await lm.aclose()
    return {"users": n, "seconds": seconds, "cpu": cpu, "calls": gateway.sent, "peak": peak}


def scan(journal: Path) -> dict[str, float]:
    """Open a journal, then once more to enter what it says was paid; seconds, CPU seconds, records and peak memory."""
    began = time.perf_counter()
    with Journal(journal) as kept:
        found = len(kept)
    opened = time.perf_counter() - began
    began, cpu = time.perf_counter(), time.process_time()
    with Journal(journal) as kept:
        gateway = Gateway(Function(), kept)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        records, peak = len(kept), peak_mb()
        if not gateway.ledger.total().calls == records == found:
            sys.exit("bench_scale: the ledger does not have what is in the journal")
    size = journal.stat().st_size / records
    return {"records": records, "opened": opened, "seconds": seconds, "cpu": cpu, "size": size, "peak": peak}


def apart(*what: Any) -> dict[str, float]:
    """One part of the benchmark in a process of its own."""
    command = [sys.executable, __file__, "--one", *map(str, what)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return dict(json.loads(done.stdout))


def one(kind: str, *what: str) -> int:
    """What `apart` asked for, as JSON on stdout."""
    if kind == "scan":
        found = scan(Path(what[0]))
    else:
        lm: LM = EndpointLM(what[2], model="fake-7b", concurrency=64) if kind == "http" else Function()
        found = asyncio.run(fleet(lm, int(what[0]), Path(what[1])))
    print(json.dumps(found))
    return 0


def exponent(runs: list[dict[str, float]], what: str) -> float:
    """Slope of log(`what`) over log(users), least squares: 1 for what grows as the users do."""
    points = [(math.log(run["users"]), math.log(run[what])) for run in runs]
    x, y = (sum(point[i] for point in points) / len(points) for i in (0, 1))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def sizes(kind: str, ns: list[int], url: str) -> None:
    """The table of one kind, and the scan of its largest journal."""
    print(f"\nThe fleet {KINDS[kind]}\n")
    print("| users | s | CPU s | users/s | calls a user | peak MB |\n|---|---|---|---|---|---|")
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for n in ns:
            journal = Path(folder) / str(n) / "log" / "journal"
            run = apart(kind, n, journal, url)
            runs.append(run)
            took, rates = (
                f"{run['seconds']:.2f} | {run['cpu']:.2f}",
                f"{n / run['seconds']:.1f} | {run['calls'] / n:.2f}",
            )
            print(f"| {n} | {took} | {rates} | {run['peak']:.0f} |", flush=True)
        if len(ns) > 1:
            wall, cpu = exponent(runs, "seconds"), exponent(runs, "cpu")
            print(f"\nTime grows with the users to the power of {wall:.3f}, CPU time of {cpu:.3f}.")
        found = apart("scan", journal)
    rates = [f"{found['records'] / found[what]:,.0f}" for what in ("opened", "seconds")]
    print("\n| resuming: records | bytes a record | opened, records/s | bills entered too, records/s | peak MB |")
    print("|---|---|---|---|---|")
    cells = (f"{found['records']:.0f}", f"{found['size']:.0f}", *rates, f"{found['peak']:.0f}")
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> int:
    """Run all of it and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--http", type=int, nargs="*", default=[100, 1000, 10_000], metavar="USERS")
    parser.add_argument("--in-process", type=int, nargs="*", default=[100, 1000, 10_000, 100_000], metavar="USERS")
    options = parser.parse_args()
    if options.one:
        return one(*options.one)
    if options.http:
        with server(0.0) as url:
            sizes("http", options.http, url)
    if options.in_process:
        sizes("in_process", options.in_process, "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
