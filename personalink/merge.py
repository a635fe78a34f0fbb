"""Joining the shards of one experiment into the run that an unsharded one would have sealed, byte for byte.

Proves first that the union is complete: the same configuration, every shard there once and finished by its own status,
the same manifest, every user in exactly the shard that holds it. Nothing is written before all that is proved, and what
a merge that was killed left behind is written anew by the next one. Asks no model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from personalink.canonical import digest, write_atomic
from personalink.config import ShardConfig
from personalink.errors import ConfigError, IncompleteRun, IntegrityError, UsageError
from personalink.lm.ledger import Bill, Counts, Ledger
from personalink.run_dir import NAME_DIGITS, RunDir

_LINES = ("predictions.jsonl", "floors.jsonl", "golds.jsonl")
_ALIKE = {
    "manifest.json": "they were not made from the same data",
    "model.json": "they were not asked of one model",
    "data.json": "they were not made from the same data",
}
"""What is the same in every shard, and what it means where it is not."""


def merge(shards: Sequence[RunDir]) -> RunDir:
    """Merge shards into a run beside them; its tables are sealed by `score_run` afterwards.

    Raises:
        UsageError: these are not the shards of one experiment, one is missing or given twice, or another run, merged or
            unsharded, stands where the merged one belongs.
        IncompleteRun: a shard was not finished.
        IntegrityError: a shard is damaged or was altered; they differ in data or model; a user is missing, or in the
            wrong shard.
    """
    whole = _whole_config(shards)
    for shard in shards:
        shard.check_seal()
        state = shard.status["state"]
        if state != "complete":
            msg = f"{shard.path} is {state or 'not finished'}; run its command again first"
            raise IncompleteRun(msg)
    alike = {name: _same(shards, name) for name in _ALIKE}
    order = _users(shards[0])
    records = {name: _by_user(shards, name, order) for name in _LINES}
    ledger = _ledger(shards)
    target = _target(shards, whole)
    _check_free(target)
    target.open(whole, fresh=False)
    target.sweep()
    for name, text in alike.items():
        target.seal(name, text)
    for name, users in records.items():
        target.seal_lines(name, (record for user in order for record in users[user]))
    _products(shards, target)
    target.close_seal()
    write_atomic(target.log / "ledger.json", ledger.as_json())
    target.set_status("complete", incomplete={}, users=len(order), finished=len(order), merged=len(shards))
    return target


def merged_already(shards: Sequence[RunDir]) -> RunDir | None:
    """The whole run of these shards where it is there, finished and as it was sealed; else None.

    Raises:
        UsageError: these are not the shards of one experiment, or one is missing or given twice.
        IntegrityError: a configuration, or what stands there, is damaged.
    """
    target = _target(shards, _whole_config(shards))
    return target if _stands(target) else None


def _target(shards: Sequence[RunDir], whole: dict[str, Any]) -> RunDir:
    """Where the merged run belongs: where the unsharded one would be."""
    return RunDir(shards[0].path.parent / digest(whole)[:NAME_DIGITS])


def _stands(run: RunDir) -> bool:
    return run.status["state"] == "complete" and not run.broken_seal()


def _check_free(target: RunDir) -> None:
    """A merge that was killed is in nobody's way, and has no journal; a run that asked a model has one.

    Raises:
        UsageError: a run stands there.
    """
    if _stands(target):
        msg = f"{target.path} holds this run already, merged or unsharded"
        raise UsageError(msg)
    if (target.log / "journal").exists():
        msg = f"{target.path} holds this run unsharded and unfinished; its command goes on, or move that folder away"
        raise UsageError(msg)


def _config(run: RunDir) -> dict[str, Any]:
    """The configuration of a run, with a shard that is one.

    Raises:
        IntegrityError: it is damaged.
    """
    config = run.read_json("sealed/config.json")
    try:
        index, count = config["shard"]["index"], config["shard"]["count"]
        if type(index) is not int or type(count) is not int:
            raise TypeError("shard.index and shard.count must be whole numbers")
        ShardConfig(index, count)
    except (TypeError, KeyError, ConfigError) as error:
        msg = f"{run.sealed / 'config.json'} is damaged: it has no shard ({type(error).__name__}: {error})"
        raise IntegrityError(msg) from None
    return dict(config)


def _experiment(config: dict[str, Any]) -> str:
    """What all shards of one experiment have in common, digested: everything but the index."""
    return digest({**config, "shard": config["shard"]["count"]})


def _whole_config(shards: Sequence[RunDir]) -> dict[str, Any]:
    """The configuration without its shard, after checking that the shards are those of one experiment."""
    configs = [_config(shard) for shard in shards]
    if len({_experiment(config) for config in configs}) != 1:
        differ = ", ".join(sorted({key for one in _differing(configs) for key in one}))
        msg = f"these are not the shards of one experiment: they differ in more than shard.index ({differ})"
        raise UsageError(msg)
    count = configs[0]["shard"]["count"]
    indices = sorted(config["shard"]["index"] for config in configs)
    if indices != list(range(count)):
        missing = sorted(set(range(count)) - set(indices))
        what = f"shard {missing[0]} of {count} is missing" if missing else "a shard was given twice"
        msg = f"{what}, beside {shards[0].path}"
        raise UsageError(msg)
    return {**configs[0], "shard": {"index": 0, "count": 1}}


def _same(shards: Sequence[RunDir], name: str) -> str:
    """The text of a sealed file that is the same in every shard.

    Raises:
        IntegrityError: it is not, or cannot be read.
    """
    try:
        texts = {(shard.sealed / name).read_text(encoding="utf-8") for shard in shards}
    except (OSError, UnicodeDecodeError) as error:
        msg = f"a shard's {name} is damaged: {error}"
        raise IntegrityError(msg) from None
    if len(texts) != 1:
        msg = f"the shards differ in {name}: {_ALIKE[name]}"
        raise IntegrityError(msg)
    return texts.pop()


def _users(shard: RunDir) -> list[str]:
    """Every user of the experiment, in the manifest's order."""
    try:
        return [str(entry["user"]) for entry in shard.read_json("sealed/manifest.json")["entries"]]
    except (TypeError, KeyError) as error:
        msg = f"{shard.sealed / 'manifest.json'} is damaged ({type(error).__name__}: {error})"
        raise IntegrityError(msg) from None


