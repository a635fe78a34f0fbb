"""`personalink export-batch` and `import-batch`: a run that is asked by files instead of a server.

Both do what `run` does with a model that knows no more than the files given, so whatever can be asked for next is
known, and what was answered stands in the run's own journal. Knows words and files; the form is `lm.batch`'s.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from personalink.cli.compose import compose, plain_values, run_config
from personalink.cli.run import show
from personalink.cli.streams import out, told, told_error
from personalink.cli.words import to_go_on
from personalink.config import LMConfig, RunConfig
from personalink.errors import ConfigError, DataError, IncompleteRun, NotAnswered, StorageError, UsageError
from personalink.lm.batch import BatchLM, Results
from personalink.lm.budget import Limits
from personalink.lm.counters import TokenizerCounter
from personalink.lm.journal import Journal
from personalink.running import Finished, arun, command_line

USAGE = """usage: personalink export-batch [the words of run] --out requests.jsonl
       personalink import-batch results.jsonl [more.jsonl …] [the words of run] [--out next.jsonl]

export-batch writes what the run asks next in the OpenAI batch form; import-batch takes the answers into the run.
The model is named: lm=vllm lm.model=NAME, or lm=endpoint lm.dialect=openai lm.model=NAME for a service.
  vllm run-batch -i requests.jsonl -o results.jsonl --model NAME
exit codes of import-batch: 0 the run is complete, 4 something is still to ask; others as for run"""

_FLAGS = (
    "--generation-config vllm --enable-prompt-tokens-details --structured-outputs-config "
    """'{"backend": "xgrammar", "disable_any_whitespace": true}'"""
)
"""As in scripts/serve_vllm.sh, so that a batch answers as the server does."""


_KEY = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed: the words of `run`, the results files, and the file to write."""

    words: list[str]
    files: list[Path]
    out: Path | None


def export_batch(arguments: Sequence[str]) -> int:
    """`personalink export-batch`: 0 when the file is written, or the run is complete and nothing is left to ask.

    Raises:
        UsageError: the words cannot be read, or describe no run that a batch can answer; or --out names a file that
            holds something else than requests.
        StorageError: the file cannot be written.
    """
    if _asks_for_help(arguments):
        return 0
    typed = _typed(arguments)
    if typed.files or typed.out is None:
        raise UsageError("export-batch reads no file and writes one: say --out requests.jsonl")
    _check_out(typed.out)
    config = _composed(typed.words)
    lm = _batch_lm(config, Results())
    finished = asyncio.run(arun(config, lm=lm))
    if lm.pending:
        _write(lm, typed.out, config, typed)
    return _ended(config, finished, lm, to_ask=0)


def import_batch(arguments: Sequence[str]) -> int:
    """`personalink import-batch`: 0 when the run is complete, 4 while something is to ask.

    Raises:
        UsageError: as `export_batch`.
        DataError: a results file cannot be read, or no line of it belongs to this run.
        IntegrityError: the results are of another model.
        StorageError: the file cannot be written.
    """
    if _asks_for_help(arguments):
        return 0
    typed = _typed(arguments)
    if not typed.files:
        raise UsageError("import-batch: which results? name at least one file that ends in .jsonl")
    results = Results.read(typed.files)
    if typed.out is not None:
        _check_out(typed.out)
    config = _composed(typed.words)
    lm = _batch_lm(config, results)
    finished = asyncio.run(arun(config, lm=lm))
    _tell(finished, results, lm)
    if lm.pending and typed.out is not None:
        _write(lm, typed.out, config, typed)
    return _ended(config, finished, lm, to_ask=IncompleteRun.exit_code)


def _asks_for_help(arguments: Sequence[str]) -> bool:
    asked = bool({"-h", "--help"} & set(arguments))
    if asked:
        out(USAGE)
    return asked


def _typed(arguments: Sequence[str]) -> Typed:
    words, files, target = [], [], None
    waiting = iter(arguments)
    for word in waiting:
        if word == "--out" or word.startswith("--out="):
            named = word.partition("=")[2] if "=" in word else next(waiting, "")
            if not named:
                raise UsageError("--out: the file to write is missing, e.g. --out requests.jsonl")
            target = Path(named)
        elif word in ("-m", "--multirun"):
            raise UsageError("a batch is of one run: leave -m out, and export each job of the sweep by itself")
        elif word.endswith(".jsonl") and "=" not in word:
            files.append(Path(word))
        else:
            words.append(word)
    return Typed(words, files, target)


def _check_out(path: Path) -> None:
    """Requests take the place of older requests, which are made again at no cost, and of nothing else: not of results,
    which were paid for.

    Raises:
        UsageError: the file is there and holds something else, or is none that can be read.
    """
    if path.exists() and not _holds_requests(path):
        raise UsageError(f"--out: {path} is there and holds no requests (results, perhaps); give another file")


