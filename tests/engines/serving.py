"""A real vLLM server as a process: started by scripts/serve_vllm.sh, asked bare, and its own counters read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "scripts" / "serve_vllm.sh"
MODEL = "smollm2"
COUNTERS = ("prompt_tokens", "generation_tokens", "request_success", "prefix_cache_queries", "prefix_cache_hits")
UP_S = 300
SHARE = 0.25  # of a GPU's memory: two servers and an engine stand on it at once
BLOCK = 16 if shutil.which("nvidia-smi") else 128
"""Tokens of a cache block."""


@dataclass(frozen=True)
class Served:
    """A server that is up."""

    root: str

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def counters(self) -> dict[str, int]:
        """Its own counters by name, without `vllm:` and `_total`, summed over engines and reasons."""
        with urllib.request.urlopen(f"{self.root}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        totals = dict.fromkeys(COUNTERS, 0)
        for name, value in re.findall(r"^vllm:(\w+)_total(?:\{.*\})? (\S+)$", text, re.MULTILINE):
            if name in totals:
                totals[name] += int(float(value))
        return totals

    def since(self, before: dict[str, int]) -> dict[str, int]:
        """What its counters moved by."""
        return {name: value - before[name] for name, value in self.counters().items()}

    def bare(self, text: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """(status, reply) of a chat request with just these fields, as another client would send it."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
        asked = urllib.request.Request(
            f"{self.url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=300) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@contextlib.contextmanager
def serving(folder: Path, log: Path, *flags: str) -> Iterator[Served]:
    """A server of the model in `folder` on a free port, with further flags of vLLM's; its words go to `log`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    more = ["--served-model-name", MODEL, "--gpu-memory-utilization", str(SHARE), *flags]
    command = ["bash", str(SCRIPT), str(folder), str(port), "--", *more]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env=os.environ | {"PYTHON": sys.executable},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            server = Served(f"http://127.0.0.1:{port}")
            _wait(server, process, log)
            yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(server: Served, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{server.root}/health", timeout=5):
            return
        time.sleep(0.5)
    raise RuntimeError(f"vLLM did not start; its last words:\n{log.read_text(errors='replace')[-2000:]}")
