"""The DSPy layer. Each file is skipped, by name and with the reason, where dspy is not installed."""

import os
import tempfile

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no download of prices
os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp(prefix="dspy-cache-"))
REASON = "dspy is not installed: the DSPy layer is not checked"
