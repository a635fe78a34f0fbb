"""Joining the shards of one experiment into the run that an unsharded one would have sealed, byte for byte.

Proves first that the union is complete: the same configuration, every shard there once and finished by its own status,
the same manifest, every user in exactly the shard that holds it. Asks no model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from personalink.canonical import digest, write_atomic
from personalink.config import ShardConfig
from personalink.errors import IncompleteRun, IntegrityError, UsageError
from personalink.lm.ledger import Bill, Counts, Ledger
from personalink.run_dir import RunDir

_LINES = ("predictions.jsonl", "floors.jsonl", "golds.jsonl")


def merge(shards: Sequence[RunDir]) -> RunDir:
    """Merge shards into a run beside them; its tables are sealed by `report` afterwards.

    Raises:
        UsageError: these are not the shards of one experiment, or one is missing or given twice.
        IncompleteRun: a shard was not finished.
        IntegrityError: a user is missing, or in the wrong shard; or another run stands where the merged one belongs.
    """
    whole = _whole_config(shards)
    for shard in shards:
        shard.check_seal()
        state = shard.status["state"]
        if state != "complete":
            msg = f"{shard.path} is {state or 'not finished'}; run its command again first"
            raise IncompleteRun(msg)
    manifests = {(s.sealed / "manifest.json").read_bytes() for s in shards}
    if len(manifests) != 1:
        msg = "the shards have different manifests: they were not made from the same data"
        raise IntegrityError(msg)
    order = [entry["user"] for entry in json.loads(next(iter(manifests)))["entries"]]
    target = RunDir(shards[0].path.parent / digest(whole)[:12])
    if (target.sealed / "predictions.jsonl").exists():
        msg = f"{target.path} holds this run already, merged or unsharded"
        raise UsageError(msg)
    records = {name: _by_user(shards, name, order) for name in _LINES}
    target.open(whole, fresh=False)
    target.sweep()
    target.seal("manifest.json", next(iter(manifests)).decode())
    for name, users in records.items():
        target.seal_lines(name, (record for user in order for record in users[user]))
    for name in ("model.json", "data.json"):
        texts = {(shard.sealed / name).read_text(encoding="utf-8") for shard in shards}
        if len(texts) != 1:
            msg = f"the shards differ in {name}: they were not asked of one model over the same data"
            raise IntegrityError(msg)
        target.seal(name, texts.pop())
    _products(shards, target)
    target.close_seal()
    target.set_status("complete", incomplete={}, users=len(order), finished=len(order), merged=len(shards))
    write_atomic(target.log / "ledger.json", _ledger(shards).as_json())
    return target


def _whole_config(shards: Sequence[RunDir]) -> dict[str, Any]:
    """The configuration without its shard, after checking that the shards are those of one experiment."""
    configs = [shard.read_json("sealed/config.json") for shard in shards]
    counts = {config["shard"]["count"] for config in configs}
    wholes = {digest({**config, "shard": None}) for config in configs}
    if len(counts) != 1 or len(wholes) != 1:
        msg = "these are not the shards of one experiment: their configurations differ in more than shard.index"
        raise UsageError(msg)
    count = counts.pop()
    indices = sorted(config["shard"]["index"] for config in configs)
    if indices != list(range(count)):
        missing = sorted(set(range(count)) - set(indices))
        what = f"shard {missing[0]} of {count} is missing" if missing else "a shard was given twice"
        raise UsageError(what)
    return {**configs[0], "shard": {"index": 0, "count": 1}}


def _by_user(shards: Sequence[RunDir], name: str, order: Sequence[str]) -> dict[str, list[Any]]:
    """The records of a file by user, each from the shard that holds the user."""
    users: dict[str, list[Any]] = {user: [] for user in order}
    for shard in shards:
        config = shard.read_json("sealed/config.json")["shard"]
        mine = ShardConfig(config["index"], config["count"])
        for record in shard.read_lines(f"sealed/{name}"):
            if record["user"] not in users or not mine.holds(record["user"]):
                msg = f"{shard.path}: user {record['user']!r} does not belong in this shard"
                raise IntegrityError(msg)
            users[record["user"]].append(record)
    for user, records in users.items():
        if not records:
            msg = f"user {user!r} is in no shard's {name}: the union is not complete"
            raise IntegrityError(msg)
    return users


def _products(shards: Sequence[RunDir], target: RunDir) -> None:
    """Products sorted by user, and the personas as they are."""
    names = {path.name for shard in shards for path in (shard.sealed / "products").glob("*.jsonl")}
    for name in sorted(names):
        records = [r for shard in shards for r in shard.read_lines(f"sealed/products/{name}")]
        target.seal_lines(f"products/{name}", sorted(records, key=lambda record: str(record["user"])))
    for shard in shards:
        for path in sorted((shard.sealed / "personas").glob("*")):
            target.seal(f"personas/{path.name}", path.read_text(encoding="utf-8"))


def _ledger(shards: Sequence[RunDir]) -> Ledger:
    """The shards' ledgers added up. A donor's draft asked for in two shards was paid for twice, and stands so."""
    total = Ledger()
    for shard in shards:
        for line in (shard.read_json("log/ledger.json") or {"lines": []})["lines"]:
            bill = Bill(*(line[name] for name in Bill._fields))
            counts = Counts(**{name: value for name, value in line.items() if name not in Bill._fields})
            total.add(bill, counts)
    return total


def find_shards(where: str | Path) -> list[RunDir]:
    """The shards under an experiment's folder.

    Raises:
        UsageError: there are none.
    """
    path = Path(where).expanduser()
    found = [RunDir(p.parent.parent) for p in sorted(path.glob("*/sealed/config.json"))]
    shards = [run for run in found if run.read_json("sealed/config.json").get("shard", {}).get("count", 1) > 1]
    if not shards:
        msg = f"no shards under {path}: expected the folder of an experiment run with shard.count above 1"
        raise UsageError(msg)
    return shards
