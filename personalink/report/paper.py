"""What the PersonaLink paper printed in its tables 2 to 5, so that a report can show our numbers beside it.

Data only: 200 users a task, one query a user, a frozen 7B model, greedy. Row names are ours. The paper has one
random-user row, which places a different user's profile within the same token budget; both of ours stand beside it.
Its r = 1 stands twice: tables 2 and 3 print PAG under that name, table 4 prints both PAG and PersonaLink r = 1.
"""

from __future__ import annotations

from collections.abc import Mapping

METRICS: Mapping[str, tuple[str, str]] = {"lamp2": ("accuracy", "macro_f1"), "lamp3": ("mae", "rmse")}
"""Task → the two metrics of its tables. Accuracy and macro-F1: higher is better; MAE and RMSE: lower is better."""

_Pair = tuple[float, float]

PAPER_ROWS: Mapping[str, Mapping[str, _Pair]] = {
    "nopers": {"lamp2": (0.645, 0.388), "lamp3": (0.500, 0.794)},
    "random_user": {"lamp2": (0.665, 0.393), "lamp3": (0.565, 0.908)},
    "rag_1": {"lamp2": (0.695, 0.531), "lamp3": (0.415, 0.711)},
    "rag_3": {"lamp2": (0.760, 0.607), "lamp3": (0.290, 0.616)},
    "rag_5": {"lamp2": (0.765, 0.608), "lamp3": (0.285, 0.621)},
    "rag_10": {"lamp2": (0.785, 0.601), "lamp3": (0.290, 0.610)},
    "rag_20": {"lamp2": (0.790, 0.604), "lamp3": (0.250, 0.589)},
    "pag": {"lamp2": (0.745, 0.485), "lamp3": (0.450, 0.742)},
    "rag_pag": {"lamp2": (0.765, 0.501), "lamp3": (0.335, 0.621)},
    "personalink_r1": {"lamp2": (0.755, 0.494), "lamp3": (0.425, 0.731)},
    "personalink_r2": {"lamp2": (0.745, 0.514), "lamp3": (0.455, 0.765)},
    "personalink_r3": {"lamp2": (0.730, 0.495), "lamp3": (0.430, 0.728)},
    "oracle": {"lamp2": (0.715, 0.526), "lamp3": (0.280, 0.608)},
    "personalink_r2_no_rules": {"lamp2": (0.700, 0.452), "lamp3": (0.475, 0.781)},
    "personalink_r2_no_exemplars": {"lamp2": (0.720, 0.470), "lamp3": (0.490, 0.789)},
    "personalink_r2_no_summary": {"lamp2": (0.715, 0.461), "lamp3": (0.470, 0.779)},
}
"""Row → task → its two metrics in the order of `METRICS`, as printed (three decimals)."""

SAME_ROW: Mapping[str, str] = {"random_user_persona": "random_user", "random_user_demos": "random_user"}
"""Rows of ours → the one row of the paper that they stand beside."""


def paper_row(task_name: str, row: str) -> dict[str, float] | None:
    """The paper's numbers for one row, such as `{"accuracy": 0.745, "macro_f1": 0.514}`; None where it has none.

    Args:
        task_name: "lamp2" (news) or "lamp3"; the paper has no other task.
        row: our row name, such as "rag_5".
    """
    values = PAPER_ROWS.get(SAME_ROW.get(row, row), {}).get(task_name)
    return dict(zip(METRICS[task_name], values, strict=True)) if values else None
