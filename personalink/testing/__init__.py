"""A vLLM-shaped server for tests and benchmarks that needs no model: on a thread, or in a process of its own.

Users' tests may rely on it. Its answers are a function of the prompt and mean nothing; its token and cache arithmetic
is vLLM's, on a tokenizer of words and punctuation. Importing it loads the HTTP library; `import personalink` does not.
"""

from personalink.testing.faults import Fault
from personalink.testing.prefix import PrefixCache, pieces, prompt_pieces
from personalink.testing.process import fake_vllm_process
from personalink.testing.server import FakeVLLM

__all__ = ["FakeVLLM", "Fault", "PrefixCache", "fake_vllm_process", "pieces", "prompt_pieces"]
