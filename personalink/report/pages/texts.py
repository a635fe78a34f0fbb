"""What the sealed files leave out and the data hold: the texts of items and queries, and with them the exact prompts.

The data are read again where they are at hand and still those of the manifest. A prompt is built as the agent builds
it; what was placed before its question comes from the run's own record: personas from the refinement, drafts from their
product, demonstrations from the item ids that each answer names. So no model and no tokenizer is needed, and nothing is
guessed: a context that is none of the package's is not built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from personalink.agent import Agent
from personalink.config import DataConfig, build
from personalink.contexts.persona import Draft
from personalink.data.manifest import Manifest
from personalink.data.types import Item, Query, User
from personalink.errors import PersonalinkError
from personalink.lm.base import Message
from personalink.lm.gateway import Gateway
from personalink.lm.scripted import ScriptedLM
from personalink.persona import PersonaState
from personalink.persona_io import from_dict
from personalink.predictions import Prediction
from personalink.report.evidence import Evidence
from personalink.report.pages.facts import CONTEXTS
from personalink.sources import load_data


@dataclass(frozen=True)
class Texts:
    """The texts behind a run.

    Attributes:
        evidence: the run.
        users: by id; empty where the data are not at hand. missing: why they are not, in one line; "" where they are.
    """

    evidence: Evidence
    users: Mapping[str, User] = field(default_factory=dict)
    missing: str = ""

    @classmethod
    def of(cls, evidence: Evidence) -> Texts:
        """Read the run's data again, if they are still there and the same."""
        try:
            dataset = load_data(build(DataConfig, evidence.config["data"], "data"), evidence.task)
            chosen = Manifest.from_dict(evidence.manifest).select(dataset)
        except PersonalinkError as error:
            return cls(evidence, missing=f"The texts of items and the prompts are left out: {error}.")
        return cls(evidence, {user.id: user for user in chosen})

    def items(self, user: str) -> Mapping[str, Item]:
        """A user's history by item id; empty where the data are not at hand."""
        return {item.id: item for item in self.users[user].history} if user in self.users else {}

    def query(self, user: str, query: str) -> Query | None:
        """A query; None where the data are not at hand."""
        queries = self.users[user].queries if user in self.users else ()
        return next((one for one in queries if one.id == query), None)

    def prompt(self, prediction: Prediction) -> tuple[Message, ...] | None:
        """The messages that were sent for a prediction; None where they cannot be built."""
        query, context = self.query(prediction.user, prediction.query), self.placed(prediction)
        return self._agent.messages(context, query.input) if query is not None and context is not None else None

    def placed(self, prediction: Prediction) -> str | None:
        """What was placed before the question of a prediction; None where it cannot be built."""
        settings: Mapping[str, object] = self.evidence.config["context"].get(prediction.row, {})
        user, kind = prediction.user, str(settings.get("_target_", "")).removeprefix(CONTEXTS)
        refinement = self.evidence.refinements.get(user)
        if kind == "NoPersonalization":
            return ""
        if kind in ("Retrieval", "FullProfile"):
            return self._demonstrations(user, prediction.item_ids)
        if kind == "RandomUserDemonstrations":
            return self._demonstrations(self._donors.get(user), prediction.item_ids)
        if kind == "Draft":
            return self._draft(user)
        if kind == "RandomUserPersona":
            return self._draft(self._donors.get(user))
        if kind == "RetrievalWithDraft":
            parts = (self._draft(user), self._demonstrations(user, prediction.item_ids))
            return None if None in parts else "\n\n".join(part for part in parts if part)
        if kind == "Refine" and refinement is not None:
            return refinement.persona.render()
        if kind == "PersonaLink" and refinement is not None:
            persona, without = refinement.at(_whole(settings.get("depth", 2))), settings.get("without")
            return persona.without(str(without)) if without else persona.render()
        return None

    def _demonstrations(self, user: str | None, item_ids: Sequence[str]) -> str | None:
        if user is None:
            return ""
        items = self.items(user)
        if any(id_ not in items for id_ in item_ids):
            return None
        task = self.evidence.task
        return "\n\n".join(task.demonstration(items[id_].input, items[id_].label) for id_ in item_ids)

    def _draft(self, user: str | None) -> str | None:
        """A draft as it was placed; "" for a user without one, None where the run holds no drafts."""
        if user is None:
            return ""
        if user not in self._drafts:
            return None
        persona = self._drafts[user]
        return persona.render() if persona else ""

    @cached_property
    def _drafts(self) -> Mapping[str, PersonaState | None]:
        name = f"sealed/products/Draft-{Draft().key[:8]}.jsonl"
        records = self.evidence.run.read_lines(name)
        made = {record["user"]: record["product"]["persona"] for record in records}
        return {user: from_dict(persona) if persona else None for user, persona in made.items()}

    @cached_property
    def _donors(self) -> Mapping[str, str | None]:
        return {entry["user"]: entry["donor"] for entry in self.evidence.manifest["entries"]}

    @cached_property
    def _agent(self) -> Agent:
        """Words a prompt as the run's agent did; never asked."""
        return Agent(self.evidence.task, Gateway(ScriptedLM(lambda request: ""), None))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
