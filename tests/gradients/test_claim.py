"""The referees of a claim: central differences, autograd and the relative error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gradlab.gradients.formulas.claim import (
    Claim,
    autograd,
    central_differences,
    relative_error,
)


def test_central_differences_are_of_sixth_order() -> None:
    at = torch.tensor([1.5, -2.0], dtype=torch.float64)
    claim = Claim((6 * at**5,), lambda x: (x**6).sum(-1), (at,))
    for truth in (*central_differences(claim), *autograd(claim)):
        torch.testing.assert_close(truth, 6 * at**5, rtol=1e-12, atol=0)
    steep = Claim((7 * at**6,), lambda x: (x**7).sum(-1), (at,))
    assert 1e-16 < steep.distance(central_differences(steep)) < 1e-12


def test_relative_error_of_zeros_and_of_shapes() -> None:
    zero, one = torch.zeros(2), torch.ones(2)
    assert relative_error(zero, zero) == 0
    assert relative_error(1e-300 * one.double(), zero.double()) == np.inf
    assert relative_error(one, torch.ones(1, 2)) == np.inf
    assert relative_error(1.5 * one, one) == pytest.approx(0.5)


def test_a_vanishing_vector_is_not_judged_by_its_neighbours() -> None:
    truth = torch.tensor([[1.0, 0.0], [1e-20, 0.0]], dtype=torch.float64)
    says = torch.tensor([[1.0, 0.0], [2e-20, 0.0]], dtype=torch.float64)
    together = Claim((says,), lambda x: x, (says,))
    assert together.distance((truth,)) < 1e-19
    assert replace(together, each_vector=True).distance((truth,)) == pytest.approx(1.0)


def test_a_derivative_that_is_absent_is_an_error() -> None:
    at = torch.ones(2, dtype=torch.float64)
    claim = Claim((at, at), lambda x, y: x.sum(-1), (at, at))
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        autograd(claim)
