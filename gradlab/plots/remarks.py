"""What stands under a figure about seeds, zeros and what is missing, and warnings, (en, ko)."""

from __future__ import annotations

from collections.abc import Mapping

REMARKS: Mapping[str, tuple[str, str]] = {
    # captions: seeds
    "seeds_one": ("1 seed: no interval.", "시드 1개: 구간 없음."),
    "seeds_few": (
        "{seeds} seeds: each thin line is one seed, the thick line their {centre}.",
        "시드 {seeds}개: 가는 선은 각각 시드 하나, 굵은 선은 {centre}.",
    ),
    "seeds_many": (
        "{seeds} seeds: line = their {centre}, band = 95% t-interval over seeds{space}.",
        "시드 {seeds}개: 선 = {centre}, 띠 = 시드에 대한 95% t-구간{space}.",
    ),
    "of_seeds": (" over {seeds} seeds", "({seeds}개)"),
    "mean": ("mean", "시드 평균"),
    "geometric_mean": ("geometric mean", "시드 기하 평균"),
    "one_value": ("norm of the one seed", "단일 시드의 노름"),
    "in_log": (", computed in log10 about it", "(log10 공간에서 계산)"),
    "range": ("{low} to {high}", "{low}~{high}"),
    # captions: what is missing
    "zeros": (
        "▼ at the bottom: exactly 0, {zeros} of {total} values, not in the lines.",
        "아래쪽 ▼: 정확히 0인 값, {total}개 중 {zeros}개(선에서 제외).",
    ),
    "zeros_cells": (
        "{zeros} of {total} norms are exactly 0 and not in the means.",
        "노름 {total}개 중 {zeros}개는 정확히 0(평균에서 제외).",
    ),
    "zero_examples": (
        "Some probe examples are exactly 0 in {count} of {total} values.",
        "값 {total}개 중 {count}개에는 정확히 0인 프로브 예제가 포함됨.",
    ),
    "nonfinite": (
        "Not finite and left out: {count} of {total} values.",
        "값 {total}개 중 {count}개는 유한하지 않아 제외.",
    ),
    "beyond": (
        "▲▼ at the edge: beyond the axis ({count}).",
        "가장자리 ▲▼: 축 범위를 벗어난 점 {count}개.",
    ),
    "beyond_loss": (
        "× at the top: a loss beyond the axis or not finite ({count}).",
        "위쪽 ×: 축을 벗어났거나 유한하지 않은 손실 {count}개.",
    ),
    "runs_diverged": (
        "{count} of {total} runs diverged: not in the lines.",
        "실행 {total}개 중 {count}개 발산: 선에서 제외.",
    ),
    "runs_diverged_later": (
        "{count} of {total} runs diverged: left out from then on.",
        "실행 {total}개 중 {count}개 발산: 발산 이후 제외.",
    ),
    "runs_diverged_crossed": (
        "{count} of {total} runs diverged: not in the lines, shown as ×.",
        "실행 {total}개 중 {count}개 발산: 선에서 제외, ×로 표시.",
    ),
    "runs_missing": ("{count} of {total} runs missing.", "실행 {total}개 중 {count}개 누락."),
    # warnings that stay English, since there is no font for anything else
    "no_hangul": (
        "no installed font has Hangul, so this figure is labelled in English; install NanumGothic"
        " or Noto Sans CJK KR (on Debian and Ubuntu: fonts-nanum, fonts-noto-cjk) for lang='ko'",
        "",
    ),
}