def _holds_requests(path: Path) -> bool:
    """Whether every line of a file is a request; so it is where there is none."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as lines:
            return all(_is_request(raw) for raw in lines if raw.strip())
    except OSError:
        return False


def _is_request(raw: bytes) -> bool:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(line, dict) and {"custom_id", "body"} <= line.keys() and not {"response", "error"} & line.keys()


def _composed(words: Sequence[str]) -> RunConfig:
    """The configuration that Hydra composes of these words.

    Raises:
        ConfigError: it could not be composed.
    """
    values: list[Any] = []
    compose(words, lambda config: values.append(plain_values(config)))
    if not values:
        raise UsageError("export-batch and import-batch take no --cfg and the like; use them with run")
    return run_config(values[0])


def _batch_lm(config: RunConfig, results: Results) -> BatchLM:
    """The model of a configuration, asked by files.

    Raises:
        ConfigError: it is no server's, or the run needs what no batch can keep.
    """
    lm: LMConfig = config.lm
    if lm.kind != "endpoint":
        raise ConfigError(f"lm.kind is {lm.kind}, which no batch asks; use lm=vllm lm.model=NAME")
    if lm.dialect == "auto":
        raise ConfigError("lm.dialect=auto: there is no server to ask what it is; say vllm, llama_cpp or openai")
    if config.rewriter is not None:
        raise ConfigError("a batch is of one model; use rewriter=none")
    limits = [f.name for f in fields(Limits) if f.name != "prices" and getattr(config.budget, f.name) is not None]
    if limits:
        raise ConfigError(
            f"budget.{limits[0]} cannot be kept by a batch, which another program sends; leave it out and look at "
            "the number of requests before you send them"
        )
    counter = TokenizerCounter(lm.tokenizer) if lm.tokenizer is not None else None
    return BatchLM(lm.model or "", results, dialect=lm.dialect, revision=lm.revision, window=lm.window, counter=counter)


def _write(lm: BatchLM, path: Path, config: RunConfig, typed: Typed) -> None:
    """Write what is to ask, and say how to have it answered and what comes then."""
    try:
        lm.write(path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from None
    results = path.with_name(f"{path.stem}.results.jsonl")
    files = [str(file) for file in (*typed.files, results)]
    lines = [f"{len(lm.pending):,} requests: {path}   (tokens counted by {lm.counter.id})"]
    if lm.dialect == "vllm":
        asked = ["vllm", "run-batch", "-i", str(path), "-o", str(results), "--model", lm.model]
        lines.append(f"answer them: {shlex.join(asked)} {_FLAGS}")
    else:
        lines.append(f"answer them with your service; its results: {results}")
    following = ["import-batch", *files, *to_go_on(typed.words), "--out", str(_next(path))]
    lines.append(f"then:        {command_line(following)}")
    if config.optimizer.race:
        lines.append(
            "A pass takes up to three files: the rewrite, then the incumbent's errors, then the rest of the slice; "
            "optimizer.race=false asks the slice at once: more requests, fewer files."
        )
    out("\n".join(lines))


def _next(path: Path) -> Path:
    """The name of the file after this one: requests.jsonl, requests-2.jsonl, requests-3.jsonl."""
    stem, _, number = path.stem.rpartition("-")
    named = f"{stem}-{int(number) + 1}" if stem and number.isdecimal() else f"{path.stem}-2"
    return path.with_name(named + path.suffix)


def _tell(finished: Finished, results: Results, lm: BatchLM) -> None:
    """What became of the lines.

    Raises:
        DataError: not one of them is of this run.
    """
    with Journal(finished.result.run.log / "journal") as journal:
        ours = sum(_KEY.fullmatch(key) is not None and key in journal for key in results.answered)
    others = len(results.answered) - ours
    failed = {key: why for key, why in results.failed.items() if key in lm.pending}
    if results.answered and not ours and not failed:
        raise DataError(
            f"none of the {others:,} answers is of this run ({finished.result.run.path}); give import-batch the same "
            "words as export-batch"
        )
    out(f"taken: {ours:,} answers of {len(results.answered) + len(results.failed):,} lines")
    if others:
        out(f"not asked for: {others:,}, of another run or behind what is not answered")
    if results.repeated:
        out(f"answered twice: {results.repeated:,}, the first kept")
    if results.failed:
        key, why = min(results.failed.items())
        out(f"failed: {len(results.failed):,} ({key[:12]}: {why}); {len(failed):,} of them are asked again")
    out(f"still to ask: {len(lm.pending):,}")


def _ended(config: RunConfig, finished: Finished, lm: BatchLM, *, to_ask: int) -> int:
    """Show what `run` shows of a run that files take no further; the exit code, `to_ask` while something is to ask."""
    trouble = finished.trouble
    others = [error for error in finished.result.incomplete.values() if not isinstance(error, NotAnswered)]
    if lm.pending and not others:
        return to_ask
    if trouble is None:
        show(config, finished)
        return 0
    if others and lm.pending:
        told(f"personalink: {others[0]}")
    return told_error(trouble)
