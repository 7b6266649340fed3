"""Tensor IR and tile IR. Knows no other part of dinfc; everything else may import it."""
