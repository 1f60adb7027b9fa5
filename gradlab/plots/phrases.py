"""What stands above, beside and inside panels: titles, axes, legends and notes, (en, ko)."""

from __future__ import annotations

from collections.abc import Mapping

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
    "path_length": (
        "How many edges does the gradient cross on its way?",
        "기울기는 몇 개의 간선을 지나오는가?",
    ),
    "hops": (
        "How many recurrent steps before it leaves the encoder?",
        "인코더를 나가기까지 몇 번의 순환 스텝을 거치는가?",
    ),
    "gradient_map": (
        "Which target step sends gradient to which source step?",
        "어느 목표 스텝이 어느 원본 시점에 기울기를 보내는가?",
    ),
    "attention_weights": (
        "Where does each target step look?",
        "각 목표 스텝은 어디를 보는가?",
    ),
    "half_life": (
        "Over how many timesteps does the gradient halve?",
        "몇 시점마다 기울기가 절반이 되는가?",
    ),
    "lyapunov": (
        "Does the encoder itself shrink the gradient?",
        "인코더 자체가 기울기를 줄이는가?",
    ),
    # axes and legends
    "one_layer": ("only layer", "유일한 층"),
    "one_way": ("one-way", "단방향"),
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
    "output": ("output: state to its own step's target", "출력: 상태에서 그 시점의 목표로"),
    "edge_layer": ("{edge}: layer {layer}", "{edge}: 층 {layer}"),
    "query": ("of which through a query", "그중 쿼리를 거친 몫"),
    "edges": ("effective path length (edges)", "유효 경로 길이 (간선 수)"),
    "first_state": ("at h₁", "h₁에서"),
    "reference_last": (
        "last target token without attention: n{d} − i steps, 1 exit, k decoder steps,"
        "\n(n{d} − i) + 1 + k, at h₁ n{d} + k{delay}",
        "어텐션 없이 마지막 목표 토큰에서: 스텝 n{d} − i번, 출구 1번, 디코더 스텝 k번,"
        "\n(n{d} − i) + 1 + k, h₁에서 n{d} + k{delay}",
    ),
    "reference_shortest": (
        "shortest path without attention: n{d} − i steps, 1 exit, 1 decoder step,"
        "\n(n{d} − i) + 1 + 1, at h₁ n{d} + 1{delay}",
        "어텐션 없는 최단 경로: 스텝 n{d} − i번, 출구 1번, 디코더 스텝 1번,"
        "\n(n{d} − i) + 1 + 1, h₁에서 n{d} + 1{delay}",
    ),
    "delay_of": (" (d = {delay})", " (d = {delay})"),
    "delay_several": (" (d: delay)", " (d: 지연)"),
    "parts_oppose": ("parts oppose each other", "부분들이 서로 상쇄"),
    "hop_count": (
        "recurrent steps before leaving the encoder",
        "인코더를 나가기 전 순환 스텝 수",
    ),
    "hop_share": ("signed share of the gradient at that state", "그 상태 기울기의 부호 있는 비중"),
    "hops_first": ("first state h₁", "첫 상태 h₁"),
    "hops_far": (
        "first state h₁; read backwards: hₙ",
        "첫 상태 h₁, 역방향 읽기: hₙ",
    ),
    "hops_middle": ("state in the middle", "가운데 상태"),
    "target_step": ("target position j", "목표 위치 j"),
    "map_gradient": ("gradient", "기울기"),
    "map_weight": ("attention weight", "어텐션 가중치"),
    "one_example": ("one example", "예제 하나"),
    "mean_examples": ("mean of {examples} examples", "예제 {examples}개의 평균"),
    "source_symbol": ("source symbol", "원본 기호"),
    "target_weights": (
        "target step (downwards; left: its symbol)",
        "목표 스텝 (아래로, 왼쪽: 기호)",
    ),
    "ideal_path": ("ideal path", "이상적인 경로"),
    "no_weights": ("no attention", "어텐션 없음"),
    "map_norm": ("gradient norm ‖dlⱼ/dhᵢ‖ (nats)", "기울기 노름 ‖dlⱼ/dhᵢ‖ (nats)"),
    "half_life_axis": ("half-life (timesteps, log scale)", "반감기 (시점 수, 로그 눈금)"),
    "grows": ("grows", "커짐"),
    "level": ("level", "평탄"),
    "unclear": ("no clear trend", "뚜렷한 추세 없음"),
    "no_law": ("not exponential", "지수형 아님"),
    "no_fit": ("no fit", "적합 불가"),
    # the same rows, explained in the caption
    "why_grows": ("{count} grow towards the start", "시작 쪽으로 커짐 {count}"),
    "why_level": (
        "{count} level: changes by less than a factor of two from one end to the other",
        "평탄: 한쪽 끝에서 다른 쪽 끝까지 변화가 2배 미만 {count}",
    ),
    "why_unclear": (
        "{count} with no clear trend: some seeds fall and others grow, or no fitted curve explains"
        " half of the variance, or the interval over 5 or more seeds holds zero",
        "뚜렷한 추세 없음(시드마다 방향이 다름, 분산의 절반을 설명하는 적합이 없음, 또는 시드 5개"
        " 이상의 구간이 0을 포함) {count}",
    ),
    "why_no_law": (
        "{count} fall, but no better as an exponential than as a power law",
        "줄지만 지수 적합이 거듭제곱 적합보다 낫지 않음 {count}",
    ),
    "why_no_fit": ("{count} with fewer than 3 usable norms", "쓸 수 있는 노름 3개 미만 {count}"),
    # exponents
    "exponents": ("all exponents", "모든 지수"),
    "measured": ("measured decay", "측정한 감쇠"),
    "index": ("index, largest first", "순번 (큰 것부터)"),
    "rate": ("rate (nats per timestep)", "변화율 (시점당 nats)"),
    "largest_exponent": ("largest exponent", "가장 큰 지수"),
    "neither": ("0: neither shrinks nor grows", "0: 줄지도 커지지도 않음"),
    "as_encoder": ("measured = largest exponent", "측정값 = 가장 큰 지수"),
    "free": ("free-running", "자유 실행"),
    "forced": ("teacher-forced", "교사 강요"),
    "chance": ("guessing", "무작위 추측"),
    "chance_of": ("guessing, 1/V = {chance}", "무작위 추측, 1/V = {chance}"),
    "unread": ("symbol not read yet", "아직 읽지 않은 기호"),
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
}
