"""personalink beside vLLM's own benchmark on one GPU: the same requests, batch-invariant mode off and on.

    python scripts/bench_gpu.py Qwen/Qwen2.5-7B-Instruct         # at most six minutes, server starts included
    python scripts/bench_gpu.py --dry-run MODEL                  # what it would do
    python scripts/bench_gpu.py --cpu DIR                        # the same in miniature, to check this script

Needs vLLM with `pip install "vllm[bench]"` in the interpreter that --python names (default: this one), and port 8100.
The requests are those of an experiment on the bundled news sample (NoPers, RAG-5, PAG, PersonaLink r=2) with hashed
answers, recorded once, without constraints. `vllm bench serve --dataset-name custom` sends them as text to
/v1/completions, the chat template applied by the server before; personalink sends them as chats through its gateway,
journal and ledger. Both keep the order and --concurrency; neither waits for one answer to word the next, so a whole run
takes longer than these figures. The prefix cache is emptied before each round (VLLM_SERVER_DEV_MODE=1). Seconds are
from the first request to the last answer; vLLM's client streams, ours does not. `same` is how many answers of the
second round, and of the other client, are the same texts as those of the first.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from personalink.config import RunConfig
from personalink.experiment import Experiment
from personalink.lm import Completion, EndpointLM, EstimateCounter, Request, ScriptedLM, hashed_answers
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill
from personalink.tasks import task as named_task

HERE = Path(__file__).parent
VLLM, OURS = "vllm bench serve", "personalink"
BENCH = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
    "p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())"
)
"""What `vllm bench serve` runs; the CPU's package has no working `vllm` command."""


class OutOfTime(Exception):
    """The time of a part is over."""


@dataclass(frozen=True)
class Round:
    """One client over the whole list once; seconds and tokens. `hits` is the share of prompt tokens found."""

    invariant: bool
    client: str
    number: int
    requests: int
    failed: int
    wall_s: float
    answer_tokens: int
    hits: float | None
    answers: tuple[str, ...]

    @property
    def tokens_a_second(self) -> float:
        """Answer tokens a second."""
        return self.answer_tokens / self.wall_s


@dataclass(frozen=True)
class Share:
    """A part of the overall limit: `until` is when it ends, monotonic seconds."""

    until: float

    def left(self) -> float:
        """Seconds left.

        Raises:
            OutOfTime: none.
        """
        left = self.until - time.monotonic()
        if left <= 0:
            raise OutOfTime
        return left


def workload(users: int, max_tokens: int | None) -> list[Request]:
    """The distinct requests of the experiment in the order of a run, each without its constraint."""
    task, where = named_task("lamp2"), "personalink.contexts"
    rows = {"nopers": "NoPersonalization", "rag_5": "Retrieval", "pag": "Draft", "personalink_r2": "PersonaLink"}
    lm = ScriptedLM(hashed_answers(task.labels))
    with tempfile.TemporaryDirectory() as folder:
        values = {
            "name": "bench",
            "task": task.as_dict(),
            "data": {"kind": "sample", "name": "news", "n_users": users},
            "lm": {"kind": "scripted"},
            "context": {row: {"_target_": f"{where}.{kind}"} for row, kind in rows.items()},
            "runs_dir": folder,
            "max_failed": 1.0,
        }
        asyncio.run(Experiment(RunConfig.from_mapping(values), lm=lm).run())
    asked = [replace(request, constraint=None) for request in lm.requests]
    if max_tokens is not None:
        shorter = [min(r.decoding.max_tokens, max_tokens) for r in asked]
        asked = [replace(r, decoding=replace(r.decoding, max_tokens=n)) for r, n in zip(asked, shorter, strict=True)]
    return list({request.key("bench"): request for request in asked}.values())


def post(url: str, body: Any = None, timeout_s: float = 30.0) -> Any:
    """POST JSON (an empty body for None); the parsed reply."""
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=timeout_s) as reply:
        raw = reply.read()
    return json.loads(raw) if raw else None


