"""Whole users are resampled, by their tasks or one by one, in little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from personalink.errors import ConfigError, DataError
from personalink.stats import cluster_bootstrap, paired_bootstrap
from personalink.stats.bootstrap import resample_blocks

USERS = {"u3": [1, 0, 0, -1], "u1": [0.5], "u2": [1, 1]}


@pytest.mark.parametrize("weigh", ["task", "user"])
def test_it_equals_a_plain_loop_over_users_in_the_order_of_their_ids(weigh):
    rows = [USERS[user] for user in ("u1", "u2", "u3")]
    draws = []
    for row in np.concatenate(list(resample_blocks(3, draws=300, seed=4))):
        drawn = [rows[i] for i in row]
        draws.append(np.mean(np.concatenate(drawn)) if weigh == "task" else np.mean([np.mean(r) for r in drawn]))
    found = cluster_bootstrap(USERS, seed=4, weigh=weigh, draws=300)
    expected = np.mean(np.concatenate(rows)) if weigh == "task" else np.mean([np.mean(r) for r in rows])
    assert found.difference == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(
        [found.interval.low, found.interval.high], np.percentile(draws, [2.5, 97.5]), rtol=0, atol=1e-12
    )
    assert found.n == 3
    assert found == cluster_bootstrap(dict(sorted(USERS.items())), seed=4, weigh=weigh, draws=300)


def test_one_task_a_user_is_the_paired_bootstrap():
    values = np.random.default_rng(1).normal(size=25)
    users = {f"u{i:02d}": [v] for i, v in enumerate(values)}
    plain = paired_bootstrap(values, np.zeros(25), seed=9, method="bca")
    for weigh in ("task", "user"):
        clustered = cluster_bootstrap(users, seed=9, weigh=weigh, method="bca")
        assert clustered.p == plain.p
        assert clustered.interval.low == pytest.approx(plain.interval.low, abs=1e-12)
        assert clustered.interval.high == pytest.approx(plain.interval.high, abs=1e-12)


def test_users_with_the_same_answer_throughout_widen_the_interval():
    random = np.random.default_rng(3)
    users = {f"u{i}": [float(random.normal())] * 8 for i in range(40)}
    flat = np.concatenate(list(users.values()))
    clustered = cluster_bootstrap(users, seed=1).interval
    plain = paired_bootstrap(flat, np.zeros(len(flat)), seed=1).interval
    assert clustered.high - clustered.low > 2 * (plain.high - plain.low)


def test_a_method_compared_with_itself_has_p_one():
    assert cluster_bootstrap({"a": [0, 0], "b": [0]}, seed=1).p == 1


def test_ten_thousand_draws_of_ten_thousand_users_stay_small():
    users = {f"{i:05d}": [float(i % 3 - 1)] for i in range(10_000)}
    tracemalloc.start()
    found = cluster_bootstrap(users, seed=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n == 10_000
    assert peak < 40 * 2**20  # the matrix of all draws would take 763 MiB as float64


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="user 'b' is empty; at least one value is needed"):
        cluster_bootstrap({"a": [1], "b": []}, seed=1)
    with pytest.raises(DataError, match="user 'a': value 0 is nan"):
        cluster_bootstrap({"a": [np.nan]}, seed=1)
    with pytest.raises(DataError, match="differences is empty; at least one user is needed"):
        cluster_bootstrap({}, seed=1)
    with pytest.raises(ConfigError, match="weigh is 'item'; it must be one of task, user"):
        cluster_bootstrap({"a": [1]}, seed=1, weigh="item")
