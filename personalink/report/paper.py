"""What the PersonaLink paper printed in its tables 2 to 5, so that a report can show our numbers beside it.

Data and layout only: 200 users a task, one query a user, a frozen 7B model, greedy. Row names are ours. The paper has
one random-user row, which places a different user's profile within the same token budget; both of ours stand beside
it. Its r = 1 stands twice: tables 2 and 3 print PAG under that name, table 4 prints both PAG and PersonaLink r = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

PAPER_CONTEXT: Mapping[str, int] = {
    **{f"rag_{k}": 100 * k for k in (1, 3, 5, 10, 20)},
    "pag": 250,
    "personalink_r2": 250,
    "oracle": 18_800,
}
"""Row → its context in tokens a query, as table 3 prints it ("~")."""

PAPER_P: Mapping[str, Mapping[str, str]] = {
    "lamp2": {"nopers": "= 0.003", "random_user": "< 0.05", "rag_3": "= 0.73", "rag_5": "= 0.60", "pag": "= 0.77"},
    "lamp3": {
        **{"random_user": "= 0.016", "rag_3": "= 0.0004", "rag_5": "< 0.0001", "pag": "= 0.96"},
        **{"rag_pag": "< 0.01", "oracle": "< 0.001"},
    },
}
"""Task → row → the p that the text states of PersonaLink r=2 against it: McNemar with continuity correction (it gives
the printed .77 at b = c = 6), or a paired bootstrap of the absolute error."""

RECURSION_P: Mapping[str, str] = {"lamp2": "= 0.77", "lamp3": "= 0.96"}
"""Task → the p that stands under table 2, of PersonaLink r=2 against PAG (the paper's r=1)."""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """How the paper lays a table out.

    Attributes:
        number: as in the paper. title: what it shows.
        groups: (heading, its rows), from above; one without heading is the whole table.
        subject: what the table is about: without at least one of these rows there is none.
        reference: the row that the others are tested against.
        labels: row → what it is called in this table, where that is not its usual name.
        stars: task → row → how many stars the paper prints there: it differs from the reference at p < .05, .01, .001,
            not corrected for how many rows there are; empty for a table without stars.
        context: whether it shows what a query's context costs.
        floors: whether ours puts the floors above it, which the paper does not have.
    """

    number: int
    title: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    subject: tuple[str, ...]
    reference: str
    labels: Mapping[str, str]
    stars: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    context: bool = False
    floors: bool = False

    @property
    def name(self) -> str:
        """Such as "table4"."""
        return f"table{self.number}"

    @property
    def rows(self) -> tuple[str, ...]:
        """Its rows, from above."""
        return tuple(row for _, rows in self.groups for row in rows)


_RAG = tuple(f"rag_{k}" for k in (1, 3, 5, 10, 20))
_DEPTHS = tuple(f"personalink_r{depth}" for depth in (1, 2, 3))
_ABLATIONS = tuple(f"personalink_r2_no_{field}" for field in ("rules", "exemplars", "summary"))

PAPER_TABLES: tuple[PaperTable, ...] = (
    PaperTable(
        2,
        "Refinement depth",
        (("", ("nopers", "pag", *_DEPTHS)),),
        subject=("pag", *_DEPTHS),
        reference="nopers",
        labels={"nopers": "NoPers (r=0)", "pag": "PAG (the paper's r=1: the draft, no gate)"},
        stars={"lamp2": {"pag": 2, "personalink_r2": 2, "personalink_r3": 2}},
    ),
    PaperTable(
        3,
        "Quality and context cost of retrieval and of a bounded persona",
        (
            ("Retrieval, growing context with k", _RAG),
            ("Bounded persona, constant context", ("pag", "personalink_r2")),
            ("Upper bound", ("oracle",)),
        ),
        subject=_RAG,
        reference="personalink_r2",
        labels={"pag": "PAG (r=1)"},
        context=True,
    ),
    PaperTable(
        4,
        "Broader comparison with other methods",
        (
            ("Lower / control", ("nopers", "random_user_persona", "random_user_demos")),
            ("Retrieval personalization", ("rag_1", "rag_3", "rag_5")),
            ("Profile-summary personalization", ("pag", "rag_pag")),
            ("Recursive", _DEPTHS),
            ("Upper bound", ("oracle",)),
        ),
        subject=(*_RAG, "pag", "rag_pag", *_DEPTHS, "oracle"),
        reference="personalink_r2",
        labels={"pag": "PAG (r=1)"},
        stars={
            "lamp2": {"nopers": 2, "random_user": 1},
            "lamp3": {"random_user": 1, "rag_3": 3, "rag_5": 3, "rag_pag": 2, "oracle": 3},
        },
        floors=True,
    ),
    PaperTable(
        5,
        "Field ablation of the persona",
        (("", ("personalink_r2", *_ABLATIONS, "nopers")),),
        subject=_ABLATIONS,
        reference="personalink_r2",
        labels={
            "personalink_r2": "PersonaLink r=2, full state",
            "personalink_r2_no_rules": "− decision rules",
            "personalink_r2_no_exemplars": "− exemplars",
            "personalink_r2_no_summary": "− preference summary",
            "nopers": "NoPers (r=0, empty persona)",
        },
    ),
)
"""Tables 2 to 5. The paper's table 4 has one random-user row and its table 2 no PersonaLink r=1; ours have both."""

SAME_ROW: Mapping[str, str] = {"random_user_persona": "random_user", "random_user_demos": "random_user"}
"""Rows of ours → the one row of the paper that they stand beside."""


def paper_name(row: str) -> str:
    """The paper's row that a row of ours stands beside; the name itself where they are one."""
    return SAME_ROW.get(row, row)


def paper_row(task_name: str, row: str) -> dict[str, float] | None:
    """The paper's numbers for one row, such as `{"accuracy": 0.745, "macro_f1": 0.514}`; None where it has none.

    Args:
        task_name: "lamp2" (news) or "lamp3"; the paper has no other task.
        row: our row name, such as "rag_5".
    """
    values = PAPER_ROWS.get(paper_name(row), {}).get(task_name)
    return dict(zip(METRICS[task_name], values, strict=True)) if values else None