def get(url: str) -> str:
    """GET; the text."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        return str(reply.read().decode())


def served_by(args: argparse.Namespace) -> list[str]:
    """The line that starts the server."""
    flags = ["--max-model-len", "8192"] if args.cpu else []
    return ["bash", str(HERE / "serve_vllm.sh"), args.model, str(args.port), "--", *flags]


@contextlib.contextmanager
def server(args: argparse.Namespace, *, invariant: bool, share: Share) -> Iterator[str]:
    """A server of the model; its root URL once it answers.

    Raises:
        OutOfTime: it did not answer in time, or ended; the message says where its words are.
    """
    log = Path(args.json).with_suffix(f".server-{int(invariant)}.log")
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_BATCH_INVARIANT": str(int(invariant)), "PYTHON": args.python}
    with log.open("w") as words:
        process = subprocess.Popen(
            served_by(args), env=os.environ | settings, stdout=words, stderr=words, start_new_session=True
        )
        try:
            root = f"http://127.0.0.1:{args.port}"
            while True:
                if process.poll() is not None:
                    raise OutOfTime(f"the server ended; see {log}")
                with contextlib.suppress(OSError):
                    get(f"{root}/health")
                    break
                if time.monotonic() > share.until:
                    raise OutOfTime(f"the server was not up in its share; see {log}")
                time.sleep(0.5)
            yield root
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def as_text(root: str, model: str, requests: list[Request]) -> list[str]:
    """The prompts with the model's chat template applied, as the server itself applies it."""
    texts = []
    for request in requests:
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        body = {"model": model, "messages": messages, "add_generation_prompt": True}
        tokens = post(f"{root}/tokenize", body)["tokens"]
        texts.append(str(post(f"{root}/detokenize", {"model": model, "tokens": tokens})["prompt"]))
    return texts


def prefix_counts(root: str) -> tuple[float, float] | None:
    """(tokens looked for, tokens found) in the prefix cache since the server's start; None where it does not tell."""
    found = {}
    for line in get(f"{root}/metrics").splitlines():
        if read := re.match(r"vllm:prefix_cache_(queries|hits)_total\S* (\S+)", line):
            found[read[1]] = found.get(read[1], 0.0) + float(read[2])
    return (found["queries"], found["hits"]) if len(found) == 2 else None


def bench(root: str, args: argparse.Namespace, texts: list[str], requests: list[Request], share: Share) -> Any:
    """(seconds, failed, answer tokens, answers) of vLLM's own client."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            {"prompt": text, "output_tokens": request.decoding.max_tokens}
            for text, request in zip(texts, requests, strict=True)
        ]
        data = Path(folder) / "requests.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        line = [args.python, "-c", BENCH, "--backend", "openai", "--base-url", root, "--model", args.model]
        line += ["--dataset-name", "custom", "--dataset-path", str(data), "--custom-output-len", "-1"]
        line += ["--skip-chat-template", "--disable-shuffle", "--num-prompts", str(len(rows)), "--no-oversample"]
        line += ["--max-concurrency", str(args.concurrency), "--ready-check-timeout-sec", "0", "--disable-tqdm"]
        line += ["--temperature", "0", "--extra-body", '{"add_special_tokens": false, "seed": 12345}']
        line += ["--save-result", "--save-detailed", "--result-dir", folder, "--result-filename", "result.json"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=share.left(), check=False)
        except subprocess.TimeoutExpired:
            raise OutOfTime from None
        if done.returncode:
            raise OutOfTime(f"{VLLM}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
        told = json.loads((Path(folder) / "result.json").read_text())
    failed = sum(bool(error) for error in told["errors"])
    return told["duration"], failed, told["total_output_tokens"], tuple(told["generated_texts"])


async def ours(root: str, args: argparse.Namespace, requests: list[Request], share: Share) -> Any:
    """(seconds, failed, answer tokens, answers) of personalink's gateway, journal, ledger and client."""
    lm = EndpointLM(root, model=args.model, dialect="vllm", concurrency=args.concurrency, counter=EstimateCounter())
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "journal") as journal:
        try:
            await lm.start()
            gateway = Gateway(lm, journal)
            began = time.perf_counter()
            asked = (gateway.complete(request, Bill("bench", "answer", row="bench")) for request in requests)
            async with asyncio.timeout(share.left()):
                answers = await asyncio.gather(*asked, return_exceptions=True)
            seconds = time.perf_counter() - began
        except TimeoutError:
            raise OutOfTime from None
        finally:
            await lm.aclose()
    told = [answer for answer in answers if isinstance(answer, Completion)]
    tokens = sum(answer.usage.completion or 0 for answer in told)
    texts = tuple(answer.text if isinstance(answer, Completion) else "" for answer in answers)
    return seconds, len(answers) - len(told), tokens, texts


