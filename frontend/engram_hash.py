"""Hash constants of the Engram n-gram memory (spec §4.3): primes, offsets, multipliers, exact row numbers.

Knows no configuration: everything comes in as numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

HASH_SEED = 10007
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # deterministic Miller-Rabin below 3.3e24

PrimeTable = tuple[tuple[int, ...], ...]


def is_prime(n: int) -> bool:
    """Exact for every n below 3.3e24."""
    if n < 2:
        return False
    for p in _WITNESSES:
        if n % p == 0:
            return n == p
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for a in _WITNESSES:
        x = pow(a, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def _primes_above(start: int) -> Iterator[int]:
    n = start + 1
    while True:
        if is_prime(n):
            yield n
        n += 1


def primes(layers: Sequence[int], orders: int, heads: int, start: int) -> dict[int, PrimeTable]:
    """layer -> [order][head] distinct primes.

    `start` is `engram_vocab_size`: each (layer, order) walks upwards from start - 1 over the primes that nothing has
    used yet, so one walk over all of them gives the same list.
    """
    walk = _primes_above(start - 1)
    return {layer: tuple(tuple(next(walk) for _ in range(heads)) for _ in range(orders)) for layer in layers}


def offsets(table: PrimeTable) -> PrimeTable:
    """First table row of each (order, head): exclusive prefix sums in that order."""
    result, row = [], 0
    for order in table:
        line = []
        for prime in order:
            line.append(row)
            row += prime
        result.append(tuple(line))
    return tuple(result)


def multiplier_bound(compressed_vocab: int) -> int:
    """Exclusive upper bound of (M - 1) / 2, so that every product of M with a compressed id stays below 2^63."""
    return max(1, (2**63 - 1) // compressed_vocab // 2)


def multipliers(layer: int, count: int, compressed_vocab: int) -> tuple[int, ...]:
    """M_0..M_{count-1} of a layer: odd, positive, below 2^63 / V_c."""
    generator = np.random.default_rng(HASH_SEED * layer)
    draws = generator.integers(0, multiplier_bound(compressed_vocab), size=count, dtype=np.int64) * 2 + 1
    return tuple(int(value) for value in draws)


def rows(history: Sequence[int], factors: Sequence[int], table: PrimeTable) -> tuple[int, ...]:
    """Table rows of one token, order by order and head by head.

    `history` is a_0..a_{n_max-1}: compressed ids of the token and of its predecessors, the pad's id where there is
    none (§4.2). Raises ValueError for a negative id: a sentinel must have been turned into the pad before hashing,
    since a signed remainder would otherwise depend on the language.
    """
    if min(history) < 0:
        raise ValueError(f"compressed ids must not be negative: {list(history)}")
    mixed = history[0] * factors[0]
    found: list[int] = []
    for n, (line, starts) in enumerate(zip(table, offsets(table), strict=True), start=1):
        mixed ^= history[n] * factors[n]
        found.extend(mixed % prime + first for prime, first in zip(line, starts, strict=True))
    return tuple(found)
