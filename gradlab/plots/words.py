"""Words in English and in Korean: any phrase of a figure, and config values in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gradlab.plots import phrases
from gradlab.plots.remarks import REMARKS
from gradlab.plots.sentences import SENTENCES

Language = Literal["en", "ko"]

PHRASES: Mapping[str, tuple[str, str]] = {**phrases.PHRASES, **SENTENCES, **REMARKS}

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
    ("model.scope", "global"): ("global attention", "전역 어텐션"),
    ("model.scope", "local_monotonic"): ("local attention (monotonic)", "지역 어텐션(단조)"),
    ("model.scope", "local_predictive"): ("local attention (predictive)", "지역 어텐션(예측)"),
    ("details.scope", "global"): ("global", "전역"),
    ("details.scope", "local_monotonic"): ("local monotonic", "지역 단조"),
    ("details.scope", "local_predictive"): ("local predictive", "지역 예측"),
    ("model.layers", 1): ("1 layer", "1층"),
    ("model.bidirectional", True): ("two-way", "양방향"),
    ("model.bidirectional", False): ("one-way", "단방향"),
    ("model.init", "torch"): ("default init", "기본 초기화"),
    ("model.init", "orthogonal"): ("orthogonal", "직교 초기화"),
    ("model.init", "identity"): ("identity", "항등 초기화"),
    ("state.way", "forward"): ("read forwards", "순방향 읽기"),
    ("state.way", "backward"): ("read backwards", "역방향 읽기"),
    ("task.name", "copy"): ("copy", "복사"),
    ("task.name", "reverse"): ("reverse", "역순"),
    ("task.reverse_source", True): ("source reversed", "원본 뒤집음"),
    ("task.reverse_source", False): ("source in order", "원본 그대로"),
    ("record.loss", "mean"): ("mean over target tokens", "목표 토큰 평균"),
    ("record.loss", "sum"): ("sum over target tokens", "목표 토큰 합"),
    ("record.loss", "first"): ("first target token only", "첫 목표 토큰만"),
    ("record.loss", "last"): ("last target token only", "마지막 목표 토큰만"),
}

KEYS: Mapping[str, tuple[str, str]] = {
    "model.timing": ("{value} timing", "{value} 타이밍"),
    "model.hidden": ("hidden size {value}", "은닉 크기 {value}"),
    "model.embedding": ("embedding size {value}", "임베딩 크기 {value}"),
    "model.layers": ("{value} layers", "{value}층"),
    "model.window": ("D = {value}", "D = {value}"),
    "state.layer": ("layer {value}", "층 {value}"),
    "model.bridge": ("bridge: {value}", "브리지: {value}"),
    "task.symbols": ("V = {value} symbols", "기호 V = {value}개"),
    "task.delay": ("delay {value}", "지연 {value}"),
    "task.keep": ("first {value} symbols", "앞 기호 {value}개"),
    "task.length": ("trained at n = {value}", "학습 길이 n = {value}"),
    "training.lr": ("learning rate {value}", "학습률 {value}"),
    "training.steps": ("{value} steps", "{value} 스텝"),
}


DETAILS: Mapping[str, str] = {
    "model.scope": "details.scope",
    "model.window": "model.window",
    "model.timing": "model.timing",
}
"""What is said in brackets after an attention, and the key of its shorter words."""


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
    """Several config values as one title, "GRU × 2 · dot attention (luong timing) · copy".

    What only says more about another value joins it: layers, or how attention is confined.
    """
    told = {key: value for key, value in values.items() if value is not None}
    if told.get("model.kind") == "seq2seq" and {"model.cell", "model.attention"} & {*told}:
        del told["model.kind"]  # the usual kind needs no name where others have one
    parts: dict[str, str] = {}
    for key, value in told.items():
        if key == "model.cell" and "model.kind" in parts:
            parts["model.kind"] += " " + describe(lang, key, value)
        elif key == "model.layers" and "model.cell" in told:
            owner = "model.cell" if "model.cell" in parts else "model.kind"
            parts[owner] += f" × {value}"
        elif key == "model.gain" and "model.init" in parts:
            parts["model.init"] += ", " + describe(lang, key, value)
        else:
            parts[key] = describe(lang, key, value)
    confined = [key for key in DETAILS if key in parts and "model.attention" in parts]
    if confined:
        words = [describe(lang, DETAILS[key], told[key]) for key in confined]
        parts["model.attention"] += f" ({', '.join(words)})"
        parts = {key: part for key, part in parts.items() if key not in confined}
    return " · ".join(parts.values())
