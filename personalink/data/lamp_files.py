"""Where LaMP files lie under a folder: the download script's layout and the official ones.

Ours is `<root>/<task>/<user|time>/<split>_{questions,outputs}.json`, tasks as in `TASK_FOLDERS`. Knows names and
folders only; what is in the files is the loader's business, and so is telling news from movie tags, which share
"LaMP_2".
"""

from __future__ import annotations

from pathlib import Path

from personalink.data.reading import quoted
from personalink.errors import DataError

TASK_FOLDERS = {
    "lamp1": ("LaMP_1",),
    "lamp2": ("LaMP_2N", "LaMP_2"),
    "lamp2_tags": ("LaMP_2/new", "LaMP_2M", "LaMP_2"),
    "lamp3": ("LaMP_3",),
    "lamp4": ("LaMP_4",),
    "lamp5": ("LaMP_5",),
    "lamp7": ("LaMP_7",),
}
SPLITS = ("train", "dev", "test")
SPLIT_KINDS = ("user", "time")


def find_lamp(root: str | Path, task: str, split: str = "dev", split_kind: str = "user") -> tuple[Path, Path | None]:
    """The questions file of one split under `root`, and its outputs file or None where there is none beside it.

    Looked for in this order: our layout, the official folders (`LaMP_2/dev/dev_questions.json`, `LaMP_2/new/dev/…`,
    `time/LaMP_3/dev/…`, with or without the folder named after the split), and the file right under `root`.

    Args:
        root: the folder that holds the downloads.
        task: one of `TASK_FOLDERS`, such as "lamp2" (news) or "lamp4" (headlines).
        split: "train", "dev" or "test".
        split_kind: "user" (users differ between splits) or "time" (each user's past predicts the later).

    Raises:
        DataError: an unknown task, split or kind, or no such file; the line lists where it was looked for.
    """
    checks = (("task", task, tuple(TASK_FOLDERS)), ("split", split, SPLITS), ("split_kind", split_kind, SPLIT_KINDS))
    for name, value, known in checks:
        if value not in known:
            raise DataError(f"{name} {quoted(str(value))} is not known here; take one of {', '.join(known)}")
    name = f"{split}_questions.json"
    places = [f"{task}/{split_kind}/{name}"]
    for folder in TASK_FOLDERS[task]:
        base = f"time/{folder}" if split_kind == "time" else folder
        places += [f"{base}/{split}/{name}", f"{base}/{name}"]
    places += [f"{split}/{name}", name]
    for place in places:
        questions = Path(root) / place
        if questions.is_file():
            outputs = questions.with_name(f"{split}_outputs.json")
            return questions, outputs if outputs.is_file() else None
    raise DataError(
        f"no LaMP questions for {task}, split {split} ({split_kind}) under {root}: looked for {', '.join(places)}; "
        "scripts/download_lamp.py fetches them"
    )
