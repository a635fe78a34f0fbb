"""What is asked, how an answer is read and how it is scored."""

from personalink.tasks.base import INVALID, Reading, Task, Wording
from personalink.tasks.catalogue import CATALOGUE, task, task_from
from personalink.tasks.choice import ChoiceTask
from personalink.tasks.label import LabelTask
from personalink.tasks.rating import RatingTask
from personalink.tasks.text import TextTask

__all__ = [
    "CATALOGUE",
    "INVALID",
    "ChoiceTask",
    "LabelTask",
    "RatingTask",
    "Reading",
    "Task",
    "TextTask",
    "Wording",
    "task",
    "task_from",
]
