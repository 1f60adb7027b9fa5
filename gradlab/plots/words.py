"""Words in English and in Korean: any phrase of a figure, and config values in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gradlab.plots import phrases
from gradlab.plots.sentences import SENTENCES

Language = Literal["en", "ko"]

PHRASES: Mapping[str, tuple[str, str]] = {**phrases.PHRASES, **SENTENCES}

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
