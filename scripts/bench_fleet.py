#!/usr/bin/env python3
"""The fleet beside what people would run otherwise: GEPA for each user, in a loop and in a thread pool.

Everything talks HTTP to one server double in another process, whose agent is right and whose rewrites help at fixed
rates: the empty persona answers .645 right; the three passes fix .45, .25, .10 of the errors and break .05, .04, .02 of
the rest; a rewrite repeats the incumbent with 0, .40, .85. GEPA runs as DSPy ships it (`dspy.GEPA` over `dspy.LM`),
which is how people run it, and bare, behind an adapter of ours that costs next to nothing: the gap between the two is
the client. Prints a Markdown table; figures go to docs/benchmarks.md.

    pip install -e ".[bench]" && python scripts/bench_fleet.py
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import http.client
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from personalink.agent import Agent
from personalink.data.types import Item, User
from personalink.fleet import Done, each_user
from personalink.lm.endpoint import EndpointLM
from personalink.lm.gateway import Gateway
from personalink.optimizer import Optimizer, OptimizerConfig
from personalink.refinement import Refinement
from personalink.tasks import LabelTask

LABELS = ("north", "south", "east", "west")
TASK = LabelTask("compass", "Say where it lies.", LABELS)
COUNTED = "vllm:request_success_total"
CHAIN = re.compile(r"Chain ([\w.]+)\.")
RIGHT, FIX, LOSE, REPEAT = 0.645, (0.45, 0.25, 0.10), (0.05, 0.04, 0.02), (0.0, 0.40, 0.85)


def chance(*what: object) -> float:
    """A number in [0, 1) that belongs to `what`."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest(), "big") / 2**56


def level_of(step: str) -> int:
    """The pass that made a step of a chain, from 0; a step is "<pass>x<number>"."""
    return min(int(step.split("x")[0]), 2)


def is_right(item: str, chain: tuple[str, ...]) -> bool:
    """Whether the agent answers an item right behind the persona that came of these rewrites."""
    right = chance(item) < RIGHT
    for n, step in enumerate(chain, 1):
        draw = chance(item, chain[:n])
        right = draw >= LOSE[level_of(step)] if right else draw < FIX[level_of(step)]
    return right


def answer(body: dict[str, Any]) -> str:
    """The double's agent and rewriter."""
    system, user = ["", *(m["content"] for m in body["messages"])][-2:]
    if "[[ ## text ## ]]" in user:
        return f"[[ ## label ## ]]\n{agent(system, user.split(']]', 1)[1].strip())}\n\n[[ ## completed ## ]]"
    if not system:
        return f"```\n{json.loads(rewritten(user))['preference_summary']}\n```"
    if system.startswith("You keep a short profile"):
        return rewritten(user)
    return agent(system, user)


def agent(system: str, user: str) -> str:
    """The label that the double gives."""
    found = CHAIN.findall(system + user)
    question = user.rsplit("Text: ", 1)[-1].split("\n")[0]
    gold = question.split()[-1]
    chain = tuple(found[-1].split(".")) if found else ()
    return gold if is_right(question, chain) else next(other for other in LABELS if other != gold)


def rewritten(user: str) -> str:
    """A new chain: the incumbent's and one step more, or what was there again."""
    found = [tuple(chain.split(".")) for chain in CHAIN.findall(user)]
    chain = found[0] if found and ("The profile so far" in user or "instruction" in user) else ()
    made = 1 + max((int(step.split("x")[0]) for steps in found for step in steps), default=-1)
    again = found and chance("again", user) < REPEAT[min(made, 2)]
    new = (chain or found[-1]) if again else (*chain, f"{made}x{int(chance('new', user) * 1e6)}")
    return json.dumps({"preference_summary": f"Chain {'.'.join(new)}.", "decision_rules": [], "exemplars": []})


def label(user: int, item: int) -> str:
    """A user's label of an item."""
    return LABELS[(user + item) % 4]


def users(n: int, m: int = 24) -> list[User]:
    """`n` users with `m` items each: 8 held out, the rest for the draft, as in a history of 16 + 8."""
    return [
        User(
            f"u{u}",
            "bench",
            tuple(
                Item(f"{i}", f"item {i} of user {u} lies {LABELS[(u + i) % 4]}", LABELS[(u + i) % 4]) for i in range(m)
            ),
        )
        for u in range(n)
    ]