def measured(
    root: str, args: argparse.Namespace, requests: list[Request], share: Share, *, invariant: bool
) -> Iterator[Round]:
    """Two rounds of each client in turn, each behind an empty prefix cache.

    Raises:
        OutOfTime: the next one did not fit.
    """
    texts = as_text(root, args.model, requests)
    asyncio.run(ours(root, args, requests[: args.concurrency], share))  # compiles and fills what is filled once
    for number in (1, 2):
        for client in (VLLM, OURS):
            if not post(f"{root}/reset_prefix_cache")["success"]:
                raise OutOfTime("the server did not empty its prefix cache")
            before = prefix_counts(root)
            if client == VLLM:
                seconds, failed, tokens, answers = bench(root, args, texts, requests, share)
            else:
                seconds, failed, tokens, answers = asyncio.run(ours(root, args, requests, share))
            after, hits = prefix_counts(root), None
            if before and after and after[0] > before[0]:
                hits = (after[1] - before[1]) / (after[0] - before[0])
            yield Round(invariant, client, number, len(requests), failed, seconds, tokens, hits, answers)


def table(rounds: list[Round]) -> str:
    """The rounds as a Markdown table."""
    lines = [
        "| batch-invariant | client | round | requests | failed | seconds | answer tokens/s | prefix hits | same |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rounds:
        first = next(other for other in rounds if other.invariant == one.invariant)
        same = sum(a == b for a, b in zip(first.answers, one.answers, strict=True))
        hits = "unknown" if one.hits is None else f"{one.hits:.1%}"
        lines.append(
            f"| {'on' if one.invariant else 'off'} | {one.client} | {one.number} | {one.requests} | {one.failed} | "
            f"{one.wall_s:.2f} | {one.tokens_a_second:.0f} | {hits} | {'first' if one is first else f'{same}'} |"
        )
    return "\n".join(lines)


def go(args: argparse.Namespace, requests: list[Request], began: float) -> tuple[list[Round], list[str]]:
    """All rounds that fit, and what did not."""
    rounds, left_out = [], []
    modes = [False] if args.cpu else [False, True]  # batch-invariant kernels need a GPU
    for done, invariant in enumerate(modes):
        left = began + args.limit - time.monotonic() - 20 * (len(modes) - done)  # a server needs up to 15 s to end
        share, named = (
            Share(time.monotonic() + left / (len(modes) - done)),
            f"batch-invariant {['off', 'on'][invariant]}",
        )
        try:
            with server(args, invariant=invariant, share=share) as root:
                for one in measured(root, args, requests, share, invariant=invariant):
                    rounds.append(one)
                    print(f"{named}: {one.client}, round {one.number}: {one.wall_s:.2f} s", file=sys.stderr)
        except (OutOfTime, urllib.error.URLError) as why:
            here = sum(one.invariant == invariant for one in rounds)
            left_out.append(f"{named}: {here} of 4 rounds ({str(why) or 'the others did not fit into its share'})")
    return rounds, left_out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="Qwen/Qwen2.5-7B-Instruct", help="a folder or the name of a model")
    parser.add_argument("--cpu", metavar="DIR", help="a small model's folder: the same in miniature on the CPU")
    parser.add_argument("--users", type=int, help="users of the news sample (default: 40, on the CPU 1)")
    parser.add_argument("--concurrency", type=int, help="requests in flight (default: 256, on the CPU 4)")
    parser.add_argument("--limit", type=float, default=360.0, help="seconds for all of it")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has vLLM")
    parser.add_argument("--json", default="bench_gpu.json", help="where the figures go")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    args.model = args.cpu or args.model
    args.users = args.users or (1 if args.cpu else 40)
    args.concurrency = args.concurrency or (4 if args.cpu else 256)
    began = time.monotonic()
    requests = workload(args.users, 8 if args.cpu else None)[: 12 if args.cpu else None]
    print(f"{len(requests)} requests, at most {args.limit:.0f} s", file=sys.stderr)
    if args.dry_run:
        print(f"start:   VLLM_SERVER_DEV_MODE=1 VLLM_BATCH_INVARIANT=0|1 {' '.join(served_by(args))}")
        print(f"ask:     two rounds of {VLLM} and of {OURS}, {args.concurrency} in flight")
        print(f"write:   {args.json}")
        return 0
    rounds, left_out = go(args, requests, began)
    print(table(rounds))
    for words in left_out:
        print(f"not measured: {words}")
    plain = [asdict(one) | {"tokens_a_second": one.tokens_a_second} for one in rounds]
    Path(args.json).write_text(json.dumps({"model": args.model, "rounds": plain, "not_measured": left_out}, indent=1))
    return 0 if rounds and not left_out else 1


if __name__ == "__main__":
    raise SystemExit(main())
