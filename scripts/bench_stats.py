#!/usr/bin/env python3
"""The bootstrap of macro-F1: vectorised over draws, beside a loop of scikit-learn's f1_score over the same draws.

Both see the same resamples of the same answers. The loop is timed on `--loop` of them and reckoned up a draw; ours
makes all `--draws`. Rounds alternate, on one thread; a figure is the median, in milliseconds of CPU. The values of the
draws that both made, and the ends of the interval over them, must agree to 1e-12, else the exit code is 1. Then what
other comparisons of a report take.

    pip install -e . && python scripts/bench_stats.py
    python scripts/bench_stats.py --items 1000 --labels 15 --json
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads its BLAS
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from sklearn.metrics import f1_score

from personalink import stats
from personalink.stats.bootstrap import Bootstrap, resample_blocks
from personalink.stats.macro_f1 import macro_f1_of

SEED = 12345


def answers(items: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Gold labels and answers as numbers, three quarters right; −1 for an answer outside the labels."""
    random = np.random.default_rng(SEED)
    gold = random.integers(0, labels, items)
    return gold, np.where(random.random(items) < 0.74, gold, random.integers(-1, labels, items))


def looped(gold: np.ndarray, given: np.ndarray, labels: int, rows: np.ndarray) -> np.ndarray:
    every = list(range(labels))
    scores = [f1_score(gold[row], given[row], labels=every, average="macro", zero_division=0) for row in rows]
    return np.array(scores)


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of CPU that `work` takes."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def macro_f1(args: argparse.Namespace) -> dict[str, float | bool]:
    gold, given = answers(args.items, args.labels)
    blocks = resample_blocks(args.items, draws=args.draws, seed=SEED)
    rows = np.array(list(itertools.islice(itertools.chain.from_iterable(blocks), args.loop)))

    def vectorised() -> np.ndarray:
        return Bootstrap(args.draws, SEED).values(macro_f1_of(gold, given, args.labels), args.items)

    ours, theirs = [], []
    for _ in range(args.rounds):
        theirs.append(timed(lambda: looped(gold, given, args.labels, rows)) / len(rows))
        ours.append(timed(vectorised) / args.draws)
    values = vectorised()[: len(rows)]
    expected = looped(gold, given, args.labels, rows)
    ends = [np.percentile(v, [2.5, 97.5]) for v in (values, expected)]
    difference = float(max(np.abs(values - expected).max(), np.abs(ends[0] - ends[1]).max()))
    return {
        "sklearn_ms": statistics.median(theirs),
        "ours_ms": statistics.median(ours),
        "ratio": statistics.median(t / o for t, o in zip(theirs, ours, strict=True)),
        "largest_difference": difference,
        "agree": difference <= 1e-12,
    }


def others(rounds: int) -> dict[str, float]:
    """What else a report calls, in milliseconds of CPU; 10,000 draws where there are draws."""
    random = np.random.default_rng(SEED)
    a, b = random.integers(0, 5, (2, 200)).astype(float)
    many = {f"{i:05d}": [float(v)] for i, v in enumerate(random.normal(size=10_000))}
    jobs: dict[str, Callable[[], object]] = {
        "mcnemar, 200 pairs": lambda: stats.mcnemar(a > 1, b > 1),
        "paired_bootstrap, 200 pairs": lambda: stats.paired_bootstrap(a, b, seed=SEED),
        "paired_bootstrap, bca, 200 pairs": lambda: stats.paired_bootstrap(a, b, seed=SEED, method="bca"),
        "sign_flip, 200 whole numbers (exact)": lambda: stats.sign_flip(a - b, seed=SEED),
        "sign_flip, 200 reals (monte carlo)": lambda: stats.sign_flip(a - b * 0.37, seed=SEED),
        "minimum_detectable_mcnemar, 200 pairs": lambda: stats.minimum_detectable_mcnemar(200, discordant=0.2),
        "cluster_bootstrap, 10,000 users": lambda: stats.cluster_bootstrap(many, seed=SEED),
    }
    return {name: statistics.median(timed(job) for _ in range(rounds)) for name, job in jobs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--labels", type=int, default=15)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--loop", type=int, default=200, help="draws that scikit-learn makes a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.loop > args.draws:
        parser.error(f"--loop is {args.loop} and --draws is {args.draws}; the loop makes some of the draws")
    found = macro_f1(args)
    rest = others(min(3, args.rounds))
    if args.json:
        print(json.dumps({"macro_f1": found, "others_ms": rest}, indent=2))
    else:
        print(f"macro-F1, {args.items} items, {args.labels} labels, a draw")
        print(f"  scikit-learn in a loop   {found['sklearn_ms']:10.4f} ms  ({args.loop} draws)")
        print(f"  personalink.stats        {found['ours_ms']:10.4f} ms  ({args.draws} draws)")
        print(f"  ratio                    {found['ratio']:10.0f} ×")
        same = "agree" if found["agree"] else "DISAGREE"
        print(f"  values and interval {same}: largest difference {found['largest_difference']:.1e}")
        print("\nOther comparisons, the whole call")
        for name, ms in rest.items():
            print(f"  {name:40} {ms:10.2f} ms")
    return 0 if found["agree"] else 1


if __name__ == "__main__":
    sys.exit(main())
