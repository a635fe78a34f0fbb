"""Where each key's record begins in a file, in 16 bytes a record: sorted prefixes of the keys, and offsets beside them.

A key is found by its first eight bytes alone, so what is found is a candidate: whoever reads the record there checks
the whole key. Knows no file and no lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

NEW = 1 << 16
"""Records that wait in a dictionary (some 200 bytes each) until they are merged into the sorted arrays at once."""


class Index:
    """Candidates by key.

    Args:
        prefixes: of the keys that are there, eight bytes each, in the order of the file. offsets: of their records.
    """

    def __init__(self, prefixes: bytes, offsets: array[int]) -> None:
        unsorted = np.frombuffer(prefixes, ">u8").astype(np.uint64)
        order = np.argsort(unsorted, kind="stable")
        self._prefixes: NDArray[np.uint64] = unsorted[order]
        self._offsets: NDArray[np.uint64] = np.frombuffer(offsets, np.uint64)[order]
        self._new: dict[bytes, int] = {}

    def __len__(self) -> int:
        """How many keys there are, as far as their prefixes tell them apart."""
        self._merge()
        return int(np.count_nonzero(np.diff(self._prefixes))) + bool(self._prefixes.size)

    def add(self, key: bytes, offset: int) -> None:
        """A record more; it comes before what stood under its key."""
        self._new[key] = offset
        if len(self._new) >= NEW:
            self._merge()

    def find(self, key: bytes) -> Iterator[int]:
        """Offsets at which the key's record may be, newest first; nearly always none or one."""
        if key in self._new:
            yield self._new[key]
        prefix = np.uint64(_prefix(key))
        first, last = (int(np.searchsorted(self._prefixes, prefix, side)) for side in ("left", "right"))
        yield from (int(offset) for offset in self._offsets[first:last][::-1])

    def drop(self, keys: Collection[bytes]) -> None:
        """Forget these keys, and whichever have the prefix of one of them."""
        self._merge()
        gone = np.fromiter(map(_prefix, keys), np.uint64, len(keys))
        kept = ~np.isin(self._prefixes, gone)
        self._prefixes, self._offsets = self._prefixes[kept], self._offsets[kept]

    def _merge(self) -> None:
        """Bring the new ones into the arrays: in their order, behind those of the same prefix."""
        fresh = sorted((_prefix(key), offset) for key, offset in self._new.items())
        prefixes, offsets = (np.array([pair[i] for pair in fresh], np.uint64) for i in (0, 1))
        places = np.searchsorted(self._prefixes, prefixes, "right")
        self._prefixes = np.insert(self._prefixes, places, prefixes)
        self._offsets = np.insert(self._offsets, places, offsets)
        self._new = {}


def _prefix(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")
