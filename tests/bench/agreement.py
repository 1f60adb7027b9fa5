"""All contenders compute the same numbers: asserted in float64 and small, before any is timed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from setting import ATTENTION, Size, scenario, seeds_of
from trainers import Measured, Prepare, Trainer, gradlab_loss

import gradlab
from gradlab import Point, Results, build_model, probe_batch
from gradlab.lab.sweep import run_sweep

LENGTH = 6
SMALL = Size(hidden=8, embedding=4, batch=5, steps=5, every=1, clip=0.1, dtype="float64")
ONCE = 1e-9
"""Of one pass: the sums are the same in another order."""
TRAINED = 1e-7
"""Of what follows updates by Adam: its first steps divide each gradient by about its own size, so
the rounding of a gradient that nearly cancels becomes a change of a weight of full size."""


def check(contenders: dict[str, Prepare]) -> None:
    """Compare each contender with gradlab's model, and with the tables of a sweep by gradlab."""
    with tempfile.TemporaryDirectory() as folder:
        run_sweep(scenario(ATTENTION, [LENGTH], SMALL), Path(folder), jobs=2, device="cpu")
        results = gradlab.open(folder)
        assert (results.training["gradient_norm"] > SMALL.clip).any(), "nothing was clipped"
        for attention in ATTENTION:
            seeds = seeds_of(attention, LENGTH, SMALL)
            for prepare in contenders.values():
                check_one(prepare, seeds, results)
    print(
        f"Equal in float64, for each of {'; '.join(contenders)}:\nall gradients of the first step "
        f"and dL/dh_i ({ONCE:g}, relative), the losses\nof {SMALL.steps} steps with clipping and "
        f"what gradlab's sweep records after each of them ({TRAINED:g}).\n"
    )


def check_one(prepare: Prepare, seeds: list[Point], results: Results) -> None:
    runs = prepare(seeds)
    points = seeds[: runs.seeds]
    twins = [Trainer(point, build_model(point), gradlab_loss) for point in points]
    for found, twin in zip(runs.gradients(), twins, strict=True):
        compare_gradients(found, twin.gradients()[0])
    for point, measured in zip(points, runs.measure(), strict=True):
        compare_totals(point, measured)
    for number in range(SMALL.steps):
        for point, measured in zip(points, runs.measure(), strict=True):
            compare_record(measured, results, point, number)
        expected = [twin.step(number)[0] for twin in twins]
        np.testing.assert_allclose(np.asarray(runs.step(number)), expected, TRAINED)


def compare_gradients(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    found = {name.removesuffix("_l0"): g for name, g in found.items()}
    expected = {name.removesuffix("_l0"): g for name, g in expected.items()}
    assert found.keys() == expected.keys()
    for name, g in expected.items():
        np.testing.assert_allclose(found[name], g, ONCE, 1e-16, err_msg=name)


def compare_totals(point: Point, measured: Measured) -> None:
    batch = probe_batch(point.task, point.record.examples, point.seed, point.task.length)
    total = gradlab.measure(build_model(point), batch).vectors["total"]["h"].numpy()
    np.testing.assert_allclose(measured.totals, total, ONCE, 1e-16)
    np.testing.assert_allclose(measured.norms, np.linalg.norm(total, axis=-1), ONCE)


def compare_record(measured: Measured, results: Results, point: Point, number: int) -> None:
    """Compare with what the sweep's tables say of this point after `number` updates."""
    (row,) = rows(results.training, point, number).to_dict("records")
    gradients = rows(results.gradients, point, number)
    total = gradients[gradients["path"] == "total"].sort_values("position")
    np.testing.assert_allclose(measured.loss, row["loss"], TRAINED)
    np.testing.assert_allclose(measured.accuracy, row["token_accuracy"], TRAINED)
    np.testing.assert_allclose(measured.norms.mean(0), total["norm_mean"], TRAINED)


def rows(table: pd.DataFrame, point: Point, number: int) -> pd.DataFrame:
    return table[(table["run_id"] == point.run_id) & (table["train_step"] == number)]