@contextlib.contextmanager
def server(latency: float) -> Iterator[str]:
    """The double in a process of its own; its URL."""
    command = [sys.executable, __file__, "--serve", str(latency)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip() if process.stdout else ""
    finally:
        process.terminate()
        process.wait(10)


async def fleet(url: str, people: list[User], in_flight: int, *, race: bool = True) -> dict[str, float]:
    """Our fleet over HTTP; users a second, calls, concurrency."""
    lm = EndpointLM(url, model="fake-7b", concurrency=in_flight)
    await lm.start()
    gateway = Gateway(lm)
    optimizer = Optimizer(Agent(TASK, gateway), OptimizerConfig(audit=0, race=race))
    seen: list[int] = []

    async def watch() -> None:
        while True:
            seen.append(gateway.in_flight)
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    began, cpu, done = time.monotonic(), time.process_time(), []
    async for ended in each_user(people, optimizer.refine, at_once=lm.users_in_flight):
        if not isinstance(ended, Done):
            raise ended.error
        done.append((time.monotonic() - began, ended.value))
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    watching.cancel()
    await lm.aclose()
    results: list[Refinement] = [one for _, one in done]
    drain = max(1, len(seen) * 9 // 10)
    return {
        "users/s": len(people) / wall,
        "calls a user": gateway.sent / len(people),
        "most calls": max(one.calls for one in results),
        "minimum": sum(minimum(one) for one in results) / len(people),
        "in flight": sum(seen[:drain]) / drain,
        "cpu ms a call": 1000 * cpu / gateway.sent,
    }


def minimum(one: Refinement) -> int:
    """Calls that nothing exact could have saved, from what happened: the slice once, a rewrite a working pass, and of
    each new candidate the incumbent's errors, plus the rest where acceptance was still possible after them."""
    calls, tried = len(one.slice_ids), {""}
    for p in one.passes:
        if not p.calls:
            continue
        calls += 1
        text = p.candidate.render() if p.candidate else ""
        if p.candidate is None or text in tried or text == one.at(p.depth - 1).render():
            continue
        tried.add(text)
        calls += len(p.errors) if p.at_best is not None else len(one.slice_ids)
    return calls


class Rival:
    """GEPA on one user at a time, over the same server."""

    def __init__(self, url: str, threads: int) -> None:
        self.address = urlsplit(url).netloc
        self.pool = ThreadPoolExecutor(threads)
        self.local = threading.local()

    def post(self, system: str, user: str) -> str:
        """One call over a connection that is kept."""
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPConnection(self.address)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        body = json.dumps({"model": "fake-7b", "messages": messages, "temperature": 0, "max_tokens": 64})
        self.local.connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        return str(json.loads(self.local.connection.getresponse().read())["choices"][0]["message"]["content"])

    def reflect(self, prompt: Any) -> str:
        """GEPA's reflection model."""
        text = prompt if isinstance(prompt, str) else json.dumps(prompt)
        return f"```\n{json.loads(self.post('You keep a short profile', text))['preference_summary']}\n```"

    def compile(self, user: User) -> None:
        """GEPA with a cap of 25 metric calls, on 16 items with 8 held out."""
        import gepa
        from gepa.core.adapter import EvaluationBatch

        rival = self

        class Adapter:
            propose_new_texts = None

            def evaluate(self, batch: list[Item], candidate: dict[str, str], capture_traces: bool = False) -> Any:
                asked = [f"Text: {item.input}\nLabel:" for item in batch]
                said = list(rival.pool.map(lambda text: rival.post(candidate["instructions"], text), asked))
                scores = [float(said_one == item.label) for said_one, item in zip(said, batch, strict=True)]
                return EvaluationBatch(outputs=said, scores=scores, trajectories=list(zip(batch, said, strict=True)))

            def make_reflective_dataset(self, candidate: Any, batch: Any, components: list[str]) -> Any:
                made = [{"Inputs": i.input, "Generated Outputs": s, "Feedback": i.label} for i, s in batch.trajectories]
                return dict.fromkeys(components, made)

        quiet = type("Quiet", (), {"log": lambda self, message: None})()
        gepa.optimize(
            seed_candidate={"instructions": "Say where it lies."}, trainset=list(user.history[:16]),
            valset=list(user.history[16:]), adapter=Adapter(), reflection_lm=self.reflect, max_metric_calls=25,
            logger=quiet, seed=0,
        )  # fmt: skip


class DSPyRival:
    """`dspy.GEPA` on one user at a time, over the same server; `threads` evaluate a user's items."""

    def __init__(self, url: str, threads: int) -> None:
        import dspy

        logging.disable(logging.WARNING)
        self.threads = threads
        self.lm = dspy.LM("openai/fake-7b", api_base=f"{url}/v1", api_key="EMPTY", cache=False, max_tokens=64)
        dspy.configure(lm=self.lm)
        self.student = dspy.Predict(dspy.Signature("text -> label", "Say where it lies."))

    def compile(self, user: User) -> None:
        """GEPA with a cap of 25 metric calls, on 16 items with 8 held out."""
        import dspy

        def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
            return dspy.Prediction(score=float(gold.label == pred.label), feedback=gold.label)

        items = [dspy.Example(text=item.input, label=item.label).with_inputs("text") for item in user.history]
        made = dspy.GEPA(metric=metric, max_metric_calls=25, reflection_lm=self.lm, num_threads=self.threads, seed=0)
        made.compile(self.student, trainset=items[:16], valset=items[16:])


def rival(gepa: Rival | DSPyRival, url: str, people: list[User], workers: int) -> dict[str, float]:
    """GEPA over users, `workers` of them at once."""
    before, began = received(url), time.monotonic()
    with contextlib.ExitStack() as stack:
        quiet = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(quiet))
        stack.enter_context(contextlib.redirect_stderr(quiet))
        list(stack.enter_context(ThreadPoolExecutor(workers)).map(gepa.compile, people))
    spent = time.monotonic() - began
    return {"users/s": len(people) / spent, "calls a user": (received(url) - before) / len(people)}


def received(url: str) -> int:
    """Chat requests that the double has answered, by its own count."""
    with urllib.request.urlopen(f"{url}/metrics") as page:
        text = page.read().decode()
    return sum(int(float(line.split()[-1])) for line in text.splitlines() if line.startswith(COUNTED))


def at_least_one(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def main() -> int:
    """Run all of it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", type=float, metavar="LATENCY", help=argparse.SUPPRESS)
    parser.add_argument("--users", type=at_least_one, default=1000)
    parser.add_argument("--in-flight", type=at_least_one, default=64)
    parser.add_argument("--no-rivals", action="store_true", help="leave GEPA out")
    options = parser.parse_args()
    if options.serve is not None:
        from personalink.testing import FakeVLLM

        with FakeVLLM(answer, latency_s=options.serve, model="fake-7b") as double:
            print(double.url, flush=True)
            threading.Event().wait()
    rows: list[tuple[str, dict[str, float]]] = []
    people = users(options.users)
    with server(0.02) as url:
        rows.append(("fleet, 20 ms", asyncio.run(fleet(url, people, options.in_flight))))
        rows.append(("fleet, 20 ms, no racing", asyncio.run(fleet(url, people, options.in_flight, race=False))))
        if not options.no_rivals:
            dspy, bare = DSPyRival(url, 4), Rival(url, 64)
            rows.append(("dspy.GEPA, pool of 16, 20 ms", rival(dspy, url, people[:64], 16)))
            rows.append(("dspy.GEPA, loop, 20 ms", rival(DSPyRival(url, 64), url, people[:20], 1)))
            rows.append(("bare GEPA, pool of 16, 20 ms", rival(bare, url, people[:160], 16)))
            rows.append(("bare GEPA, loop, 20 ms", rival(bare, url, people[:20], 1)))
    with server(0.2) as url:
        rows.append(("fleet, 200 ms", asyncio.run(fleet(url, people[:300], options.in_flight))))
    names = ["users/s", "calls a user", "minimum", "most calls", "in flight", "cpu ms a call"]
    print(f"| {' | '.join(['', *names])} |\n|{'---|' * (len(names) + 1)}")
    for name, figures in rows:
        print(f"| {name} | {' | '.join(f'{figures[n]:.2f}' if n in figures else '' for n in names)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
