"""A figure as files: SVG, PDF and PNG, the same bytes for the same figure, each whole or absent.

Knows formats and their metadata, none of which tells a date, a version or a machine.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")


def rendered(figure: Figure, title: str, caption: str) -> dict[str, bytes]:
    """The figure in every format of `FORMATS`; title and caption are in the metadata, for those who cannot see it."""
    told: Mapping[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None, "Title": title, "Description": caption},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None, "Title": title, "Subject": caption},
        "png": {"Software": None, "Title": title, "Description": caption},
    }
    found = {}
    for kind in FORMATS:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, facecolor="white", metadata=told[kind])
        found[kind] = buffer.getvalue()
    return found
