"""Who owns which page and which state slot. Page 0 and slot 0 are reserved: kernels never write them."""
from __future__ import annotations

from collections.abc import Iterable


class PageAllocator:
    """Pages 1..count-1 with reference counts (a page may be shared by sequences with a common prefix)."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, 0, -1))  # the lowest is taken first
        self._references = [0] * count

    @property
    def available(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """`count` pages with one reference each. Raises ValueError if there are not so many: callers ask first."""
        if count > len(self._free):
            raise ValueError(f"{count} pages wanted, {len(self._free)} free")
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._references[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """One more reference to pages that somebody holds. Raises ValueError for a page that nobody does."""
        for page in pages:
            if not self._references[page]:
                raise ValueError(f"page {page} is not held by anybody")
            self._references[page] += 1

    def release(self, pages: Iterable[int]) -> list[int]:
        """Gives up one reference each; returns the pages that are free now. Raises ValueError for a free page."""
        freed = []
        for page in pages:
            if not self._references[page]:
                raise ValueError(f"page {page} is released twice")
            self._references[page] -= 1
            if not self._references[page]:
                freed.append(page)
        # pages go back in an order that does not depend on the caller's
        self._free.extend(sorted(freed, reverse=True))
        return freed


class SlotAllocator:
    """State slots 1..count-1, one for each running sequence."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, 0, -1))
        self._held: set[int] = set()

    @property
    def available(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    def take(self) -> int:
        """A slot. Raises ValueError if none is free."""
        if not self._free:
            raise ValueError("no state slot is free")
        slot = self._free.pop()
        self._held.add(slot)
        return slot

    def release(self, slot: int) -> None:
        """Raises ValueError for a slot that nobody holds."""
        if slot not in self._held:
            raise ValueError(f"slot {slot} is released twice")
        self._held.remove(slot)
        self._free.append(slot)
