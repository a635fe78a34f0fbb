"""What is asked, how an answer is read and how it is scored."""

from personalink.tasks.base import INVALID, Reading, Task, Wording
from personalink.tasks.catalogue import CATALOGUE, task, task_from
from personalink.tasks.label import LabelTask
from personalink.tasks.rating import RatingTask

__all__ = [
    "CATALOGUE",
    "INVALID",
    "LabelTask",
    "RatingTask",
    "Reading",
    "Task",
    "Wording",
    "task",
    "task_from",
]
