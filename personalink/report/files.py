"""The files of a report: each table in four formats, a LaTeX document of them all, and an index in HTML and Markdown.

Knows tables and pictures by name; knows nothing of runs. Every file is whole or as it was, and the same input gives the
same bytes; a table's files that are not written again are taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from personalink.canonical import write_atomic
from personalink.errors import StorageError
from personalink.report.html import escaped, html_page
from personalink.report.layout import Table, markdown_escaped

_ENDINGS = ("md", "csv", "tex", "html")
DOCUMENT = "all.tex"
_HEAD = r"""\documentclass[a4paper,landscape]{article}
\usepackage{booktabs}
\pdfpagewidth=\paperwidth
\pdfpageheight=\paperheight
\setlength{\textwidth}{25cm}
\setlength{\textheight}{18cm}
\setlength{\oddsidemargin}{-0.2cm}
\setlength{\topmargin}{-1.5cm}
\begin{document}
"""
NAMES = ("results", "runs", "table2", "table3", "table4", "table5", "tests", "selection", "costs")
"""Every table that a report may have; only files of these names are ever taken away."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that was drawn: its name, title and caption, and its files."""

    name: str
    title: str
    caption: str
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """What an index shows.

    Attributes:
        title: of the page. tables: file name → table. pictures: in their order.
        links: what a link says → where it leads, relative to the index.
        remarks: what is left out, and why.
    """

    title: str
    tables: Mapping[str, Table]
    pictures: Sequence[Picture]
    links: Mapping[str, str]
    remarks: Sequence[str]


def write_tables(tables: Mapping[str, Table], folder: Path) -> None:
    """Write each table as Markdown, CSV, LaTeX and HTML, and `all.tex`, which pdflatex makes a document of.

    Args:
        tables: name, one of `NAMES` → table.

    Raises:
        StorageError: the folder cannot be written.
    """
    files = {}
    for name, table in tables.items():
        files[f"{name}.md"] = table.as_markdown()
        files[f"{name}.csv"] = table.as_csv()
        files[f"{name}.tex"] = table.as_latex()
        files[f"{name}.html"] = html_page(table.title or name, table.as_html())
    files[DOCUMENT] = _HEAD + "".join(f"\\input{{{name}}}\n\\clearpage\n" for name in tables) + "\\end{document}\n"
    _write(folder, files)
    try:
        for name in (f"{name}.{ending}" for name in NAMES for ending in _ENDINGS):
            if name not in files:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise _refused(folder, error) from None


def write_index(index: Index, folder: Path) -> Path:
    """Write `index.html` and `index.md`; the way to the former.

    Raises:
        StorageError: the folder cannot be written.
    """
    _write(folder, {"index.html": _as_html(index, folder), "index.md": _as_markdown(index, folder)})
    return folder / "index.html"


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        for name, text in files.items():
            write_atomic(folder / name, text)
    except OSError as error:
        raise _refused(folder, error) from None


def _refused(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write the report in {folder}: {error.strerror or error}; give another folder with --out"
    )


def _as_html(index: Index, folder: Path) -> str:
    parts = [f"<h1>{escaped(index.title)}</h1>\n"]
    links = [f'<a href="{escaped(where)}">{escaped(what)}</a>' for what, where in index.links.items()]
    parts += [f"<p>{' · '.join(links)}</p>\n"] if links else []
    parts.append("<h2>Tables</h2>\n")
    for name, table in index.tables.items():
        files = [(ending.upper(), f"tables/{name}.{ending}") for ending in _ENDINGS]
        parts.append(f"{table.as_html()}<p>{_linked(files)}</p>\n")
    parts += ["<h2>Figures</h2>\n"] if index.pictures else []
    for picture in index.pictures:
        places = _places(picture, folder)
        image = f'<img src="{escaped(places["svg"])}" alt="{escaped(picture.caption)}">\n' if "svg" in places else ""
        files = [(ending.upper(), place) for ending, place in places.items()]
        parts.append(
            f"<figure>\n<figcaption>{escaped(picture.title)}</figcaption>\n{image}"
            f"<p>{escaped(picture.caption)}</p>\n<p>{_linked(files)}</p>\n</figure>\n"
        )
    if index.remarks:
        lines = "".join(f"<li>{escaped(remark)}</li>\n" for remark in index.remarks)
        parts.append(f"<h2>What is left out, and why</h2>\n<ul>\n{lines}</ul>\n")
    return html_page(index.title, "".join(parts))


def _linked(files: Sequence[tuple[str, str]]) -> str:
    return " · ".join(f'<a href="{escaped(place)}">{escaped(what)}</a>' for what, place in files)


def _as_markdown(index: Index, folder: Path) -> str:
    parts = [f"# {markdown_escaped(index.title)}\n"]
    parts += [f"[{markdown_escaped(what)}]({where})\n" for what, where in index.links.items()]
    parts.append("## Tables\n")
    parts += [table.as_markdown() for table in index.tables.values()]
    parts += ["## Figures\n"] if index.pictures else []
    for picture in index.pictures:
        places = _places(picture, folder)
        image = f"![{markdown_escaped(picture.title)}]({places['png']})\n\n" if "png" in places else ""
        parts.append(f"**{markdown_escaped(picture.title)}**\n\n{image}{markdown_escaped(picture.caption)}\n")
    if index.remarks:
        lines = "".join(f"- {markdown_escaped(remark)}\n" for remark in index.remarks)
        parts.append(f"## What is left out, and why\n\n{lines}")
    return "\n".join(parts)


def _places(picture: Picture, folder: Path) -> dict[str, str]:
    """Ending → where a picture's file is, seen from the index."""
    return {path.suffix[1:]: path.relative_to(folder).as_posix() for path in picture.paths}
