"""Where each value came from: the command line, the configuration, an environment variable, or a default.

Knows names of settings and variables. A key is never read, only whether there is one; of proxies only the names.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from personalink.doctor.findings import Finding

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def told_settings(lm: Mapping[str, Any], typed: Collection[str], group: str = "lm") -> list[Finding]:
    """One finding a setting of a model, then one for Hugging Face's variables; all are told and none is wrong.

    Args:
        lm: the settings as composed, before the environment was asked; None for one that nobody set.
        typed: keys that stand on the command line, such as "lm.base_url".
        group: what their keys begin with.
    """

    def came(name: str, default: str, variable: str = "") -> Finding:
        value, there = lm.get(name), os.environ.get(variable, "") if variable else ""
        if value is not None:
            told = f"{value} ({'command line' if f'{group}.{name}' in typed else 'configuration'})"
        else:
            told = f"{there} (environment variable {variable})" if there else f"{default} (default)"
        return Finding(f"setting: {name}", True, told)

    findings = []
    if lm.get("kind") == "endpoint":
        findings += [
            came("base_url", "none", "OPENAI_BASE_URL"),
            came("model", "the only one that the server lists"),
            _key(lm.get("api_key_env") or "OPENAI_API_KEY"),
            _proxies(),
        ]
    elif lm.get("kind") == "embedded":
        findings.append(came("path", "the packaged model", "PERSONALINK_WEIGHTS"))
    return [*findings, _hugging_face()]


def _key(variable: str) -> Finding:
    there = bool(os.environ.get(variable, "").strip())
    return Finding(
        "setting: key", True, f"{variable} is {'set' if there else 'not set, so EMPTY is sent'} (environment)"
    )


def _proxies() -> Finding:
    there = [name for name in _PROXIES if os.environ.get(name) or os.environ.get(name.lower())]
    detail = f"{', '.join(there)} set and not used: the server is asked directly" if there else "none set; never used"
    return Finding("setting: proxies", True, detail)


def _hugging_face() -> Finding:
    told = []
    for name, default in (("HF_HOME", "~/.cache/huggingface"), ("HF_HUB_OFFLINE", "not set")):
        value = os.environ.get(name)
        told.append(f"{name} {value} (environment variable)" if value else f"{name} {default} (default)")
    return Finding("setting: Hugging Face", True, ", ".join(told))
