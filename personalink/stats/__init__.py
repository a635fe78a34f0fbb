"""Paired statistics: tests, intervals, effect sizes, families and power, on plain numbers.

    from personalink import stats

    stats.mcnemar(a_right, b_right).exact
    stats.paired_bootstrap(a_errors, b_errors, seed=12345).interval

Knows numbers, labels and (user, query) keys; knows nothing of models, tasks or a run's files. numpy alone at run time.
Same inputs and seed, same result: every random choice comes from `seeding.stream`.
"""

from __future__ import annotations

from personalink.stats.bootstrap import bootstrap_mean, paired_bootstrap
from personalink.stats.clusters import cluster_bootstrap
from personalink.stats.discordant import mcnemar, mcnemar_counts
from personalink.stats.effects import binary_effect, numeric_effect
from personalink.stats.families import Family, bonferroni, holm
from personalink.stats.kappa import quadratic_kappa
from personalink.stats.macro_f1 import macro_f1_bootstrap, macro_f1_difference
from personalink.stats.margins import equivalence, non_inferiority
from personalink.stats.pairing import Pairs, pair
from personalink.stats.permutation import sign_flip
from personalink.stats.power import mcnemar_power, minimum_detectable_mcnemar, minimum_detectable_mean
from personalink.stats.proportions import binomial_test, tango, wilson
from personalink.stats.records import BinaryEffect, Interval, McNemar, NumericEffect, Paired, Tested, Within

__all__ = [
    "BinaryEffect",
    "Family",
    "Interval",
    "McNemar",
    "NumericEffect",
    "Paired",
    "Pairs",
    "Tested",
    "Within",
    "binary_effect",
    "binomial_test",
    "bonferroni",
    "bootstrap_mean",
    "cluster_bootstrap",
    "equivalence",
    "holm",
    "macro_f1_bootstrap",
    "macro_f1_difference",
    "mcnemar",
    "mcnemar_counts",
    "mcnemar_power",
    "minimum_detectable_mcnemar",
    "minimum_detectable_mean",
    "non_inferiority",
    "numeric_effect",
    "pair",
    "paired_bootstrap",
    "quadratic_kappa",
    "sign_flip",
    "tango",
    "wilson",
]
