#!/usr/bin/env python3
"""How long the persona pages of many users take to write and to open, and how large they are.

The users of a finished run are given to as many as are asked for, each with its history, personas and answers, so that
pages have the size that they have in earnest. Then Debian's Chromium opens them from the disk.

    python scripts/bench_pages.py runs/quickstart --users 10000
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from personalink.data import load_records, make_manifest
from personalink.report.evidence import Evidence, load
from personalink.report.pages import write
from personalink.report.pages.texts import Texts

FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SORTED = """() => new Promise((done) => {
  const head = document.querySelector("th[data-key=history]"), began = performance.now();
  new MutationObserver(() => done(performance.now() - began)).observe(head, { attributes: true });
  head.querySelector("button").click();
})"""


def many(one: Evidence, n: int, folder: Path) -> Evidence:
    """The users of a run, again and again under other ids, with their data in a file."""
    people, data = Texts.of(one).users, folder / "many.jsonl"
    source = {f"user-{i}": one.users[i % len(one.users)] for i in range(n)}
    answers = {row: {judged.prediction.user: judged for judged in found} for row, found in one.rows.items()}
    with data.open("w", encoding="utf-8") as file:
        for name, user in source.items():
            for kind, pieces in (("history", people[user].history), ("query", people[user].queries)):
                for piece in pieces:
                    label = getattr(piece, "label", one.task.labels[0])
                    row = {"user": name, "id": piece.id, "input": piece.input, "label": label, "split": kind}
                    file.write(json.dumps(row) + "\n")
    return replace(
        one,
        config={**one.config, "data": {"kind": "records", "path": str(data)}},
        manifest=make_manifest(load_records(data), n_users=None).as_dict(),
        users=tuple(source),
        rows={
            row: tuple(replace(found[u], prediction=replace(found[u].prediction, user=n)) for n, u in source.items())
            for row, found in answers.items()
        },
        refinements={n: replace(one.refinements[u], user=n) for n, u in source.items() if u in one.refinements},
        history_size={name: one.history_size[user] for name, user in source.items()},
    )


def opened(page: Any, path: Path) -> float | None:
    """Milliseconds until something of a page is seen."""
    page.goto(path.as_uri())
    page.wait_for_timeout(300)
    found: float | None = page.evaluate(FIRST_PAINT)
    return found


def times(folder: Path, repeats: int) -> dict[str, list[float | None]]:
    """What a reader waits for, in milliseconds, from new."""
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float | None]] = {}
    with sync_playwright() as player:
        arguments = ["--no-sandbox", "--disable-background-networking"]
        browser = player.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        for _ in range(repeats):
            context = browser.new_context()
            page = context.new_page()
            found.setdefault("overview", []).append(opened(page, folder / "index.html"))
            found.setdefault("a user", []).append(opened(page, folder / "users" / "user-1.html"))
            page.goto((folder / "users.html").as_uri())
            page.wait_for_selector("select option:nth-child(2)", state="attached")
            found.setdefault("list, all users at hand", []).append(page.evaluate("performance.now()"))
            found.setdefault("list, first hundred seen", []).append(page.evaluate(FIRST_PAINT))
            found.setdefault("sorted", []).append(page.evaluate(SORTED))
            context.close()
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a finished run whose data are at hand")
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=9)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        evidence = many(load(asked.run), asked.users, Path(where))
        began = time.perf_counter(), time.process_time()
        told = write(evidence, Path(where) / "pages")
        wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
        print(f"{told.users:,} users: {told.files:,} files, {told.size / 1e6:.1f} MB, {wall:.1f} s ({cpu:.1f} s CPU)")
        for name, found in times(told.index.parent, asked.repeats).items():
            known = [value for value in found if value is not None]
            print(f"{name}: {statistics.median(known):.0f} ms in the median of {len(known)}, {max(known):.0f} at most")


if __name__ == "__main__":
    main()
