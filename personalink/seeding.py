"""Every random choice comes from (seed, user, purpose), so that order and company change nothing. 0 is a seed."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, user: str, purpose: str) -> np.random.Generator:
    """A PCG64 generator that belongs to one user and one purpose.

    Args:
        seed: the run's seed, any integer; 0 is as good as another.
        user: the user's id, or "" for a choice that concerns all of them.
        purpose: what is drawn, such as "slice"; two purposes never share a stream.
    """
    name = f"{seed}\x1f{user}\x1f{purpose}".encode("utf-8", "surrogatepass")
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(name).digest()[:16], "big")))
