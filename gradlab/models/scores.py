"""The score functions of attention: how well a query of the decoder fits each encoder state.

With query q_j of target step j and encoder state h_i at source position i, e_ji = score(q_j, h_i).
The sizes of the two differ where the encoder reads in both directions; d is that of a query.

A score is one class with a `forward`, and one entry of `SCORES` (whose names the schema lists).
What else a class holds makes it faster.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from gradlab.errors import GradlabError
from gradlab.models.additive import Additive, AdditiveScores
from gradlab.models.attention import Score
from gradlab.models.comparisons import Comparison, Cosine, First, Product, unit
from gradlab.models.layers import Linear, Scale, linear_over_time


class TanhScore(Score):
    """e_ji = v . tanh(W1 h_i + W2 q_j), however W1 and W2 are stored."""

    def __init__(self, query_size: int, state_size: int, longest: int | None = None) -> None:
        super().__init__(query_size, state_size)
        self.energy = Linear(query_size, 1, bias=False)

    @abstractmethod
    def matrices(self) -> tuple[Tensor, Tensor]:
        """Return W1 (..., d, state size) and W2 (..., d, query size)."""

    def project_keys(self, keys: Tensor) -> Tensor:
        return linear_over_time(keys, self.matrices()[0])

    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        asked = linear_over_time(query, self.matrices()[1])
        inputs = asked, projected_keys, self.energy.weight
        scores: Tensor = AdditiveScores.apply(*inputs)  # type: ignore[no-untyped-call]
        return scores

    def query_weight(self) -> Tensor:
        return self.matrices()[1]

    def compared_with(self) -> tuple[Tensor, ...]:
        return (self.energy.weight,)

    def compare(self, queries: int, keys: Tensor, *weights: Tensor) -> Comparison:
        return Additive(queries, keys, *weights)

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return v (1 - tanh^2) W2 and v (1 - tanh^2) W1."""
        asked = linear_over_time(query, self.matrices()[1])
        activation = torch.tanh(self.project_keys(keys).unsqueeze(-3) + asked.unsqueeze(-2))
        slope = self.energy.weight.unsqueeze(-2).unsqueeze(-2) * (1 - activation * activation)
        w1, w2 = (weight.unsqueeze(-3).unsqueeze(-3) for weight in self.matrices())
        return (slope @ w2).contiguous(), slope @ w1


class AdditiveScore(TanhScore):
    """e_ji = v . tanh(W1 h_i + W2 q_j); Bahdanau et al. 2015, appendix A.1.2."""

    def __init__(self, query_size: int, state_size: int, longest: int | None = None) -> None:
        super().__init__(query_size, state_size)
        self.key = Linear(state_size, query_size, bias=False)
        self.query = Linear(query_size, query_size, bias=False)

    def matrices(self) -> tuple[Tensor, Tensor]:
        return self.key.weight, self.query.weight


class ConcatScore(TanhScore):
    """e_ji = v . tanh(W [h_i; q_j]); Luong et al. 2015, section 3.1.

    As a function it is the additive score, with W = [W1 W2]. Only the draw differs: one matrix over
    both is drawn with the bound 1 / sqrt(2 d), where W1 and W2 have 1 / sqrt(d) each.
    """

    def __init__(self, query_size: int, state_size: int, longest: int | None = None) -> None:
        super().__init__(query_size, state_size)
        self.state_size = state_size
        self.concat = Linear(state_size + query_size, query_size, bias=False)

    def matrices(self) -> tuple[Tensor, Tensor]:
        weight = self.concat.weight
        return weight[..., : self.state_size], weight[..., self.state_size :]