def _records(shard: RunDir, name: str) -> Iterator[tuple[str, Any]]:
    """(user, record) of a sealed file of a shard."""
    for number, record in enumerate(shard.read_lines(f"sealed/{name}"), 1):
        if not isinstance(record.get("user"), str):
            msg = f"{shard.sealed / name} is damaged in line {number}: it names no user"
            raise IntegrityError(msg)
        yield record["user"], record


def _by_user(shards: Sequence[RunDir], name: str, order: Sequence[str]) -> dict[str, list[Any]]:
    """The records of a file by user, each from the shard that holds the user."""
    users: dict[str, list[Any]] = {user: [] for user in order}
    for shard in shards:
        mine = ShardConfig(**_config(shard)["shard"])
        for user, record in _records(shard, name):
            if user not in users or not mine.holds(user):
                msg = f"{shard.path}: user {user!r} does not belong in this shard"
                raise IntegrityError(msg)
            users[user].append(record)
    for user, records in users.items():
        if not records:
            msg = f"user {user!r} is in no shard's {name}: the union is not complete"
            raise IntegrityError(msg)
    return users


def _products(shards: Sequence[RunDir], target: RunDir) -> None:
    """Products sorted by user, and the personas as they are."""
    names = {path.name for shard in shards for path in (shard.sealed / "products").glob("*.jsonl")}
    for name in sorted(names):
        records = [both for shard in shards for both in _records(shard, f"products/{name}")]
        target.seal_lines(f"products/{name}", (record for _, record in sorted(records, key=lambda both: both[0])))
    for shard in shards:
        for path in sorted((shard.sealed / "personas").glob("*")):
            target.seal(f"personas/{path.name}", path.read_text(encoding="utf-8"))


def _ledger(shards: Sequence[RunDir]) -> Ledger:
    """The shards' ledgers added up. A donor's draft asked for in two shards was paid for twice, and stands so."""
    total = Ledger()
    for shard in shards:
        try:
            for line in shard.read_json("log/ledger.json")["lines"]:
                bill = Bill(*(line[name] for name in Bill._fields))
                counts = Counts(**{name: value for name, value in line.items() if name not in Bill._fields})
                total.add(bill, counts)
        except (TypeError, KeyError, AttributeError) as error:
            msg = f"{shard.log / 'ledger.json'} is damaged ({type(error).__name__}: {error})"
            raise IntegrityError(msg) from None
    return total


def find_shards(where: str | Path) -> dict[str, list[RunDir]]:
    """The shards under an experiment's folder, those of one configuration together, complete or not.

    A folder that does not bear its configuration's digest as its name (put aside by fresh=true, or a copy) is left out.

    Returns:
        For each configuration its shards, by what tells it from the others there, such as "seed=1"; "" for an only one.

    Raises:
        UsageError: there are none.
        IntegrityError: a run's configuration is damaged.
    """
    path = Path(where).expanduser()
    found = [RunDir(p.parent.parent) for p in sorted(path.glob("*/sealed/config.json"))]
    groups: dict[str, list[RunDir]] = {}
    for run in (run for run in found if _is_digest(run.path.name)):
        config = _config(run)
        if digest(config)[:NAME_DIGITS] != run.path.name:
            msg = f"{run.sealed / 'config.json'} was altered: its digest is not the name of its folder"
            raise IntegrityError(msg)
        if config["shard"]["count"] > 1:
            groups.setdefault(_experiment(config), []).append(run)
    if not groups:
        msg = f"no shards under {path}: expected the folder of an experiment run with shard.count above 1"
        raise UsageError(msg)
    differ = _differing([_config(runs[0]) for runs in groups.values()])
    named = (", ".join(f"{key}={json.dumps(value)}" for key, value in sorted(one.items())) for one in differ)
    return dict(zip(named, groups.values(), strict=True))


def _is_digest(name: str) -> bool:
    return len(name) == NAME_DIGITS and set(name) <= set("0123456789abcdef")


def _differing(configs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each configuration the settings, by dotted key, in which they are not all alike; the shard's index aside."""
    flat = [dict(_settings(config)) for config in configs]
    keys = {key for one in flat for key in one} - {"shard.index"}
    missing = object()
    unlike = {key for key in keys if any(one.get(key, missing) != flat[0].get(key, missing) for one in flat)}
    return [{key: value for key, value in one.items() if key in unlike} for one in flat]


def _settings(value: dict[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _settings(inner, f"{where}{key}.")
        else:
            yield f"{where}{key}", inner
