"""Spec §4.2 and §4.3: n-grams of compressed ids and their table rows, in exact Python integers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracle.config import Dims

HASH_SEED = 10007


def is_prime(n: int) -> bool:
    """Trial division."""
    if n < 4:
        return n > 1
    if n % 2 == 0:
        return False
    divisor = 3
    while divisor * divisor <= n:
        if n % divisor == 0:
            return False
        divisor += 2
    return True


def table_primes(layers: Sequence[int], orders: int, heads: int, vocab: int) -> dict[int, list[list[int]]]:
    """P[n][h] per layer: primes > vocab - 1, distinct everywhere, in order (layer, order, head)."""
    used: set[int] = set()
    result: dict[int, list[list[int]]] = {}
    for layer in layers:
        result[layer] = []
        for _ in range(orders):
            current, primes = vocab - 1, []
            for _ in range(heads):
                current += 1
                while current in used or not is_prime(current):
                    current += 1
                used.add(current)
                primes.append(current)
            result[layer].append(primes)
    return result


def multipliers(layer: int, compressed_vocab: int, count: int) -> list[int]:
    """M_0..M_{count-1}: odd int64 from numpy's generator seeded with 10007 * layer_id."""
    bound = max(1, ((2**63 - 1) // compressed_vocab) // 2)
    drawn = np.random.default_rng(HASH_SEED * layer).integers(0, bound, size=count, dtype=np.int64)
    return [int(v) * 2 + 1 for v in drawn]


def compressed_id(token: int, token_map: Sequence[int]) -> int:
    """Compressed id, or the sentinel -1 for ids outside the table (image sentinels >= V, padding < 0)."""
    return token_map[token] if 0 <= token < len(token_map) else -1


def ngram(history: Sequence[int], position: int, token_map: Sequence[int], n_max: int, pad: int) -> list[int] | None:
    """a_0..a_{n_max-1} of the token at ``position``; None when that token itself is a sentinel (image-type row).

    ``pad`` is the compressed pad id. From the first sentinel met walking back, all entries are pad.
    """
    result: list[int] = []
    broken = False
    for k in range(n_max):
        a = compressed_id(history[position - k], token_map) if position >= k else pad
        broken = broken or a < 0
        result.append(pad if broken else a)
    return None if compressed_id(history[position], token_map) < 0 else result


@dataclass(frozen=True)
class LayerHash:
    """The constants of one Engram layer: primes[n-1][h] for orders 2..n_max, and multipliers M_0..M_{n_max-1}."""

    primes: list[list[int]]
    factors: list[int]

    @property
    def table_rows(self) -> int:
        """Rows of the table: the sum of all primes."""
        return sum(map(sum, self.primes))

    def rows(self, a: Sequence[int]) -> list[int]:
        """Table rows of the n-gram a_0..a_{n_max-1}, order major, head minor."""
        acc = a[0] * self.factors[0]
        offset, result = 0, []
        for n, primes in enumerate(self.primes, start=1):
            acc ^= a[n] * self.factors[n]
            for prime in primes:
                result.append(acc % prime + offset)
                offset += prime
        return result


def layer_hashes(dims: Dims, compressed_vocab: int) -> dict[int, LayerHash]:
    """The hash of every Engram layer of a configuration."""
    primes = table_primes(dims.engram_layers, dims.engram_ngram - 1, dims.engram_heads, dims.engram_vocab)
    return {
        layer: LayerHash(primes[layer], multipliers(layer, compressed_vocab, dims.engram_ngram))
        for layer in dims.engram_layers
    }
