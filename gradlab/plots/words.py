"""Every phrase that a figure can print, in English and in Korean, and words for config values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Language = Literal["en", "ko"]

PHRASES: Mapping[str, tuple[str, str]] = {
    # titles
    "gradient_decay": (
        "How much gradient reaches each encoder state?",
        "각 인코더 상태에 도달하는 기울기의 크기",
    ),
    "gradient_heatmap": (
        "Gradient at each encoder state during training",
        "학습 중 각 인코더 상태의 기울기",
    ),
    "path_shares": (
        "Along which path does the gradient arrive?",
        "기울기는 어떤 경로로 도달하는가?",
    ),
    "bottleneck": ("Accuracy against source length", "원본 길이에 따른 정확도"),
    "accuracy_by_position": ("Accuracy at each target position", "목표 위치별 정확도"),
    "training": ("Training: loss and accuracy", "학습 곡선: 손실과 정확도"),
    # axes and legends
    "timestep": ("source timestep", "원본 시점"),
    "norm": ("gradient norm ‖dL/dh‖ (nats)", "기울기 노름 ‖dL/dh‖ (nats)"),
    "train_step": ("training step", "학습 스텝"),
    "share": ("signed share of the total gradient", "전체 기울기에 대한 부호 있는 비중"),
    "length": ("source length n", "원본 길이 n"),
    "length_log": ("source length n (log scale)", "원본 길이 n (로그 눈금)"),
    "position": ("target position", "목표 위치"),
    "accuracy": ("accuracy", "정확도"),
    "token_accuracy": ("token accuracy", "토큰 정확도"),
    "sequence_accuracy": ("sequence accuracy", "시퀀스 정확도"),
    "loss": ("loss (nats/token)", "손실 (nats/토큰)"),
    "bridge": ("bridge: last state to decoder", "브리지: 마지막 상태에서 디코더로"),
    "bridge_mean": ("bridge: mean state to decoder", "브리지: 상태 평균에서 디코더로"),
    "values": ("values: states that are read", "값(value): 읽히는 상태"),
    "keys": ("keys: states that are scored", "키(key): 점수를 매기는 상태"),
    "free": ("free-running", "자유 실행"),
    "forced": ("teacher-forced", "교사 강요"),
    "chance": ("guessing", "무작위 추측"),
    "diverged": ("diverged run", "발산한 실행"),
    "hatched": ("paths cancel", "경로가 서로 상쇄"),
    "zero_cell": ("exactly 0", "정확히 0"),
    "empty_cell": ("no finite value", "유한한 값 없음"),
    # stages
    "untrained": ("untrained", "학습 전"),
    "after_steps": ("after {steps} steps", "{steps} 스텝 학습 후"),
    "longest": ("n = {length}", "n = {length}"),
    # notes inside panels
    "no_runs": (
        "nothing to draw here:\nall runs diverged or are missing",
        "그릴 값 없음:\n모든 실행이 발산했거나 누락됨",
    ),
    "no_values": ("nothing to draw here:\nno finite value", "그릴 값 없음:\n유한한 값이 없음"),
    "all_zero": ("every value is exactly 0", "모든 값이 정확히 0"),
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
        "L: cross-entropy in nats over the target tokens named in each title.",
        "L: 교차 엔트로피(nats), 대상 목표 토큰은 각 제목에 표시.",
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
    "about_longest": ("Source length n = {length}.", "원본 길이 n = {length}."),
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
    "runs_missing": (
        "{count} of {total} runs missing.",
        "실행 {total}개 중 {count}개 누락.",
    ),
    # warnings that stay English, since there is no font for anything else
    "no_hangul": (
        "no installed font has Hangul, so this figure is labelled in English; install NanumGothic"
        " or Noto Sans CJK KR (on Debian and Ubuntu: fonts-nanum, fonts-noto-cjk) for lang='ko'",
        "",
    ),
}

VALUES: Mapping[tuple[str, object], tuple[str, str]] = {
    ("model.kind", "seq2seq"): ("encoder-decoder", "인코더-디코더"),
    ("model.kind", "synchronous"): ("synchronous", "동기식"),
    ("model.kind", "transformer"): ("transformer", "트랜스포머"),
    ("model.cell", "rnn"): ("RNN", "RNN"),
    ("model.cell", "gru"): ("GRU", "GRU"),
    ("model.cell", "lstm"): ("LSTM", "LSTM"),
    ("model.attention", "none"): ("no attention", "어텐션 없음"),
    ("model.attention", "additive"): ("additive attention", "가산 어텐션"),
    ("model.attention", "dot"): ("dot attention", "내적 어텐션"),
    ("model.attention", "scaled_dot"): ("scaled dot attention", "스케일드 내적 어텐션"),
    ("model.attention", "general"): ("general attention", "일반(general) 어텐션"),
    ("model.attention", "concat"): ("concat attention", "연결(concat) 어텐션"),
    ("model.attention", "cosine"): ("cosine attention", "코사인 어텐션"),
    ("model.attention", "location"): ("location attention", "위치(location) 어텐션"),
    ("model.bidirectional", True): ("two-way encoder", "양방향 인코더"),
    ("model.bidirectional", False): ("one-way encoder", "단방향 인코더"),
    ("task.name", "copy"): ("copy", "복사"),
    ("task.name", "reverse"): ("reverse", "역순"),
    ("record.loss", "mean"): ("mean over target tokens", "목표 토큰 평균"),
    ("record.loss", "sum"): ("sum over target tokens", "목표 토큰 합"),
    ("record.loss", "first"): ("first target token only", "첫 목표 토큰만"),
    ("record.loss", "last"): ("last target token only", "마지막 목표 토큰만"),
}

KEYS: Mapping[str, tuple[str, str]] = {
    "model.timing": ("{value} timing", "{value} 타이밍"),
    "model.hidden": ("hidden size {value}", "은닉 크기 {value}"),
    "model.embedding": ("embedding size {value}", "임베딩 크기 {value}"),
    "model.layers": ("layers: {value}", "층: {value}"),
    "model.bridge": ("bridge: {value}", "브리지: {value}"),
    "task.symbols": ("V = {value} symbols", "기호 V = {value}개"),
    "task.delay": ("delay {value}", "지연 {value}"),
    "task.length": ("trained at n = {value}", "학습 길이 n = {value}"),
    "training.lr": ("learning rate {value}", "학습률 {value}"),
    "training.steps": ("{value} steps", "{value} 스텝"),
}


def say(lang: Language, phrase: str, **values: object) -> str:
    """One phrase of the table in `lang`, with its blanks filled in."""
    return PHRASES[phrase][lang == "ko"].format(**values)


def describe(lang: Language, key: str, value: object) -> str:
    """A config value in plain words: ("model.attention", "none") is "no attention"."""
    if key == "case":
        return str(value)
    if key == "metric":
        return say(lang, str(value))
    if key == "stage":
        return say(lang, "after_steps", steps=value) if value else say(lang, "untrained")
    if (key, value) in VALUES:
        return VALUES[key, value][lang == "ko"]
    generic = f"{key.split('.')[-1].replace('_', ' ')} {{value}}"
    return KEYS.get(key, (generic, generic))[lang == "ko"].format(value=value)


def describe_all(lang: Language, values: Mapping[str, object]) -> str:
    """Several config values as one title, "GRU · additive attention (luong timing) · copy"."""
    parts: list[str] = []
    for key, value in values.items():
        if value is None:
            continue
        words = describe(lang, key, value)
        if key == "model.timing" and "model.attention" in values:
            parts[-1] += f" ({words})"
        else:
            parts.append(words)
    return " · ".join(parts)
