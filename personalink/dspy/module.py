"""`Personalized`: a DSPy program with personas in one `Parameter`, so that DSPy's own save, load and reset know them.

Personas are the only truth; the prompt is made from them for each call. Knows no loop and no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy
from dspy.predict.parameter import Parameter

from personalink.dspy.adapter import placing
from personalink.dspy.spaces import Space
from personalink.dspy.task import USER
from personalink.errors import DataError, IntegrityError
from personalink.persona import PersonaState
from personalink.persona_io import from_dict, to_dict
from personalink.refinement import Refinement

VERSION = 1


class Personas(Parameter):  # type: ignore[misc]
    """What DSPy saves, loads and resets: personas, how answers are read, and the record of a single user's loop.

    Attributes:
        states: user → persona. by_user: whether they are looked up by a call's `user_id`; else there is one, under "".
        labels: output field → values, where a closed set was given beside the types.
        constrain: ask our engines for readable answers only.
        refinement: the loop of a single user; None where there was none.
    """

    def __init__(
        self,
        states: Mapping[str, PersonaState] | None = None,
        *,
        by_user: bool = False,
        spaces: Mapping[str, Space] | None = None,
        constrain: bool = False,
        refinement: Refinement | None = None,
    ) -> None:
        self.states, self.by_user = dict(states or {}), by_user
        self.spaces, self.constrain, self.refinement = dict(spaces or {}), constrain, refinement

    def reset(self) -> None:
        """Forget the personas: the same program without personalization, answers read as before."""
        self.states, self.refinement = {}, None

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Plain JSON; each persona sealed."""
        return {
            "version": VERSION,
            "by_user": self.by_user,
            "constrain": self.constrain,
            "labels": {name: list(space.values) for name, space in self.spaces.items()},
            "personas": {user: to_dict(state) for user, state in sorted(self.states.items())},
            "refinement": None if self.refinement is None else self.refinement.as_dict(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `dump_state`.

        Raises:
            IntegrityError: it is none, or of another version.
            PersonaError: a persona was altered.
        """
        try:
            version, told = state["version"], state["refinement"]
            if version != VERSION:
                msg = f"these personas have version {version!r:.60}; this personalink reads version {VERSION}"
                raise IntegrityError(msg)
            states = {user: from_dict(persona) for user, persona in state["personas"].items()}
            spaces = {name: Space.of(values) for name, values in state["labels"].items()}
            self.by_user, self.constrain = bool(state["by_user"]), bool(state["constrain"])
        except (KeyError, TypeError, AttributeError) as error:
            msg = f"these are no saved personas: {type(error).__name__} {error}"
            raise IntegrityError(msg) from None
        self.states, self.spaces = states, spaces
        self.refinement = None if told is None else Refinement.from_dict(told)

    def __deepcopy__(self, memo: Any) -> Personas:
        return Personas(
            self.states,
            by_user=self.by_user,
            spaces=self.spaces,
            constrain=self.constrain,
            refinement=self.refinement,
        )


class Personalized(dspy.Module):  # type: ignore[misc]
    """A program whose predictors see a persona after their instructions; without one they see what they always saw.

    Args:
        student: the program; it is copied. A personalized one is taken without its persona.
        personas: what `PersonaLink` made; none yet for a program that is about to `load` a file.

    It answers under `dspy.Evaluate`, `dspy.context`, as GEPA's student, in threads and async; a persona is set for the
    call alone. It counts as compiled, so that an optimizer which would reset its personas unseen refuses it.
    """

    def __init__(self, student: Any, personas: Personas | None = None) -> None:
        super().__init__()
        self.student: Any = (student.student if isinstance(student, Personalized) else student).deepcopy()
        self.student._compiled = False  # DSPy saves nothing of a compiled part
        self.personas = personas or Personas()
        self._later: Any = None
        self._compiled = True

    @property
    def persona(self) -> PersonaState | None:
        """The persona of a program for one user; None for one of many users, or without any."""
        return self.personas.states.get("")

    @property
    def detailed_results(self) -> Any:
        """The record of the loop that made `persona` (a `Refinement`: passes, scores, reasons, calls), saved and loaded
        with it; or what a later optimizer put there, such as GEPA's, which DSPy does not save."""
        return self.personas.refinement if self._later is None else self._later

    @detailed_results.setter
    def detailed_results(self, later: Any) -> None:
        self._later = later

    def forward(self, **inputs: Any) -> Any:
        """Call the program behind the persona (of `user_id`, where it is for many users).

        Raises:
            DataError: it is for many users and `user_id` is missing.
        """
        adapter, inputs = self._prepared(inputs)
        with dspy.context(adapter=adapter):
            return self.student(**inputs)

    async def aforward(self, **inputs: Any) -> Any:
        """`forward`, async; a program that has no async form runs on a thread."""
        adapter, inputs = self._prepared(inputs)
        with dspy.context(adapter=adapter):
            if hasattr(self.student, "aforward"):
                return await self.student.acall(**inputs)
            return await dspy.asyncify(self.student)(**inputs)

    def _prepared(self, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The adapter that places the persona of a call, and the program's own inputs."""
        user = ""
        if self.personas.by_user:
            if inputs.get(USER) is None:
                msg = f"this program serves many users: give {USER}=…; one without a persona is answered without"
                raise DataError(msg)
            user = str(inputs[USER])
            inputs = {name: value for name, value in inputs.items() if name != USER}
        persona = self.personas.states.get(user)
        context = "" if persona is None else persona.render()
        made = placing(dspy.settings.adapter, context, self.personas.spaces, constrain=self.personas.constrain)
        return made, inputs
