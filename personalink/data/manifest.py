"""Which users a run is about, chosen once and frozen: their query, their random-user donor, and the data's digest.

The choice depends on the seed and the set of user ids, never on the file's order. Knows datasets; does not know what is
done with the users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from personalink.canonical import digest
from personalink.data.reading import quoted
from personalink.data.types import Dataset, User
from personalink.errors import ConfigError, DataError, IntegrityError
from personalink.seeding import stream

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One chosen user.

    Attributes:
        user: the user's id.
        queries: ids of the queries to answer; one, the user's first in the file.
        donor: id of the user who lends persona and items to the random-user control; None in a run of one user.
        history: number of history items.
    """

    user: str
    queries: tuple[str, ...]
    donor: str | None
    history: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The frozen choice of users of one run.

    Attributes:
        source, task, sha256: of the dataset that was chosen from.
        seed: what the choice and the donors were drawn with.
        entries: the chosen users, in the order drawn, so that a smaller run with the same seed and filters is the
            beginning of a larger one.
        filters: the limits that were asked for: max_top_label_share, min_history, max_history.
        asked: how many users were asked for; None means all.
        available: how many users passed the filters.
        dropped: reason → how many users it left out.
    """

    source: str
    task: str
    sha256: str
    seed: int
    entries: tuple[ManifestEntry, ...]
    filters: Mapping[str, float | int | None] = field(default_factory=dict)
    asked: int | None = None
    available: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, the same for the same manifest."""
        entries = [asdict(entry) | {"queries": list(entry.queries)} for entry in self.entries]
        plain = {"filters": dict(self.filters), "dropped": dict(self.dropped), "entries": entries}
        names = ("source", "task", "sha256", "seed", "asked", "available")
        return {"format": _FORMAT, **{name: getattr(self, name) for name in names}, **plain}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Manifest:
        """The manifest that `as_dict` wrote.

        Raises:
            IntegrityError: it is of another format, or a part is missing or cannot be read.
        """
        try:
            if value["format"] != _FORMAT:
                raise IntegrityError(f"manifest format {value['format']} is not {_FORMAT}; it is of another version")
            entries = tuple(
                ManifestEntry(str(e["user"]), tuple(e["queries"]), e["donor"], int(e["history"]))
                for e in value["entries"]
            )
            names = ("source", "task", "sha256", "seed", "asked", "available")
            plain: dict[str, Any] = {name: dict(value[name]) for name in ("filters", "dropped")}
            return cls(entries=entries, **{name: value[name] for name in names}, **plain)
        except (KeyError, TypeError, ValueError) as error:
            raise IntegrityError(f"the manifest is damaged: {type(error).__name__} at {error}") from None

    def select(self, dataset: Dataset) -> list[User]:
        """The chosen users of `dataset` in the manifest's order, each with the listed queries only.

        Raises:
            IntegrityError: the data are not those of the manifest, or a user or query is missing.
        """
        if data_digest(dataset) != self.sha256:
            raise IntegrityError(
                f"the data of {dataset.source} are not those of the manifest (sha256 {data_digest(dataset)[:12]}…, "
                f"manifest {self.sha256[:12]}…); use the files it was made from, or make a new manifest"
            )
        users = {user.id: user for user in dataset.users}
        chosen = []
        for entry in self.entries:
            user = users.get(entry.user)
            queries = {query.id: query for query in user.queries} if user else {}
            if user is None or any(id_ not in queries for id_ in entry.queries):
                raise IntegrityError(
                    f"user {quoted(entry.user)} of the manifest, or a query of theirs, is not in the data"
                )
            chosen.append(replace(user, queries=tuple(queries[id_] for id_ in entry.queries)))
        return chosen


