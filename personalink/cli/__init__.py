"""The command line: `personalink run | plan | export-batch | import-batch | merge | table | personas | predict | …`.

Data goes to stdout, progress and messages to stderr. What a user gets wrong is one line and the exit code of its
error (see `errors`). Hydra is loaded by `run` alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from personalink import __version__
from personalink.cli.streams import as_utf8, end, prepare, told, told_error
from personalink.errors import PersonalinkError

EPILOG = """
run, plan, doctor, export-batch and import-batch take Hydra's own words: groups (experiment=lamp2 task=lamp3 lm=vllm
context=[nopers,rag_5]), settings (seed=0 data.n_users=8), --config-dir for your own groups; the first three also -m for
sweeps and --cfg job to see the configuration.

  personalink run experiment=quickstart
  personalink run experiment=lamp2 lm=vllm lm.base_url=http://localhost:8000/v1 data.root=~/LaMP

exit codes: 0 complete, 1 unexpected, 2 usage, 3 the model cannot be asked, 4 incomplete, 5 integrity, 130 Ctrl-C,
143 SIGTERM; of a sweep, the worst of its jobs
"""


SORTS = ("user", "gain", "slice", "audit", "kept", "passes", "ended", "errors", "history", "tokens", "calls")
"""The columns of `personas`, as `--sort` takes them."""


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(
        prog="personalink",
        description="Training-free personalization of a frozen language model.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"personalink {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("run", help="run an experiment, or go on with one", add_help=False)
    commands.add_parser("plan", help="least and most calls, tokens, and prompts that will not fit; sends nothing")
    commands.add_parser("export-batch", help="write what a run asks next, for `vllm run-batch` or a batch service")
    commands.add_parser("import-batch", help="take the results of such a file into the run")
    merge = commands.add_parser(
        "merge",
        help="join the shards of an experiment and prove that they are complete",
        description="Of a folder that holds the shards of several configurations (a sweep over seeds, say) each is "
        "merged by itself; what is merged already stays, and what is not complete is named (exit 2 or 4).",
    )
    merge.add_argument("runs", nargs="+", help="the shards' directories, or the folder that holds them")

    table = commands.add_parser("table", help="score a run again from its files, without a model")
    table.add_argument("run", help="the run's directory")
    table.add_argument("--format", choices=("text", "markdown", "csv", "latex", "json"), default="text")
    table.add_argument("--selection", action="store_true", help="slice beside audit scores instead of the results")

    table.add_argument("--cost", action="store_true", help="what each row costs to build and to ask, and when it pays")

    personas = commands.add_parser("personas", help="read what a run wrote about its users: all, or the story of one")
    _personas_options(personas)

    _contraction_options(commands.add_parser("contraction", help="measure how personas move from pass to pass"))
    _report_options(commands.add_parser("report", help="tables, figures and persona pages of runs, without a model"))
    _compare_options(commands.add_parser("compare", help="two runs over the same users, row by row"))

    predict = commands.add_parser("predict", help="answer one input behind a persona")
    predict.add_argument("text", nargs="?", help="the new input; read from stdin when absent")
    predict.add_argument("--persona", help="a persona's .json or .md file; without it, no personalization")
    predict.add_argument(
        "--task", default="lamp2", help="lamp2, lamp2_tags, lamp3, films, or a task's YAML or JSON file"
    )
    predict.add_argument("--constrain", choices=("none", "label", "line"), default="none", help="allow labels only")
    predict.add_argument("--prompt", action="store_true", help="show the exact messages and ask nothing")
    predict.add_argument("--raw", action="store_true", help="print the raw completion")
    _model_options(predict)

    _cache_commands(commands.add_parser("cache", help="look after the answers that are kept across runs"))
    doctor = commands.add_parser(
        "doctor",
        help="check a model, and all that a run needs, by proof",
        description="Without options it takes the same words as run and looks at that run's model, settings, data, "
        "prompts and folders; with --lm it looks at a model by itself. Exit code 3 where a check fails.",
    )
    _model_options(doctor)
    return top


def _personas_options(personas: argparse.ArgumentParser) -> None:
    personas.add_argument("run", help="the run's directory")
    personas.add_argument("--sort", choices=SORTS, help="of the list: numbers descending; default: by id")
    personas.add_argument("--reverse", action="store_true", help="of the list: the other way round")
    personas.add_argument("--top", type=int, metavar="N", help="of the list: the first N")
    personas.add_argument("--user", help="the whole story of one user; without it all are listed")
    personas.add_argument("--depth", "-r", type=int, help="the persona kept after this pass; default: the last")
    personas.add_argument("--diff", metavar="A:B", help="what changed from pass A to pass B, word by word, such as 1:2")
    personas.add_argument("--prompt", action="store_true", help="the exact prompt for the user's test query")
    personas.add_argument("--row", help="of --prompt: as this row sent it; default: behind the persona")
    personas.add_argument("--json", action="store_true", help="for machines: a user a line, or all about one")
    personas.add_argument(
        "--format",
        choices=("text", "markdown", "json"),
        default="text",
        help="the persona alone, as a file to edit (markdown) or to load (json)",
    )


def _report_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("runs", nargs="+", metavar="RUN", help="a run's directory; several give an overview too")
    command.add_argument("--out", metavar="DIR", help="where to; default: report/ in the run's directory")
    command.add_argument(
        "--only", action="append", choices=("tables", "figures", "pages"), help="this part alone; may be given again"
    )
    command.add_argument("--reference", metavar="ROW", help="test all rows against this one; default: the paper's")
    _test_options(command)


def _compare_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("a", metavar="A", help="a run's directory")
    command.add_argument("b", metavar="B", help="another run's, over the same users")
    command.add_argument(
        "--row", action="append", metavar="ROW", help="this row alone, or ROW_OF_A:ROW_OF_B; may be given again"
    )
    command.add_argument("--flips", action="store_true", help="list every query whose label differs")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything, flips included")
    form.add_argument("--csv", action="store_true", help="a line a row; with --flips, a line a flip")
    _test_options(command)


def _test_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--mcnemar", choices=("exact", "mid_p", "chi2cc"), default="exact", help="of labels; chi2cc is the paper's"
    )
    command.add_argument(
        "--margin", type=float, metavar="M", help="of equivalence; default: .05 accuracy, .1 MAE, .02 ROUGE-L"
    )


def _cache_commands(cache: argparse.ArgumentParser) -> None:
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--path", help="the cache's file; default: the one that cache=on uses")
    actions = cache.add_subparsers(dest="action", metavar="ACTION", required=True)

    stats = actions.add_parser("stats", parents=[where], help="entries and bytes, by model and endpoint")
    stats.add_argument("--format", choices=("text", "json"), default="text")

    verify = actions.add_parser("verify", parents=[where], help="check every entry; exit 5 when some are damaged")
    verify.add_argument("--fix", action="store_true", help="delete the damaged ones")

    prune = actions.add_parser("prune", parents=[where], help="delete entries and give the space back")
    prune.add_argument("--older-than", metavar="AGE", help="those kept before that, such as 30d, 12h or 4w")
    prune.add_argument("--model", help="only those of this model")
    prune.add_argument("--max-size", metavar="SIZE", help="then the oldest, until the file is no larger, such as 2GB")

    export = actions.add_parser("export", parents=[where], help="write all whole entries to a file for somebody else")
    export.add_argument("file", metavar="FILE", help="where to, such as answers.jsonl.gz")

    load = actions.add_parser("import", parents=[where], help="add the entries of such a file; overwrites nothing")
    load.add_argument("file", metavar="FILE", help="what `export` wrote")


def _contraction_options(command: argparse.ArgumentParser) -> None:
    command.description = "A local sentence encoder measures it; the result is written into the run for its report."
    command.add_argument("runs", nargs="+", metavar="RUN", help="a run's directory")
    command.add_argument("--encoder", metavar="MODEL", help="a folder or a name; default: all-MiniLM-L6-v2")
    command.add_argument("--users", default="all", metavar="N", help="the manifest's first N (paper: 15); default: all")
    command.add_argument("--against", metavar="OLDER", help="an older run: how far the same users' personas drifted")
    command.add_argument("--json", action="store_true", help="what was measured, a line of JSON a run")


def _model_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--lm", default="embedded", help='"embedded", a URL, or a .gguf file (default: embedded)')
    command.add_argument("--model", help="the model's name at the URL")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = [as_utf8(word) for word in (sys.argv[1:] if argv is None else argv)]
    prepare()
    try:
        code = _command(arguments)
    except SystemExit:  # argparse has said what there is to say
        end(0)
        raise
    except PersonalinkError as error:
        code = told_error(error)
    except KeyboardInterrupt:
        told("personalink: interrupted")
        code = 130
    except BrokenPipeError:  # of what Hydra writes by itself
        code = 0
    return end(code)


def _command(arguments: list[str]) -> int:
    if arguments[:1] in (["run"], ["plan"]):
        from personalink.cli.run import plan, run

        return (run if arguments[0] == "run" else plan)(arguments[1:])
    if arguments[:1] in (["export-batch"], ["import-batch"]):
        from personalink.cli.batch import export_batch, import_batch

        return (export_batch if arguments[0] == "export-batch" else import_batch)(arguments[1:])
    if arguments[:1] == ["_job"] and len(arguments) == 2:
        from personalink.cli.run import job

        return job(arguments[1])
    if arguments[:1] == ["doctor"]:
        from personalink.cli.doctor import doctor

        return doctor(arguments[1:])
    options = parser().parse_args(arguments)
    if options.command == "cache":
        from personalink.cli.cache import cache

        return cache(options)
    if options.command == "contraction":
        from personalink.cli.contraction import contraction

        return contraction(options)
    if options.command == "predict":
        from personalink.cli.predict import predict

        return predict(options)
    if options.command == "report":
        from personalink.cli.report import report

        return report(options)
    if options.command == "compare":
        from personalink.cli.compare import compare

        return compare(options)
    if options.command == "personas":
        from personalink.cli.personas import personas

        return personas(options)
    from personalink.cli import commands

    return int(getattr(commands, options.command)(options))
