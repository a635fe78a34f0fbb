"""From the words that were typed to a configuration: Hydra composes the groups of `conf/`, and its errors become ours.

Knows Hydra and where the groups lie; knows no command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from personalink.cli.words import explained, readable, unreadable_file
from personalink.config import RunConfig
from personalink.errors import ConfigError

EMBEDDED_NOTE = (
    "A 135M model: it shows that the pipeline works, not the paper's results. The floors above use no model."
)
"""Stands under every table of the small model that runs in the process."""


def conf_dir() -> Path:
    """Where the configuration groups lie: inside an installed wheel, or beside the package in a checkout.

    Raises:
        ConfigError: neither is there; the installation is broken.
    """
    package = Path(__file__).resolve().parent.parent
    for path in (package / "conf", package.parent / "conf"):
        if (path / "config.yaml").exists():
            return path
    msg = f"no configuration groups at {package / 'conf'}: reinstall personalink"
    raise ConfigError(msg)


def compose(words: Sequence[str], each: Callable[[Any], None], hooks: Sequence[str] = ()) -> None:
    """Let Hydra hand the composed configuration to `each`; that of every job, one after the other, in a sweep.

    Args:
        words: as typed. hooks: more words for Hydra, before them.

    Raises:
        ConfigError: Hydra could not compose, or a configuration file is damaged.
        OSError, RuntimeError: a file cannot be read or written, a launcher broke; and whatever `each` raises.
    """
    import hydra
    import yaml  # type: ignore[import-untyped]
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    folder = conf_dir()
    before, sys.argv = sys.argv, ["personalink", *hooks, *readable(words, folder)]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would otherwise print and exit by itself; we say it in one line
    try:
        hydra.main(version_base="1.3", config_path=str(folder), config_name="config")(each)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explained(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(unreadable_file(error, words)) from None
    finally:
        sys.argv = before


def plain_values(config: Any) -> Any:
    """What Hydra composed as plain values.

    Raises:
        OmegaConfBaseException: a value is missing or points nowhere.
    """
    from omegaconf import OmegaConf

    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def run_config(values: Any) -> RunConfig:
    """The configuration of a run; the small model's results get their note.

    Raises:
        ConfigError: a value is wrong.
    """
    if not isinstance(values, Mapping):
        msg = "the composed configuration is no group of settings"
        raise ConfigError(msg)
    plain = {key: value for key, value in values.items() if key != "hydra"}
    lm, notes = plain.get("lm"), plain.get("notes")
    small = isinstance(lm, Mapping) and lm.get("kind") == "embedded" and lm.get("path") is None
    if small and isinstance(notes, list) and EMBEDDED_NOTE not in notes:
        plain["notes"] = [EMBEDDED_NOTE, *notes]
    return RunConfig.from_mapping(plain)