def make_manifest(
    dataset: Dataset,
    *,
    n_users: int | None,
    seed: int = 12345,
    max_top_label_share: float | None = None,
    min_history: int = 0,
    max_history: int | None = None,
) -> Manifest:
    """Choose users and donors.

    All user ids are sorted and shuffled by the seed; users without a query, users that a filter leaves out and
    all but the first of each sibling group are dropped and counted; the first `n_users` of the rest are taken, or all
    there are when there are fewer. Each keeps one query, the first in the file. Donors are a random derangement of the
    chosen users: nobody is their own, and since no two chosen users are siblings, never a sibling's either.

    Args:
        dataset: what to choose from.
        n_users: how many users, at least 1; None takes all.
        seed: any integer.
        max_top_label_share: keep users whose most common history label has strictly less than this share, in (0, 1];
            users without history pass.
        min_history, max_history: least and most history items, both inclusive; None is no limit.

    Raises:
        ConfigError: an argument is out of range.
        DataError: no user is left; names what left them out.
    """
    _check(n_users, seed, max_top_label_share, min_history, max_history)
    left, dropped = _fit_users(dataset, seed, max_top_label_share, min_history, max_history)
    if not left and set(dropped) == {"no query"}:
        raise DataError(
            f"{dataset.source}: none of {len(dataset.users)} users has a query; mark rows with split=query, or "
            "leave the split out, so that each user's latest row is the query"
        )
    if not left:
        why = ", ".join(f"{reason}: {count}" for reason, count in sorted(dropped.items())) or "it has no users"
        raise DataError(f"{dataset.source}: no user is left of {len(dataset.users)} ({why}); loosen the filter")
    chosen = left[:n_users]
    donors = _donors(sorted(user.id for user in chosen), seed)
    return Manifest(
        source=dataset.source,
        task=dataset.task,
        sha256=data_digest(dataset),
        seed=seed,
        entries=tuple(
            ManifestEntry(user.id, (user.queries[0].id,), donors[user.id], len(user.history)) for user in chosen
        ),
        filters={"max_top_label_share": max_top_label_share, "min_history": min_history, "max_history": max_history},
        asked=n_users,
        available=len(left),
        dropped=dict(sorted(dropped.items())),
    )


def top_label_share(user: User) -> float:
    """Share of the user's most common history label, in [0, 1]; 0 without history."""
    counts = Counter(item.label for item in user.history)
    return max(counts.values()) / len(user.history) if counts else 0.0


def data_digest(dataset: Dataset) -> str:
    """The digest of the files that the dataset was read from; of its content when it was made in memory."""
    if dataset.sha256:
        return dataset.sha256
    golds = sorted([user, query, gold] for (user, query), gold in dataset.golds.items())
    users = sorted((asdict(user) for user in dataset.users), key=lambda user: str(user["id"]))
    return digest({"source": dataset.source, "task": dataset.task, "users": users, "golds": golds})


def _fit_users(
    dataset: Dataset, seed: int, share: float | None, least: int, most: int | None
) -> tuple[list[User], Counter[str]]:
    """The users who may be chosen, in the order drawn, and why and how often others may not."""
    by_id = {user.id: user for user in dataset.users}
    if len(by_id) < len(dataset.users):
        raise DataError(f"{dataset.source}: a user id occurs twice; ids must be unique in a dataset")
    ids = sorted(by_id)
    dropped: Counter[str] = Counter()
    groups: set[str] = set()
    left: list[User] = []
    for index in stream(seed, "", "manifest").permutation(len(ids)):
        user = by_id[ids[index]]
        reason = _unfit(user, share, least, most)
        if not reason and user.group in groups:
            reason = "sibling of a chosen user"
        if reason:
            dropped[reason] += 1
            continue
        if user.group:
            groups.add(user.group)
        left.append(user)
    return left, dropped


def _unfit(user: User, share: float | None, least: int, most: int | None) -> str:
    """Why a user cannot be chosen; "" when they can."""
    if not user.queries:
        return "no query"
    if len(user.history) < least:
        return f"history shorter than min_history={least}"
    if most is not None and len(user.history) > most:
        return f"history longer than max_history={most}"
    if share is not None and top_label_share(user) >= share:
        return f"top label share at or over max_top_label_share={share:g}"
    return ""


def _donors(ids: Sequence[str], seed: int) -> dict[str, str | None]:
    """A uniformly random derangement: permutations are drawn until one moves everybody (2.7 draws on average)."""
    if len(ids) < 2:
        return dict.fromkeys(ids)
    rng = stream(seed, "", "donor")
    places = np.arange(len(ids))
    while True:
        drawn = rng.permutation(len(ids))
        if not np.any(drawn == places):
            return {id_: ids[index] for id_, index in zip(ids, drawn, strict=True)}


def _check(n_users: int | None, seed: int, share: float | None, least: int, most: int | None) -> None:
    """Refuse arguments out of range, in one line each."""
    for name, value, low in (("n_users", n_users, 1), ("min_history", least, 0), ("max_history", most, least)):
        if value is None and name != "min_history":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ConfigError(f"{name} must be a whole number of at least {low}, not {value!r}")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigError(f"seed must be a whole number, not {seed!r}")
    if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1):
        raise ConfigError(f"max_top_label_share must be over 0 and at most 1, not {share!r}")
