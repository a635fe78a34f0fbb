"""Personas for DSPy programs: an optimizer like any other, and an engine for `dspy.LM`. The core never imports this.

    import dspy
    from personalink.dspy import PersonaLink, connect

    dspy.configure(lm=connect("http://localhost:8000/v1", model="Qwen/Qwen2.5-7B-Instruct"))
    mine = PersonaLink(metric=metric, depth=1).compile(program, trainset=history)
    print(mine.persona)

Inside this package `import dspy` is DSPy itself.
"""

from __future__ import annotations

try:
    from dspy import lm15 as _lm15  # noqa: F401  (DSPy 3.4 and newer)
except ImportError:
    raise ImportError('personalink.dspy needs dspy 3.4 or newer; pip install "personalink[dspy]"') from None

from personalink.dspy.book import Book
from personalink.dspy.engine import AsyncEngine, Engine, connect
from personalink.dspy.module import Personalized
from personalink.dspy.optimizer import PersonaLink

__all__ = ["AsyncEngine", "Book", "Engine", "PersonaLink", "Personalized", "connect"]
