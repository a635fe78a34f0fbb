#!/usr/bin/env python3
"""One experiment through several engines: the same manifest and prompts everywhere, and how many answers differ.

    python scripts/compare_engines.py experiment=quickstart data.n_users=2 \\
        --engines embedded vllm:DIR transformers:DIR http://127.0.0.1:8000/v1

Requests are compared by the key that journal and cache use, less who answers. What is known word for word before
anything is sent (`personalink plan`) must be asked of every engine, and the manifests must be one: otherwise the exit
code is 1. What hangs on earlier answers (a persona's own slice, a draft) may part ways, and is counted. A request that
two engines were asked is compared by its answer: as text, and by the label read from it where it is a test question.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from personalink.cli.compose import compose, plain_values, run_config
from personalink.config import RunConfig
from personalink.errors import PersonalinkError
from personalink.experiment import Experiment
from personalink.lm import LM, Completion, Request, connect
from personalink.predictions import Prediction
from personalink.running import arun


class Recording:
    """An LM that keeps what it was asked and answered, by the request's key without who answers."""

    def __init__(self, lm: LM) -> None:
        self._lm = lm
        self.answers: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)

    async def complete(self, request: Request) -> Completion:
        """Pass it on."""
        done = await self._lm.complete(request)
        self.answers[request.key("")] = done.text
        return done


@dataclass
class Told:
    """What came of one engine: answers by request, labels by (row, user, query), and how many requests were `known`
    before anything was sent."""

    engine: str
    answers: dict[str, str]
    labels: dict[tuple[str, str, str], str | None]
    manifest: str
    seconds: float
    known: int


async def through(engine: str, config: RunConfig, folder: Path) -> Told:
    """Run the experiment through one engine, in a folder of its own."""
    lm = Recording(connect(engine))
    config = replace(config, runs_dir=str(folder))
    planned = Experiment(replace(config, name="plan"), lm=lm)  # type: ignore[arg-type]
    await lm.start()
    known = planned.planned(lm).exact  # type: ignore[arg-type]
    began = time.perf_counter()
    finished = await arun(config, lm=lm)  # type: ignore[arg-type]
    seconds = time.perf_counter() - began
    await lm.aclose()
    if finished.result.incomplete:
        sys.exit(f"compare_engines: {engine}: {finished.trouble}")
    run = finished.result.run
    predictions = [Prediction.from_dict(line) for line in run.read_lines("sealed/predictions.jsonl")]
    return Told(
        engine,
        lm.answers,
        {(p.row, p.user, p.query): p.label for p in predictions},
        (run.sealed / "manifest.json").read_text(),
        seconds,
        known,
    )


def beside(first: Told, other: Told) -> tuple[int, int, int]:
    """Requests that both were asked, those of them with the same text, and test predictions with another label."""
    both = first.answers.keys() & other.answers.keys()
    same = sum(first.answers[key] == other.answers[key] for key in both)
    return len(both), same, sum(other.labels[who] != label for who, label in first.labels.items())


def table(told: list[Told]) -> str:
    """Each engine beside the first."""
    first = told[0]
    lines = [
        f"| engine | requests | asked of {first.engine} too | of these the same text | other labels | s |",
        "|---|---|---|---|---|---|",
    ]
    for one in told:
        both, same, flips = beside(first, one)
        cells = (one.engine, len(one.answers), both, same, f"{flips} of {len(one.labels)}", f"{one.seconds:.0f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def check(told: list[Told]) -> list[str]:
    """What should be the same everywhere and is not, a line each."""
    common = set.intersection(*(set(one.answers) for one in told))
    wrong = [f"{one.engine}: another manifest" for one in told if one.manifest != told[0].manifest]
    if len({one.known for one in told}) > 1 or len(common) < told[0].known:
        known = ", ".join(f"{one.known} of {one.engine}" for one in told)
        wrong.append(f"known before anything is sent: {known}; asked of all: {len(common)}")
    return wrong


async def compare(engines: list[str], config: RunConfig) -> list[Told]:
    """Through each engine, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        return [await through(engine, config, Path(folder) / str(i)) for i, engine in enumerate(engines)]


def composed(words: list[str]) -> RunConfig:
    """The configuration that Hydra's words come to."""
    found: list[RunConfig] = []
    compose(words, lambda config: found.append(run_config(plain_values(config))))
    return found[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", default=["experiment=quickstart"], help="Hydra's words")
    parser.add_argument("--engines", nargs="+", required=True, help='as `connect` takes them: "embedded", a URL, …')
    args = parser.parse_args()
    try:
        told = asyncio.run(compare(args.engines, composed(args.words or ["experiment=quickstart"])))
    except PersonalinkError as error:
        print(f"compare_engines: {error}", file=sys.stderr)
        return error.exit_code
    common = Counter(key for one in told for key in one.answers)
    everywhere = sum(count == len(told) for count in common.values())
    print(table(told))
    print(f"\n{told[0].known} requests are known before anything is sent; {everywhere} were asked of every engine.")
    wrong = check(told)
    for line in wrong:
        print(f"compare_engines: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
