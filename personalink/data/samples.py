"""Two small real samples: news (ships in the package) and films (stands apart from it, for its terms).

Knows where the samples lie and how each is stored; their cards, beside the files, say what they can and cannot show.
"""

from __future__ import annotations

import os
from pathlib import Path

from personalink.data.lamp import load_lamp
from personalink.data.reading import quoted
from personalink.data.records import load_records
from personalink.data.types import Dataset
from personalink.errors import DataError
from personalink.text import nearest

SAMPLES = ("news", "films")
FOLDER_VARIABLE = "PERSONALINK_SAMPLES"


def load_sample(name: str) -> Dataset:
    """A sample by its name.

    - "news": 62 authors and their labelled articles, task "lamp2", source "news-authors".
    - "films": 40 people and their film ratings 1–5, task and source "films". Non-commercial
      terms, so it is not in the wheel: it is read from a source checkout, or from the folder that the environment
      variable PERSONALINK_SAMPLES names (it holds `films/ratings.csv`).

    Raises:
        DataError: there is no sample of that name, or its file is not on this machine.
    """
    path = sample_path(name)
    if path is None:
        looked = os.environ.get(FOLDER_VARIABLE) or "beside the package"
        raise DataError(
            f"the film-ratings sample was not found ({looked}): it is not part of the wheel, since GroupLens' terms "
            f"allow no commercial use; take samples/ from a source checkout and set {FOLDER_VARIABLE} to that folder"
        )
    if name == "news":
        outputs = path.with_name("news_outputs.json")
        return load_lamp(path, outputs, task="lamp2", source="news-authors")
    return load_records(path, task="films", source="films")


def sample_path(name: str) -> Path | None:
    """The file a sample is read from (for news the questions file), or None when it is not on this machine.

    Raises:
        DataError: there is no sample of that name.
    """
    if name not in SAMPLES:
        hint = nearest(str(name), SAMPLES)
        raise DataError(f"no sample {quoted(str(name))}; " + (f"meant {hint}?" if hint else "there are news and films"))
    package = Path(__file__).resolve().parents[1]
    if name == "news":
        return package / "data" / "samples" / "news_questions.json"
    folder = os.environ.get(FOLDER_VARIABLE)
    roots = [Path(folder)] if folder else [package.parent / "samples"]
    found = (root / "films" / "ratings.csv" for root in roots)
    return next((path for path in found if path.is_file()), None)
