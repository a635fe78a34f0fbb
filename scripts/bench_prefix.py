"""How much of a run's prompts the server finds in its prefix cache, beside the most that these prompts allow.

    python scripts/bench_prefix.py                       # both orders of demonstrations, about three minutes
    python scripts/bench_prefix.py --n-users 8 --json prefix.json

The workload is an experiment on the bundled news sample with hashed answers: NoPers, RAG-1 to RAG-20, PAG, PersonaLink
at depth 1 to 3, Oracle last. The server is `personalink.testing.FakeVLLM`: blocks of 16 tokens, counted as vLLM does.
The optimum of a list of prompts is what an unbounded cache finds of it in the best order: every different prefix of
whole blocks is computed once, and so is the last token of every prompt. `order` is that of the demonstrations.

The lower table sends the prompts that a run sent through the bounded cache again, one after the other, in other orders:
what is lost to the bound itself, what to users being mixed, what to the Oracle standing among the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from personalink.lm import Completion, EndpointLM, EstimateCounter, Request
from personalink.running import arun
from personalink.tasks import task as named_task
from personalink.testing import FakeVLLM, PrefixCache, prompt_pieces
from personalink.testing.prefix import BLOCK

ORDERS = ("best_first", "best_last")


@dataclass(frozen=True)
class Sent:
    """One prompt of a run, as tokens, and for whom: user, phase and row of its bill."""

    tokens: tuple[str, ...]
    user: str
    phase: str
    row: str


@dataclass(frozen=True)
class Figures:
    """What one run came to; tokens."""

    order: str
    kv_tokens: int | None
    users_in_flight: int
    requests: int
    prompt_tokens: int
    hits: int
    optimum: int


class Recording:
    """A client that keeps what it was asked, in that order."""

    def __init__(self, lm: EndpointLM) -> None:
        self.lm = lm
        self.asked: list[Request] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        return await self.lm.complete(request)


def rows(order: str) -> dict[str, dict[str, Any]]:
    """The rows of the experiment."""
    where = "personalink.contexts"
    rag = {f"rag_{k}": {"_target_": f"{where}.Retrieval", "k": k, "order": order} for k in (1, 3, 5, 10, 20)}
    ours = {f"personalink_r{r}": {"_target_": f"{where}.PersonaLink", "depth": r} for r in (1, 2, 3)}
    ends = {"_target_": f"{where}.NoPersonalization"}, {"_target_": f"{where}.FullProfile"}
    return {"nopers": ends[0], **rag, "pag": {"_target_": f"{where}.Draft"}, **ours, "oracle": ends[1]}


def go(order: str, kv_tokens: int | None, users_in_flight: int, args: argparse.Namespace) -> tuple[Figures, list[Sent]]:
    """One run: its figures, and its prompts as they were sent."""
    task = named_task("lamp2")
    server = FakeVLLM(labels=task.labels, latency_s=args.latency, kv_tokens=kv_tokens, window=131072)
    with server, tempfile.TemporaryDirectory() as folder:
        lm = Recording(
            EndpointLM(
                server.url, concurrency=args.concurrency, users_in_flight=users_in_flight, counter=EstimateCounter()
            )
        )
        config = {
            "name": "prefix",
            "task": task.as_dict(),
            "data": {"kind": "sample", "name": "news", "n_users": args.n_users},
            "lm": {"kind": "endpoint"},
            "context": rows(order),
            "runs_dir": folder,
            "max_failed": 1.0,
        }
        finished = asyncio.run(arun(config, lm=lm))
        if finished.trouble:
            raise finished.trouble
        bills = journalled(Path(finished.result.run.log) / "journal")
        sent = [as_sent(request, bills[request.key(lm.identity)]) for request in lm.asked]
    best = optimum([s.tokens for s in sent])
    figures = Figures(
        order, kv_tokens, users_in_flight, server.requests, server.prompt_tokens, server.cached_tokens, best
    )
    return figures, sent


def journalled(path: Path) -> dict[str, list[Any]]:
    """Request key → bill of every record."""
    records = (json.loads(line.split(b" ", 2)[2]) for line in path.read_bytes().splitlines())
    return {record["key"]: record["bill"] for record in records}


def as_sent(request: Request, bill: list[Any]) -> Sent:
    tokens = prompt_pieces([{"role": m.role, "content": m.content} for m in request.messages])
    return Sent(tuple(tokens), str(bill[0]), str(bill[1]), str(bill[3]))


def optimum(prompts: Sequence[Sequence[str]], block: int = BLOCK) -> int:
    """The most tokens of `prompts` that an unbounded prefix cache can find, over all orders of sending them.

    A block prefix that k prompts could find is computed once and found k − 1 times; all k times where one more prompt
    ends with it, since that prompt computes it anyway (its last token is never taken from the cache).
    """
    findable: Counter[int] = Counter()
    ended: set[int] = set()
    for tokens in prompts:
        parent = 0
        for start in range(0, len(tokens) - block + 1, block):
            parent = hash((parent, *tokens[start : start + block]))
            if start + block < len(tokens):
                findable[parent] += 1
            else:
                ended.add(parent)
    return block * sum(times - (key not in ended) for key, times in findable.items())


def replay(prompts: Sequence[Sent], kv_tokens: int | None) -> int:
    """Tokens found when these prompts are sent one after the other."""
    cache = PrefixCache(kv_tokens)
    for prompt in prompts:
        held = cache.hold(prompt.tokens)
        if held is not None:
            cache.release(held)
    return cache.hits


def other_orders(sent: list[Sent]) -> dict[str, list[Sent]]:
    """The same prompts in other orders."""
    rest, oracle = [s for s in sent if s.row != "oracle"], [s for s in sent if s.row == "oracle"]
    users = {user: i for i, user in enumerate(dict.fromkeys(s.user for s in sent))}
    return {
        "as sent": sent,
        "as sent, Oracle after all the rest": rest + oracle,
        "user by user": sorted(sent, key=lambda s: users[s.user]),
        "user by user, Oracle after all the rest": sorted(rest, key=lambda s: users[s.user]) + oracle,
        "sorted by prompt": sorted(sent, key=lambda s: s.tokens),
    }


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def line(f: Figures) -> str:
    """A row of the upper table."""
    kv = "unlimited" if f.kv_tokens is None else f"{f.kv_tokens:,}"
    rates = f"{share(f.hits, f.prompt_tokens)} | {share(f.optimum, f.prompt_tokens)} | {share(f.hits, f.optimum)}"
    tokens = f"{f.requests:,} | {f.prompt_tokens:,} | {f.prompt_tokens - f.hits:,}"
    return f"| {f.order} | {kv} | {f.users_in_flight} | {tokens} | {rates} |"


def part_line(order: str, name: str, sent: list[Sent]) -> str:
    """A row of the middle table."""
    total = sum(len(s.tokens) for s in sent)
    return f"| {order} | {name} | {len(sent):,} | {total:,} | {share(optimum([s.tokens for s in sent]), total)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n-users", type=int, default=62)
    parser.add_argument("--kv-tokens", type=int, default=30_000, help="the bounded cache")
    parser.add_argument("--concurrency", type=int, default=64, help="requests in flight")
    parser.add_argument("--users-in-flight", type=int, nargs="+", default=[1, 8, 16, 32, 256])
    parser.add_argument("--latency", type=float, default=0.005, help="seconds that an answer takes")
    parser.add_argument("--json", type=Path, default=None, help="write every figure there")
    args = parser.parse_args()
    print(
        "| order | cache tokens | users in flight | requests | prompt tokens | computed | hits | optimum | of optimum |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    found: list[Figures] = []
    replayed: dict[str, dict[str, float]] = {}
    parts: list[str] = []
    for order in ORDERS:
        for kv_tokens in (None, args.kv_tokens):
            for users in args.users_in_flight:
                figures, sent = go(order, kv_tokens, users, args)
                found.append(figures)
                print(line(figures), flush=True)
        parts.append(part_line(order, "all rows", sent))
        for row in ("rag_", "personalink_", "oracle"):
            parts.append(
                part_line(order, f"{row.rstrip('_')} answers alone", [s for s in sent if s.row.startswith(row)])
            )
        for phase in ("evaluate", "rewrite"):
            parts.append(part_line(order, f"{phase} alone", [s for s in sent if s.phase == phase]))
        for name, prompts in other_orders(sent).items():
            replayed.setdefault(name, {})[order] = replay(prompts, args.kv_tokens) / figures.prompt_tokens
    print("\nWhere an unbounded cache finds what it finds: the optimum of parts of the run\n")
    print("| order | part | requests | prompt tokens | hits at most |\n|---|---|---|---|---|\n" + "\n".join(parts))
    print(f"\nPrompts of the last run of each order through {args.kv_tokens:,} tokens, one after the other: hits\n")
    print("| sent | " + " | ".join(ORDERS) + " |\n|---|" + "---|" * len(ORDERS))
    for name, rates in replayed.items():
        print(f"| {name} | " + " | ".join(share(rates[order], 1) for order in ORDERS) + " |")
    if args.json:
        args.json.write_text(json.dumps({"runs": [asdict(f) for f in found], "replayed": replayed}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
