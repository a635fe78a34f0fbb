"""HTML: a table of cells that are HTML already, and a page that stands alone.

Knows HTML; knows nothing of metrics or rows. No script, no address of another place.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from personalink.text import one_line

STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 75rem; margin: 0 auto; padding: 1rem; }
h1, h2 { line-height: 1.25; overflow-wrap: anywhere; }
figure { margin: 2rem 0; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; border-block: 2px solid; }
th, td { padding: .2rem .6rem; text-align: right; white-space: nowrap; }
thead th { border-bottom: 1px solid; vertical-align: bottom; white-space: normal; }
th.text, td.text { text-align: left; }
tbody th { font-weight: 400; }
@media (max-width: 40rem) { tbody th { white-space: normal; min-width: 8rem; padding-left: 0; } }
tbody th.group { text-align: left; font-style: italic; border-top: 1px solid #8888; }
figure ul { font-size: .875rem; padding-left: 1.2rem; max-width: 50rem; }
img { width: 100%; max-width: 40rem; height: auto; background: #fff; }
"""


def escaped(text: str) -> str:
    """`text` as one line of HTML, in an element or in an attribute between quotes; a no-break space stays one."""
    return "&nbsp;".join(html.escape(one_line(part)) for part in text.split("\u00a0"))


def html_table(
    heads: Sequence[str],
    left: Sequence[bool],
    body: Sequence[Sequence[str]],
    *,
    title: str,
    notes: Sequence[str],
    groups: Mapping[int, str],
) -> str:
    """A `figure` with a table.

    Args:
        heads: of the columns, as text. left: whether a column stands to the left; the others stand to the right.
        body: rows of cells that are HTML, one a column; the first heads its row.
        title, notes: lines above and below, as text.
        groups: number of a row → what stands above it, as text, over the table's whole width.
    """
    classes = [' class="text"' if is_left else "" for is_left in left]
    rows = []
    for number, cells in enumerate(body):
        if number in groups:
            rows.append(f'<tr><th class="group" colspan="{len(heads)}">{escaped(groups[number])}</th></tr>')
        first, *others = cells
        rest = "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(classes[1:], others, strict=True))
        rows.append(f'<tr><th{classes[0]} scope="row">{first}</th>{rest}</tr>')
    lines = [
        "<figure>",
        *([f"<figcaption>{escaped(title)}</figcaption>"] if title else []),
        '<div class="scroll" tabindex="0">',
        "<table>",
        "<thead><tr>"
        + "".join(f'<th{kind} scope="col">{escaped(head)}</th>' for kind, head in zip(classes, heads, strict=True))
        + "</tr></thead>",
        "<tbody>",
        *rows,
        "</tbody>",
        "</table>",
        "</div>",
        *(["<ul>", *(f"<li>{escaped(note)}</li>" for note in notes), "</ul>"] if notes else []),
        "</figure>",
        "",
    ]
    return "\n".join(lines)


def html_page(title: str, body: str) -> str:
    """A whole page around HTML that is safe as it stands."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "img-src 'self' file:\">\n"
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
