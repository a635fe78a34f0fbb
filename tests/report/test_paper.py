import pytest

from personalink.report.paper import METRICS, PAPER_ROWS, SAME_ROW, paper_row
from personalink.report.tables import ROW_LABELS


@pytest.mark.parametrize(
    ("row", "news", "stars"),
    [
        ("nopers", (0.645, 0.388), (0.500, 0.794)),
        ("random_user", (0.665, 0.393), (0.565, 0.908)),
        ("rag_20", (0.790, 0.604), (0.250, 0.589)),
        ("rag_pag", (0.765, 0.501), (0.335, 0.621)),
        ("personalink_r1", (0.755, 0.494), (0.425, 0.731)),
        ("personalink_r2", (0.745, 0.514), (0.455, 0.765)),
        ("oracle", (0.715, 0.526), (0.280, 0.608)),
        ("personalink_r2_no_rules", (0.700, 0.452), (0.475, 0.781)),
        ("personalink_r2_no_exemplars", (0.720, 0.470), (0.490, 0.789)),
        ("personalink_r2_no_summary", (0.715, 0.461), (0.470, 0.779)),
    ],
)
def test_spot_values(row, news, stars):
    assert paper_row("lamp2", row) == dict(zip(("accuracy", "macro_f1"), news, strict=True))
    assert paper_row("lamp3", row) == dict(zip(("mae", "rmse"), stars, strict=True))


def test_every_row_has_both_tasks_and_a_label():
    assert len(PAPER_ROWS) == 16
    for row, tasks in PAPER_ROWS.items():
        assert set(tasks) == set(METRICS)
        assert row in ROW_LABELS
    assert set(ROW_LABELS) == set(PAPER_ROWS) | set(SAME_ROW)


def test_both_random_users_stand_beside_the_papers_one():
    for row in ("random_user_persona", "random_user_demos"):
        assert paper_row("lamp3", row) == paper_row("lamp3", "random_user")


def test_unknown_rows_and_tasks_have_none():
    assert paper_row("lamp2", "rag_7") is None
    assert paper_row("lamp2_tags", "rag_5") is None
