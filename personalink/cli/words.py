"""The words of `run` and `plan` before Hydra reads them: what its grammar refuses is quoted, or told in one line.

Knows overrides (`key=value`) and Hydra's errors; knows no setting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from personalink.errors import ConfigError
from personalink.text import nearest

_OVERRIDE = re.compile(r"(\+{0,2}[A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)
_LIST = re.compile(r"\s*\[([^\[\]{}()'\"\\]*)\]\s*")
_VALUED = (
    "--cfg",
    "-c",
    "--config-dir",
    "-cd",
    "--config-name",
    "-cn",
    "--config-path",
    "-cp",
    "--package",
    "-p",
    "--experimental-rerun",
)
_MAY_BE_VALUED = ("--info", "-i")


def readable(arguments: Sequence[str], groups: Path) -> list[str]:
    """The arguments as Hydra can read them: `~` expanded, values that its grammar refuses quoted, options last, for it
    takes overrides that stand on both sides of an option for a mistake.

    Args:
        arguments: as typed. groups: the folder of the configuration groups.

    Raises:
        ConfigError: an override that cannot be read whatever the quotes, or a group set to nothing.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    overrides, options, before = [], [], ""
    for word in arguments:
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            options.append(f"{option}={os.path.expanduser(value)}" if equals and value.startswith("~") else word)
        elif before in _VALUED or (before in _MAY_BE_VALUED and "=" not in word):
            options.append(word)
        else:
            overrides.append(_override(parser, word, groups))
        before = word
    return overrides + options


def _override(parser: Any, word: str, groups: Path) -> str:
    found = _OVERRIDE.fullmatch(word)
    if found is None:
        return word
    key, value = found[1], found[2]
    if value.strip() in ("", "null") and "." not in key and (group := groups / key.strip("+")).is_dir():
        names = ", ".join(sorted(path.stem for path in group.glob("*.yaml")))
        raise ConfigError(f"{word}: a group needs a name; there are {names}")
    if value.startswith("~"):
        value = os.path.expanduser(value)
    if _reads(parser, f"{key}={value}"):
        return f"{key}={value}"
    for other in (_quoted_list(parser, value), _quoted(value)):
        if other is not None and _reads(parser, f"{key}={other}"):
            return f"{key}={other}"
    quotes = f"\"{key}='…'\"" if not value.lstrip().startswith("[") else f"\"{key}=['…', '…']\""
    raise ConfigError(
        f"{key}={value!r:.60} cannot be read; quote its texts, as in {quotes}, or put it into a file of --config-dir"
    )


def _reads(parser: Any, word: str) -> bool:
    from hydra.errors import HydraException

    try:
        parser.parse_override(word)
    except HydraException:
        return False
    return True


def _quoted(value: str) -> str | None:
    """A plain text between quotes; None where its commas, brackets or quotes may mean something."""
    if any(c in value for c in "\\,[]{}()\n") or value[:1] in ("'", '"') or ("'" in value and '"' in value):
        return None
    return f'"{value}"' if "'" in value else f"'{value}'"


def _quoted_list(parser: Any, value: str) -> str | None:
    """A flat list with those of its entries quoted that need it; None for anything else."""
    found = _LIST.fullmatch(value)
    if found is None:
        return None
    entries = [entry.strip() for entry in found[1].split(",")]
    return "[" + ",".join(entry if _reads(parser, f"x=[{entry}]") else f"'{entry}'" for entry in entries) + "]"


def explained(error: Exception) -> str:
    """Hydra's message without its advice on debugging, on one line; for an unknown key, the nearest known one."""
    unknown = _unknown_key(error)
    if unknown:
        return unknown
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type", "See http"))]
    if re.search(r"'hydra/launcher/(joblib|submitit)", str(error)):
        kept.insert(1, "install personalink[launchers] for it")
    return "; ".join(kept[:6]) if kept else type(error).__name__


def _unknown_key(error: BaseException | None) -> str:
    """What is said of a key that the configuration does not have; "" for other errors."""
    while error is not None and "is not in struct" not in str(error):
        error = error.__cause__
    if error is None:
        return ""
    key, parent = str(getattr(error, "full_key", "") or ""), getattr(error, "parent_node", None)
    if not key:
        named = re.search(r"full_key: (\S+)", str(error)) or re.search(r"Key '([^']*)'", str(error))
        key = named[1] if named else "a key"
    known = [str(name) for name in parent] if parent is not None and hasattr(parent, "keys") else []
    near = nearest(key.rpartition(".")[2], known)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(sorted(known))}" if known else ""
    return f"{key} is unknown; {hint or 'see `personalink run --cfg job` for the settings there are'}"


def unreadable_file(error: Exception, arguments: Sequence[str]) -> str:
    """What is wrong with a configuration file that is no YAML, or no UTF-8, on one line with its name."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        what = getattr(error, "problem", None) or "it is not YAML"
        return f"{mark.name}, line {mark.line + 1}: {what}; correct the file's YAML"
    for folder in _config_dirs(arguments):
        for path in sorted(folder.rglob("*.y*ml")):
            try:
                path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                return f"{path}: it is not UTF-8; save it as UTF-8"
            except OSError:
                continue
    return f"a configuration file cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


def _config_dirs(arguments: Sequence[str]) -> list[Path]:
    """The folders that --config-dir names."""
    words = list(arguments)
    found = [word.partition("=")[2] for word in words if word.startswith(("--config-dir=", "-cd="))]
    found += [b for a, b in pairwise(words) if a in ("--config-dir", "-cd")]
    return [Path(name).expanduser() for name in found]


def to_go_on(arguments: Sequence[str]) -> list[str]:
    """The arguments that go on with what was stopped: those that start anew taken out."""
    return [word for word in arguments if not re.match(r"\+{0,2}fresh=", word)]
