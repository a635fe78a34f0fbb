"""The contraction analyser: does a persona move less with every pass, and towards what?

    from personalink.contraction import of_run
    from personalink.encoder import SentenceEncoder

    measured = of_run("runs/lamp2/0123456789ab", SentenceEncoder(), users=15)
    measured.decay.fit, measured.decay.interval

Works on a run, on refinements, and on any sequences of texts; needs no language model and no network. It measures how
*kept* personas move; it does not show that a pass contracts every persona, and the paper does not claim that either.
"""

from __future__ import annotations

from personalink.contraction.analysis import EMPTY, TOLERANCE, analyse
from personalink.contraction.decay import Decay, Fit, decay, fit
from personalink.contraction.embedding import Plane, Remembered, plane
from personalink.contraction.personas import drift, of_refinements
from personalink.contraction.record import Contraction, Drift, FieldMotion, UserDrift, UserPath
from personalink.contraction.runs import as_csv, of_run, save
from personalink.contraction.telling import table

__all__ = [
    "EMPTY",
    "TOLERANCE",
    "Contraction",
    "Decay",
    "Drift",
    "FieldMotion",
    "Fit",
    "Plane",
    "Remembered",
    "UserDrift",
    "UserPath",
    "analyse",
    "as_csv",
    "decay",
    "drift",
    "fit",
    "of_refinements",
    "of_run",
    "plane",
    "save",
    "table",
]
