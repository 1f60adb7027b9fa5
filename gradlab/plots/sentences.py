"""What stands under a figure: the sentences of its caption, and warnings, (en, ko)."""

from __future__ import annotations

from collections.abc import Mapping

SENTENCES: Mapping[str, tuple[str, str]] = {
    # captions: what is shown
    "about_norm": (
        "L2 norm of the total gradient of the loss L at state h, mean over {examples} probe"
        " examples per length.",
        "손실 L의 전체 기울기를 상태 h에서 잰 L2 노름, 길이마다 프로브 예제 {examples}개의 평균.",
    ),
    "about_loss": (
        "L: cross-entropy in nats, {reduction}.",
        "L: 교차 엔트로피(nats), {reduction}.",
    ),
    "about_loss_varies": (
        "L: cross-entropy in nats over the target tokens named over or beside each panel.",
        "L: 교차 엔트로피(nats), 대상 목표 토큰은 각 패널의 위나 옆에 표시.",
    ),
    "about_lstm": (
        "LSTM: hidden state h, with the cell state c held fixed.",
        "LSTM: 셀 상태 c를 고정한 은닉 상태 h.",
    ),
    "about_heatmap": (
        "Each row is one measured training step; colour: the {centre}{seeds}.",
        "각 행은 측정한 학습 스텝 하나, 색: {centre}{seeds}.",
    ),
    "about_shares": (
        "Share: projection of one path's gradient on the total, pooled over {examples} probe"
        " examples; shares sum to 1 and may be negative or above 1. A path that a model does not"
        " have is not drawn.",
        "비중: 한 경로의 기울기를 전체 기울기에 투영한 값, 프로브 예제 {examples}개를 합산."
        " 비중의 합은 1이며 음수이거나 1보다 클 수 있음. 모델에 없는 경로는 그리지 않음.",
    ),
    "about_hatch": (
        "Hatched: paths pull against each other and mostly cancel (the norms of the parts add up"
        " to more than {limit} times the total), so a share there does not tell how much came that"
        " way.",
        "빗금: 경로들이 서로 반대로 당겨 대부분 상쇄됨(부분들의 노름 합이 전체의 {limit}배 초과)."
        " 이곳의 비중은 그 경로로 얼마나 왔는지를 말해 주지 않음.",
    ),
    "about_query": (
        "Dotted: the part of the total that passed through at least one attention query; it cuts"
        " across the other paths and is not added to them.",
        "점선: 어텐션 쿼리를 하나 이상 거친 몫. 다른 경로들에 걸쳐 있으며 따로 더해지지 않음.",
    ),
    "about_path_length": (
        "Mean number of edges on the way from the loss L to state h, weighted by signed share and"
        " pooled over {examples} probe examples per length; an edge is a step in time, an exit from"
        " the encoder or an attention query.",
        "손실 L에서 상태 h까지 지나온 간선 수의 평균(부호 있는 비중으로 가중, 길이마다 프로브 예제"
        " {examples}개 합산). 간선: 시간 스텝, 인코더에서 나가는 길, 어텐션 쿼리.",
    ),
    "about_opposing": (
        "Hatched: parts oppose each other here (their norms add up to more than {limit} times the"
        " total, median over seeds); the mean length is not the length of any one path.",
        "빗금: 이곳에서는 부분들이 서로 반대로 당김(노름 합이 전체의 {limit}배 초과, 시드 중앙값)."
        " 평균 길이는 어느 한 경로의 길이가 아님.",
    ),
    "about_hops": (
        "Term m left the encoder m recurrent steps after the state. Share: its projection on the"
        " total, pooled over {examples} probe examples; the shares of a state sum to 1.",
        "항 m: 그 상태에서 순환 스텝 m번 뒤에 인코더를 나간 몫. 비중: 전체 기울기에 투영한 값,"
        " 프로브 예제 {examples}개 합산. 한 상태의 비중의 합은 1.",
    ),
    "about_middle": ("Middle: state {position}.", "가운데: 상태 {position}."),
    "zero_terms": (
        "{zeros} of {total} terms are exactly 0, drawn as 0.",
        "항 {total}개 중 {zeros}개는 정확히 0이며 0으로 표시.",
    ),
    "hops_oppose": (
        "In {count} of {total} states, seeds and stages the terms pull against each other (absolute"
        " shares add up to more than {limit}): a share there does not tell how much came that way.",
        "상태·시드·단계 {total}개 중 {count}개에서는 항들이 서로 반대로 당김(비중의 절댓값 합이"
        " {limit} 초과). 그곳의 비중은 얼마나 왔는지를 말해 주지 않음.",
    ),
    "about_map": (
        "lⱼ: cross-entropy of target token j alone, in nats, no reduction over tokens; norm at"
        " state h, mean over {examples} probe examples. Colour of a norm: the {centre}{seeds}.",
        "lⱼ: 목표 토큰 j만의 교차 엔트로피(nats), 토큰 간 축약 없음. 상태 h에서의 노름, 프로브 예제"
        " {examples}개의 평균. 노름의 색: {centre}{seeds}.",
    ),
    "about_weights": (
        "Weights: arithmetic mean over the same examples and seeds, 0 to 1.",
        "가중치: 같은 예제와 시드의 산술 평균, 0~1.",
    ),
    "about_half_life": (
        "Half-life log10(2)/|slope| of an exponential fitted to log10 of the norm against the"
        " distance from the last source timestep, one fit a length and seed.",
        "반감기 log10(2)/|기울기|: 마지막 원본 시점까지의 거리에 대한 log10 노름의 지수 적합,"
        " 길이와 시드마다 한 번.",
    ),
    "about_quality": (
        "Points: variance of log10 norm explained (R²) {low} to {high}.",
        "점: log10 노름의 설명된 분산(R²) {low}~{high}.",
    ),
    "half_life_interval": (
        "{seeds} seeds: point = half-life of their mean slope, bar = 95% t-interval over seeds,"
        " computed on the slope.",
        "시드 {seeds}개: 점 = 평균 기울기의 반감기, 막대 = 기울기의 95% t-구간(시드)에서.",
    ),
    "half_life_endless": (
        "Bars up to the top ({count}) have no upper end: interval too wide with {seeds} seeds.",
        "맨 위까지 이어진 막대({count}개)는 상한 없음: 시드 {seeds}개로는 구간이 너무 넓음.",
    ),
    "no_half_life": (
        "Grey strip: no half-life at {count} of {total} points ({reasons}).",
        "회색 띠: 점 {total}개 중 {count}개에는 반감기 없음({reasons}).",
    ),
    "left_out_of_fits": (
        "Norms left out of the fits: {zeros} exactly 0, {subnormal} below 2.2e-308, {nonfinite} not"
        " finite.",
        "적합에서 제외한 노름: 정확히 0 {zeros}개, 2.2e-308 미만 {subnormal}개, 유한하지 않음"
        " {nonfinite}개.",
    ),
    "about_lyapunov": (
        "Lyapunov exponents of the encoder's recurrence over the n source steps, mean over"
        " {examples} probe examples; they do not depend on the loss.",
        "인코더 순환의 랴푸노프 지수(원본 n 스텝), 프로브 예제 {examples}개의 평균, 손실과 무관.",
    ),
    "about_spectrum": ("All exponents: n = {length}.", "모든 지수: n = {length}."),
    "about_measured": (
        "Measured: fitted slope of log10 of the total gradient's norm times ln 10, one point a"
        " length; above the diagonal it falls more slowly than the encoder alone would make it."
        " Hollow: level, no clear trend, or an exponential does not fit best.",
        "측정값: 전체 기울기 노름의 log10 적합 기울기 × ln 10, 길이마다 한 점. 대각선 위:"
        " 인코더만의 경우보다 느리게 줄어듦. 빈 표식: 평탄하거나, 뚜렷한 추세가 없거나,"
        " 지수 적합이 가장 낫지 않음.",
    ),
    "slope_interval": (
        "Bar: 95% t-interval over seeds of the slope.",
        "막대: 기울기의 시드에 대한 95% t-구간.",
    ),
    "no_slope": (
        "{count} of {total} points are missing on the right: no slope could be fitted.",
        "오른쪽에서 점 {total}개 중 {count}개 누락: 기울기를 적합할 수 없음.",
    ),
    "about_longest": ("Source length n = {length}.", "원본 길이 n = {length}."),
    "about_profiles": ("Over source timestep: n = {length}.", "원본 시점별: n = {length}."),
    "about_longest_varies": (
        "Longest source length of each panel, in its title.",
        "각 패널의 가장 긴 원본 길이(제목에 표시).",
    ),
    "about_bottleneck": (
        "Free-running (the model reads its own outputs), {examples} held-out examples per length,"
        " {steps}.",
        "자유 실행(모델이 자신의 출력을 입력으로 사용), 길이마다 평가 예제 {examples}개, {steps}.",
    ),
    "about_fall": (
        "A fall with length shows what this much training reached, not how much a state can hold.",
        "길이에 따른 하락은 이만큼의 학습이 도달한 결과이며, 상태가 담을 수 있는 양을 뜻하지 않음.",
    ),
    "about_chance": (
        "Dotted: guessing, 1/V{sequence}{symbols}.",
        "점선: 무작위 추측, 1/V{sequence}{symbols}.",
    ),
    "about_chance_sequence": (" per token and V⁻ⁿ per sequence", "(토큰), V⁻ⁿ(시퀀스)"),
    "about_positions": (
        "Solid: free-running (the model reads its own outputs); dashed: teacher-forced (it reads"
        " the true previous token). {examples} held-out examples per length, {steps}.",
        "실선: 자유 실행(자신의 출력을 입력), 파선: 교사 강요(정답 토큰을 입력)."
        " 길이마다 평가 예제 {examples}개, {steps}.",
    ),
    "about_training": (
        "Loss: teacher-forced, mean over target tokens; accuracies: free-running. {examples}"
        " held-out examples per length. Dotted: guessing (loss ln V, 1/V per token, V⁻ⁿ per"
        " sequence{symbols}).",
        "손실: 교사 강요, 목표 토큰 평균. 정확도: 자유 실행. 길이마다 평가 예제 {examples}개."
        " 점선: 무작위 추측(손실 ln V, 토큰 1/V, 시퀀스 V⁻ⁿ{symbols}).",
    ),
    "symbols": (", V = {symbols}", ", V = {symbols}"),
    "last_step": ("after each run's last training step", "각 실행의 마지막 학습 스텝 후"),
    "steps": ("after {steps} training steps", "학습 {steps} 스텝 후"),
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
