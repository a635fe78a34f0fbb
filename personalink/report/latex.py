"""LaTeX: any text escaped, and a table of cells that are LaTeX already.

Knows LaTeX with pdflatex and booktabs; knows nothing of metrics or rows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from personalink.text import one_line


def latex_table(
    heads: Sequence[str],
    alignment: str,
    body: Sequence[Sequence[str]],
    *,
    title: str = "",
    notes: Sequence[str] = (),
    groups: Mapping[int, str],
    compact: bool = False,
) -> str:
    """A `table` with a booktabs `tabular`; needs `\\usepackage{booktabs}` and nothing else, pdflatex included.

    Args:
        heads: of the columns. alignment: one letter a column. body: rows of cells, one a column.
        title: the caption. notes: lines below.
        groups: number of a row → what stands above it, over the table's whole width.
        compact: in small type, and centred on the page where it is wider than the text.
    """
    lines = []
    for number, row in enumerate(body):
        if number in groups:
            lines += [r"\midrule"] if number else []
            lines.append(f"\\multicolumn{{{len(heads)}}}{{l}}{{\\textit{{{groups[number]}}}}} \\\\")
        lines.append(" & ".join(row) + r" \\")
    tabular = [
        r"\begin{tabular}{" + alignment + "}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            *([f"\\caption{{{title}}}"] if title else []),
            r"\scriptsize" if compact else r"\footnotesize",
            r"\setlength{\tabcolsep}{3pt}" if compact else r"\setlength{\tabcolsep}{4pt}",
            *([r"\makebox[\textwidth][c]{%", *tabular, "}"] if compact else tabular),
            *(f"\\par\\smallskip {_BOX.format(note) if compact else note}" for note in notes),
            r"\end{table}",
            "",
        ]
    )


_BOX = r"\parbox{{\textwidth}}{{\raggedright {}}}"


def latex(text: str) -> str:
    """`text` for LaTeX with pdflatex and no package: specials escaped, arrows and signs as math.

    Letters that plain pdflatex lacks lose their marks, and what has no Latin form becomes "?".
    """
    return "".join(_LATEX.get(character) or _plain_letter(character) for character in one_line(text))


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: f"{{{character}}}" for character in "[]*"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    '"': "''",
    **{character: f"${character}$" for character in "<>|"},
    **{"↑": r"$\uparrow$", "↓": r"$\downarrow$", "→": r"$\to$", "−": "$-$", "±": r"$\pm$", "×": r"$\times$"},
    **{
        "≤": r"$\le$",
        "≥": r"$\ge$",
        "⁄": "/",
        "†": r"$\dagger$",
        "‡": r"$\ddagger$",
        "∞": r"$\infty$",
        "Δ": r"$\Delta$",
        "·": r"$\cdot$",
    },
    **{"–": "--", "—": "---", "…": r"\ldots{}", "‘": "`", "’": "'", "“": "``", "”": "''"},
    **{"ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "œ": r"\oe{}", "Œ": r"\OE{}"},
}
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030a": "r", "\u0327": "c"}


def _plain_letter(character: str) -> str:
    if character.isascii():
        return character
    parts = list(unicodedata.normalize("NFKD", character))
    base, marks = parts[0], parts[1:]
    accent = _ACCENTS.get(marks[0]) if len(marks) == 1 and base.isascii() and base.isalpha() else None
    if accent:
        return f"\\{accent}{{\\{base}}}" if base in "ij" else f"\\{accent}{{{base}}}"
    plain = ("" if unicodedata.combining(m) else m if m.isascii() else _LATEX.get(m, "?") for m in parts)
    return "".join(_LATEX.get(m, m) for m in plain)
