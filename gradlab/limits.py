"""How much memory a request takes, so that one too large is refused before training starts."""

from __future__ import annotations

CHUNK_BYTES = 512 * 2**20  # examples are measured in chunks of about this size
LARGEST_EXAMPLE = 2 * 2**30  # of memory; one example is the smallest chunk


def measure_bytes(source_length: int, target_length: int, hidden: int) -> int:
    """Return about how many bytes the heap grows to while one example is measured.

    What is kept grows with n k; but the working memory of each decoder step, n x hidden for each of
    three signals, leaves a gap in the heap that small kept tensors then split.
    """
    return 8 * 3 * target_length * hidden * (source_length + 20)


def map_bytes(source_length: int, target_length: int, hidden: int, states: int = 1) -> int:
    """Return about how many bytes of memory the map of one example takes."""
    row = 8 * source_length * (hidden * (5 + 3 * states) + 2 * target_length)
    return target_length * row


def hops_bytes(source_length: int, hidden: int, states: int = 1) -> int:
    """Return about how many bytes of memory the hops of one example take."""
    return 8 * 5 * states * hidden * source_length**2
