"""Tables to figures: pandas in, a matplotlib Figure out; no models, no torch.

`FIGURES` names what can be drawn. Each function takes results (the tables of a sweep, see
`results.py`), `style` ("lecture" for a hall, "paper" for print) and `lang` ("en" or "ko"); it
writes no file. `save` does.

    gradients, heatmap, maps       how much arrives at each encoder state, from which target
    attention, symbols             where each target step looks, with an example's symbols
    shares, lengths, exits         along which path, over how many edges, after how many steps
    blocks                         which panels and lines the figure of path lengths has
    decay, exponents, rates        how fast it falls, and how fast the encoder alone would make it
    accuracy, learning             what the models can do, after and during training
    facets, models, pairs          which panels and lines a sweep asks for
    states                         which layers and directions of an encoder are shown
    reference                      the path lengths that are exact without attention
    aggregate                      over seeds
    lines, canvas, caption         inside a panel, around the panels, under them
    titles, lettering              over panels and beside rows; how wide words are
    style, words                   sizes, fonts and marks; config values in both languages
    phrases, sentences, remarks    every phrase in both languages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from matplotlib.figure import Figure

from gradlab.plots.accuracy import bottleneck
from gradlab.plots.attention import attention_weights
from gradlab.plots.decay import half_life
from gradlab.plots.exits import hops
from gradlab.plots.exponents import lyapunov
from gradlab.plots.gradients import gradient_decay
from gradlab.plots.heatmap import gradient_heatmap
from gradlab.plots.learning import training
from gradlab.plots.lengths import path_length
from gradlab.plots.maps import gradient_map
from gradlab.plots.positions import accuracy_by_position
from gradlab.plots.results import Results
from gradlab.plots.saving import save
from gradlab.plots.shares import path_shares
from gradlab.plots.style import StyleName
from gradlab.plots.words import Language

__all__ = [
    "FIGURES",
    "Results",
    "accuracy_by_position",
    "attention_weights",
    "bottleneck",
    "gradient_decay",
    "gradient_heatmap",
    "gradient_map",
    "half_life",
    "hops",
    "lyapunov",
    "path_length",
    "path_shares",
    "save",
    "training",
]


class Plot(Protocol):
    """A figure: results in, Figure out; raises NothingToPlotError when nothing can be drawn."""

    def __call__(
        self, results: Results, *, style: StyleName = "lecture", lang: Language = "en"
    ) -> Figure: ...


FIGURES: Mapping[str, Plot] = {
    "gradient_decay": gradient_decay,
    "gradient_heatmap": gradient_heatmap,
    "path_shares": path_shares,
    "path_length": path_length,
    "hops": hops,
    "gradient_map": gradient_map,
    "attention_weights": attention_weights,
    "half_life": half_life,
    "lyapunov": lyapunov,
    "bottleneck": bottleneck,
    "accuracy_by_position": accuracy_by_position,
    "training": training,
}
