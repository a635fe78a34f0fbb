"""Programs, histories and answers for the tests of the DSPy layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import dspy

from personalink.lm.base import Request
from tests.people import is_rewrite, rewrite_reply, text

SIDES = ("north", "south", "east", "west")
Side = Literal["north", "south", "east", "west"]


class Where(dspy.Signature):
    """Say where it lies."""

    text: str = dspy.InputField()
    side: Side = dspy.OutputField()


class Steps(dspy.Module):
    """Two predictors, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.clue = dspy.Predict("text -> clue")
        self.where = dspy.Predict("text, clue -> side: Literal['north', 'south', 'east', 'west']")

    def forward(self, text: str) -> Any:
        return self.where(text=text, clue=self.clue(text=text).clue)


def history(name: str = "u", n: int = 20, **inputs: Any) -> list[Any]:
    """A user of whom two in three lie in the north."""
    return [
        dspy.Example(text=text(1, name, f"item{i}"), side="north" if i % 3 else "south", **inputs).with_inputs(
            "text", *inputs
        )
        for i in range(n)
    ]


def right(example: Any, prediction: Any, trace: Any = None) -> bool:
    return bool(example.side == prediction.side)


def fields(**values: Any) -> str:
    """An answer as DSPy's ChatAdapter words it."""
    return "\n\n".join(f"[[ ## {k} ## ]]\n{v}" for k, v in values.items()) + "\n\n[[ ## completed ## ]]"


def northerly(system: str, user: str) -> str:
    """South, and north behind a persona that says so; a clue where one is asked for."""
    if system.startswith("You keep a short profile"):
        return rewrite_reply()
    if "`clue`" in system.split("Your output fields are:")[1].split("\n")[1]:
        return fields(clue="a clue")
    return fields(side="north" if "Prefers the north." in system else "south")


def script(request: Request) -> str:
    return northerly(request.messages[0].content, request.messages[-1].content)


def body_script(body: dict[str, Any]) -> str:
    return northerly(body["messages"][0]["content"], body["messages"][-1]["content"])


def answering(side: str, rewrite: Callable[[], str] = rewrite_reply) -> Callable[[Request], str]:
    """Always the same text, whatever the persona."""
    return lambda request: rewrite() if is_rewrite(request) else side
