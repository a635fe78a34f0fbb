"""Token counters: an estimate that needs nothing, a local tokenizer, and the server's own /tokenize.

Each is sync, deterministic and named by an id that says by what it counted. Knows no prompt and no cap. Counts are
without special tokens.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from personalink.canonical import digest
from personalink.errors import ConfigError, Unreachable


class EstimateCounter:
    """ceil(UTF-8 bytes / 3): an estimate on the safe side, for where no tokenizer can be had.

    English prose is about four bytes a token in current vocabularies, so this overcounts it by about a third; scripts
    of three bytes a character count one token each. It is stated as an estimate wherever its id is shown.
    """

    id = "estimate:utf8/3"
    remote = False

    def count(self, text: str) -> int:
        """Estimated tokens of `text`; 0 for the empty text."""
        return -(-len(text.encode("utf-8", "surrogatepass")) // 3)

    def __repr__(self) -> str:
        return "EstimateCounter()"


class TokenizerCounter:
    """Counts with a Hugging Face tokenizer read from a local folder, or from the local cache by its name.

    Nothing is downloaded unless `local_files_only=False`. The id holds the name (of a folder: its last part) and the
    first 12 digits of a digest of the tokenizer itself, so that two folders with the same tokenizer agree.

    Raises:
        ConfigError: transformers is not installed, or there is no tokenizer at `path_or_name`.
    """

    remote = False

    def __init__(self, path_or_name: str | Path, *, local_files_only: bool = True) -> None:
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise ConfigError(
                'lm.tokenizer: transformers is not installed; pip install "personalink[transformers]"'
            ) from None
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(path_or_name), local_files_only=local_files_only)
        except (OSError, ValueError) as error:
            first = next(iter(str(error).splitlines()), "")
            raise ConfigError(f"lm.tokenizer: no tokenizer at {str(path_or_name)!r}: {first}") from None
        name = Path(path_or_name).name if Path(path_or_name).exists() else str(path_or_name)
        self.id = f"tokenizer:{name}:{self._fingerprint()[:12]}"

    def _fingerprint(self) -> str:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return hashlib.sha256(backend.to_str().encode()).hexdigest()
        return digest(self._tokenizer.get_vocab())

    def count(self, text: str) -> int:
        """Tokens of `text` without special tokens; 0 for the empty text."""
        return len(self._tokenizer.encode(text, add_special_tokens=False)) if text else 0

    def __repr__(self) -> str:
        return f"TokenizerCounter({self.id!r})"


class EndpointCounter:
    """Counts with the server's own tokenizer through its /tokenize, which stands at the server root (not under /v1).

    `dialect` is "vllm" or "llama_cpp". One kept-alive connection and one least-recently-used cache of `cache_size`
    counts, shared by threads under a lock. `remote` is true: a count that is not in the cache blocks for a round trip,
    so an event loop that serves the endpoint itself must not call it. The key is read from the environment variable
    `api_key_env` at each request and is shown nowhere.
    """

    remote = True

    def __init__(
        self,
        root_url: str,
        dialect: Literal["vllm", "llama_cpp"],
        model: str,
        *,
        api_key_env: str | None = "OPENAI_API_KEY",
        timeout_s: float = 60.0,
        cache_size: int = 65536,
    ) -> None:
        parts = urlsplit(root_url)
        self.id = f"endpoint:{dialect}:{model}"
        self.requests_sent = 0
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        self._dialect, self._model, self._api_key_env = dialect, model, api_key_env
        self._timeout_s, self._cache_size = timeout_s, cache_size
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def count(self, text: str) -> int:
        """Tokens of `text` without special tokens; 0 for the empty text, which is not asked.

        Raises:
            Unreachable: the server did not answer with a count.
        """
        if not text:
            return 0
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            count = self._cache[key] = self._ask(text)
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
            return count

    def close(self) -> None:
        """Close the kept connection. Idempotent; the next count opens a new one."""
        with self._lock:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, text: str) -> int:
        where = f"{self._host}:{self._port or (443 if self._secure else 80)}{self._path}/tokenize"
        status, raw = self._post(json.dumps(self.body(text)).encode(), where)
        count = tokens_in(raw, self._dialect) if status == 200 else None
        if count is None:
            raise Unreachable(f"{where} answered {status} without a token count; set lm.tokenizer or lm.counter")
        return count

    def body(self, text: str) -> dict[str, Any]:
        """What is posted for `text`."""
        return tokenize_body(text, self._dialect, self._model)

    def _post(self, payload: bytes, where: str) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        key = os.environ.get(self._api_key_env or "", "").strip()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        fault = ""
        for _ in range(2):  # a kept connection may have been closed by the server meanwhile
            if self._connection is None:
                kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
                self._connection = kind(self._host, self._port, timeout=self._timeout_s)
            try:
                self._connection.request("POST", f"{self._path}/tokenize", payload, headers)
                response = self._connection.getresponse()
                self.requests_sent += 1
                return response.status, response.read()
            except (OSError, http.client.HTTPException) as error:
                fault = type(error).__name__
                self._hang_up()
        raise Unreachable(f"{where} cannot be asked for a token count ({fault}); is the server up?")

    def __repr__(self) -> str:
        return f"EndpointCounter({self.id!r})"


def tokenize_body(text: str, dialect: str, model: str) -> dict[str, Any]:
    """The body of a /tokenize request for `text` in `dialect` ("vllm" or "llama_cpp")."""
    if dialect == "vllm":
        return {"model": model, "prompt": text, "add_special_tokens": False}
    return {"content": text}


def tokens_in(raw: bytes, dialect: str) -> int | None:
    """The count in a /tokenize reply; None where there is none."""
    try:
        data = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    if dialect == "vllm":
        count = data.get("count")
        return count if isinstance(count, int) and not isinstance(count, bool) else None
    return len(data["tokens"]) if isinstance(data.get("tokens"), list) else None
