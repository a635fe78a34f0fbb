"""personalink: training-free personalization of a frozen language model.

    import personalink as pl

    data = pl.load_lamp("dev_questions.json", "dev_outputs.json")
    lm = pl.connect("http://localhost:8000/v1", model="Qwen/Qwen2.5-7B-Instruct")
    link = pl.PersonaLink(pl.task("lamp2"), lm, depth=3, holdout=8, gate="strict", seed=12345)
    one = link.fit_user(data.users[0])
    print(one.persona.render())

Names are loaded when they are first used, so that importing this is quick and pulls in no engine.
Type checkers read `__init__.pyi`, which a test keeps equal to this.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0.dev0"

_WHERE = {
    "agent": ("Agent", "Answer"),
    "config": ("RunConfig",),
    "contexts": ("Context", "Placed", "Product", "Products", "Tools"),
    "data": ("Dataset", "Item", "Query", "User", "load_lamp", "load_records", "load_sample", "make_manifest"),
    "errors": (
        "BadRequest",
        "ConfigError",
        "DataError",
        "DeadlineExceeded",
        "IncompleteRun",
        "IntegrityError",
        "Interrupted",
        "LMError",
        "LeakError",
        "MalformedReply",
        "ModelNotFound",
        "NotAnswered",
        "PersonaError",
        "PersonalinkError",
        "PromptTooLong",
        "Unauthorized",
        "Unreachable",
        "UsageError",
    ),
    "frames": ("open_run",),
    "lm": ("Completion", "EmbeddedLM", "EndpointLM", "EstimateCounter", "Request", "ScriptedLM", "connect"),
    "optimizer": ("OptimizerConfig",),
    "persona": ("Caps", "Exemplar", "PersonaState", "Rule"),
    "persona_fit": ("fit_persona",),
    "persona_io": ("diff",),
    "personalink": ("PersonaLink",),
    "predictions": ("Prediction",),
    "refinement": ("Pass", "Refinement"),
    "running": ("arun", "run"),
    "tasks": ("ChoiceTask", "LabelTask", "RatingTask", "Task", "TextTask", "task"),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [*sorted(_MODULE_OF), "__version__"]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        msg = f"module 'personalink' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"personalink.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