class DotScore(Score):
    """e_ji = q_j . h_i; Luong et al. 2015, section 3.1."""

    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        return query @ projected_keys.mT

    def compared_with(self) -> tuple[Tensor, ...]:
        return ()

    def compare(self, queries: int, keys: Tensor, *weights: Tensor) -> Comparison:
        return Product(keys)

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return k_i, as projected, and q_j times the projection (which keeps sizes if linear)."""
        projected = self.project_keys(keys).unsqueeze(-3)
        shape = *query.shape[:-1], keys.shape[-2], -1
        return projected.expand(*shape), self.pull_to_keys(query).unsqueeze(-2).expand(*shape)

    def pull_to_keys(self, g: Tensor) -> Tensor:
        """Return dL/dh_i for g = dL/dk_i, k_i the projected key."""
        return g


class ScaledDotScore(DotScore):
    """e_ji = q_j . h_i / sqrt(d); Vaswani et al. 2017, section 3.2.1."""

    def project_keys(self, keys: Tensor) -> Tensor:
        return keys / math.sqrt(keys.shape[-1])

    def pull_to_keys(self, g: Tensor) -> Tensor:
        return self.project_keys(g)


class GeneralScore(DotScore):
    """e_ji = q_j . W h_i; Luong et al. 2015, section 3.1.

    W acts on the keys, once for all target steps, rather than on each query in turn.
    """

    def __init__(self, query_size: int, state_size: int, longest: int | None = None) -> None:
        super().__init__(query_size, state_size)
        self.general = Linear(state_size, query_size, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.general(keys)
        return projected

    def pull_to_keys(self, g: Tensor) -> Tensor:
        return linear_over_time(g, self.general.weight.mT)


class CosineScore(Score):
    """e_ji = g q_j . h_i / (|q_j| |h_i|), with a learnt scale g that starts at 1.

    Graves et al. 2014, section 3.3.1, where g is the key strength. Without it a score lies between
    -1 and 1, and no weight can exceed e^2 / (e^2 + n - 1), 0.28 at n = 20. Where a vector is zero
    its cosines are taken as 0, with gradient 0.
    """

    def __init__(self, query_size: int, state_size: int, longest: int | None = None) -> None:
        super().__init__(query_size, state_size)
        self.scale = Scale()

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return g h_i / |h_i|."""
        projected: Tensor = self.scale(unit(keys)[0])
        return projected

    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        return unit(query)[0] @ projected_keys.mT

    def compared_with(self) -> tuple[Tensor, ...]:
        return ()

    def compare(self, queries: int, keys: Tensor, *weights: Tensor) -> Comparison:
        return Cosine(keys)

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return g (w_i - cos u_j) / |q_j| and g (u_j - cos w_i) / |h_i|, u and w of length 1."""
        (u, asked), (w, read) = unit(query), unit(keys)
        cosines = (u @ w.mT).unsqueeze(-1)
        u, w, g = u.unsqueeze(-2), w.unsqueeze(-3), self.scale.weight.unsqueeze(-3).unsqueeze(-3)
        of_query = (w - cosines * u) * (g / asked.unsqueeze(-2))
        return of_query, (u - cosines * w) * (g / read.unsqueeze(-3))


class LocationScore(Score):
    """e_ji = (W q_j)_i, from the query alone; Luong et al. 2015, section 3.1, equation 8.

    W has a row for each source position up to `longest`; row i is drawn the same whatever `longest`
    is. The softmax is over the real positions. Keys serve only to say how many there are.
    """

    reads_keys = False

    def __init__(self, query_size: int, state_size: int, longest: int | None = None) -> None:
        super().__init__(query_size, state_size)
        if longest is None:
            raise GradlabError(
                'attention "location" has a weight for each source position: expected the largest '
                "number of source steps, `longest`, found none"
            )
        self.longest = longest
        self.location = Linear(query_size, longest, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return zeros (..., batch, n, 1)."""
        if keys.shape[-2] > self.longest:
            raise GradlabError(
                f'attention "location" was built for at most {self.longest} source steps, found '
                f"{keys.shape[-2]}; build the model with a larger `longest`, which a run takes "
                "from task.length, record.lengths and task.delay"
            )
        return keys.new_zeros(*keys.shape[:-1], 1)

    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        scores: Tensor = self.location(query)
        return scores[..., : projected_keys.shape[-2]]

    def query_weight(self) -> Tensor:
        return self.location.weight

    def compared_with(self) -> tuple[Tensor, ...]:
        return ()

    def compare(self, queries: int, keys: Tensor, *weights: Tensor) -> Comparison:
        return First(keys)

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of W, and zeros."""
        shape, n = query.shape[:-1], keys.shape[-2]
        rows = self.location.weight[..., :n, :].unsqueeze(-3).unsqueeze(-3)
        return rows.expand(*shape, n, -1), keys.new_zeros(*shape, n, keys.shape[-1])


SCORES: dict[str, type[Score]] = {
    "additive": AdditiveScore,
    "concat": ConcatScore,
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
    "general": GeneralScore,
    "cosine": CosineScore,
    "location": LocationScore,
}
