"""`page_translate`: compressed token -> encoded place in the paged cache (spec 2.11, design section 4a)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import emap, take
from ..composite import Composite
from ..graph import Attr, Builder, Value, register
from ..opkit import int_attr, known_attrs, need_rank
from ..scalar import Expr, compare, const, land, select

PAGES_SOURCE = -(1 << 31)  # source 2 of an encoded index: 2 << 30 as i32 bits


@register
class PageTranslate(Composite):
    """token i32 `[T, k]` (-1 absent), table i32 `[S, pages]`, seq i32 `[T]` -> encoded index i32 `[T, k]`.

    Record = page * capacity + token mod capacity; `capacity` = records of a page.
    """

    kind = "page_translate"
    takes = (3, 3)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "capacity")
        capacity = int_attr(attrs, "capacity", least=1)
        token, table, seq = operands
        rows, k = need_rank(token, 2, "index")
        row = emap(b, lambda s: s, [seq], dims=[(0,)], shape=(rows, k), hint="seq_row")
        column = emap(b, lambda j: select(compare("ge", j, 0), j // capacity, -1), [token], hint="column")
        page = take(b, table, [row, column], fill=-1, hint="page")

        def body(j: Expr, p: Expr) -> Expr:
            place = p * capacity + j % capacity
            return select(land(compare("ge", j, 0), compare("ge", p, 0)), place | const(PAGES_SOURCE), -1)

        return [emap(b, body, [token, page], hint="encoded")]
