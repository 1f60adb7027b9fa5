"""How much memory a request takes, so that one too large is refused before training starts."""

from __future__ import annotations

CHUNK_BYTES = 512 * 2**20  # examples are measured in chunks of about this size
LARGEST_EXAMPLE = 2 * 2**30  # of memory; one example is the smallest chunk


def measure_bytes(source_length: int, target_length: int, hidden: int) -> int:
    """Return about how many bytes the heap grows to while one example is measured.

    hidden: times the number of layers and directions. Keys, values, states and gates are kept, most
    of them for three signals.
    """
    steps = source_length + target_length + 20
    return 8 * (60 * hidden * steps + 15 * source_length * target_length)


def transformer_bytes(
    source_length: int, target_length: int, sizes: tuple[int, int, int, int], rows: int
) -> int:
    """Return about how many bytes it takes to pull `rows` gradients of one example back at once.

    sizes: layers, hidden, heads and feedforward. Each layer keeps its forward pass, the decoder's
    for three signals; the backward pass of all rows works in one layer at a time.
    """
    layers, hidden, heads, feedforward = sizes
    longest = max(source_length, target_length)
    layer = longest * (8 * hidden + feedforward) + 4 * heads * longest**2
    return 8 * (4 * layers + rows) * layer


def map_bytes(
    source_length: int,
    target_length: int,
    hidden: int,
    states: int = 1,
    layers: int = 1,
    ways: int = 1,
) -> int:
    """Return about how many bytes of memory the map of one example takes.

    states: 2 for the LSTM, else 1. layers, ways: of the encoder, which reads in 1 or 2 directions.
    """
    kept = 5 * ways + 4 * states * layers * ways - states
    return 8 * target_length * source_length * (hidden * kept + 2 * target_length)


def hops_bytes(
    source_length: int, hidden: int, states: int = 1, layers: int = 1, ways: int = 1
) -> int:
    """Return about how many bytes of memory the hops of one example take; see `map_bytes`.

    A path that may turn round between layers has as many more hops.
    """
    turns = layers if ways > 1 else 1
    return 8 * (6 * states * layers * ways - states) * hidden * turns * source_length**2
