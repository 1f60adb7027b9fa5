"""What stands under a figure: what its caption says about what is shown, (en, ko)."""

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
    "about_no_recurrence": (
        "A transformer has no recurrence: all leaves after 0 steps.",
        "트랜스포머에는 순환이 없어 모두 0 스텝 뒤에 나감.",
    ),
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
    "about_attention": (
        "Each row is one target step and its weights over the source, on a scale from 0 to 1,"
        " teacher-forced. Left: probe example {example}, seed {seed}, with its symbols. Right: the"
        " arithmetic mean over {examples} probe examples{seeds}.",
        "각 행은 목표 스텝 하나의 원본에 대한 가중치(0~1, 교사 강요). 왼쪽: 프로브 예제 {example},"
        " 시드 {seed}, 기호 표시. 오른쪽: 프로브 예제 {examples}개의 산술 평균{seeds}.",
    ),
    "few_examples": (
        "{examples} are all that are recorded without record.map = true.",
        "record.map = true가 아니면 {examples}개만 기록됨.",
    ),
    "and_seeds": (" of each of {seeds} seeds", "(시드 {seeds}개 각각)"),
    "and_one_seed": (" of 1 seed", "(시드 1개)"),
    "either_diagonal": (
        "the diagonal or the anti-diagonal, as the task asks",
        "과제에 따라 대각선 또는 반대 대각선",
    ),
    "letters": ("Letters: a is symbol 0.", "글자: a는 기호 0."),
    "thinned": (
        "One symbol in {every} is written.",
        "기호는 {every}개마다 하나씩만 표시.",
    ),
    "blanks": ("_: blank.", "_: 빈칸."),
    "about_ideal": ("Dashed: the ideal path, {paths}.", "파선: 이상적인 경로, {paths}."),
    "diagonal": ("the diagonal", "대각선"),
    "antidiagonal": ("the anti-diagonal", "반대 대각선"),
    "ideal_of": ("{path} for {task}", "{task}: {path}"),
    "less_than_one": (
        "Local attention fades with distance after its softmax: rows may sum to less than 1 (here"
        " down to {least}).",
        "지역 어텐션은 소프트맥스 뒤 거리에 따라 약해져 행의 합이 1보다 작을 수 있음(여기서 최소"
        " {least}).",
    ),
    "about_transformer": (
        "Transformer: last decoder layer, mean over heads.",
        "트랜스포머: 마지막 디코더 층, 헤드 평균.",
    ),
    "without_attention": (
        "Models without attention are not shown.",
        "어텐션이 없는 모델은 표시하지 않음.",
    ),
    "about_top_layer": (
        "Encoders of several layers: states of the top layer.",
        "여러 층의 인코더: 맨 위층의 상태.",
    ),
    "about_climb": ("Climbing one layer is an edge too.", "한 층을 오르는 것도 간선 하나."),
    "about_backward_reference": (
        "Dashed and dotted lines where an encoder reads backwards: i − 1 in place of n − i.",
        "역방향으로 읽는 인코더의 파선과 점선: n − i 대신 i − 1.",
    ),
    "about_layer_reference": (
        "Below the top layer they lie one edge higher a layer.",
        "맨 위층 아래에서는 층마다 간선 하나씩 더 김.",
    ),
    "about_half_life": (
        "Half-life log10(2)/|slope| of an exponential fitted to log10 of the norm against the"
        " distance from the last source timestep, one fit a length and seed.",
        "반감기 log10(2)/|기울기|: 마지막 원본 시점까지의 거리에 대한 log10 노름의 지수 적합,"
        " 길이와 시드마다 한 번.",
    ),
    "distance_backward": (
        "Read backwards: the distance from the first one.",
        "역방향 읽기: 첫 원본 시점까지의 거리.",
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
    "about_chance_sequence": (
        " per token and V⁻ᵏ per sequence of k",
        "(토큰), 목표 k개의 시퀀스 V⁻ᵏ",
    ),
    "about_positions": (
        "Solid: free-running (the model reads its own outputs); dashed: teacher-forced (it reads"
        " the true previous token). {examples} held-out examples per length, {steps}.",
        "실선: 자유 실행(자신의 출력을 입력), 파선: 교사 강요(정답 토큰을 입력)."
        " 길이마다 평가 예제 {examples}개, {steps}.",
    ),
    "about_synchronous": (
        "A synchronous model reads no output: both lines are the same.",
        "동기식 모델은 출력을 입력으로 쓰지 않음: 두 선이 같음.",
    ),
    "about_unread": (
        "Hatched: the target stands before the symbol that it asks for, xₙ₊₁₋ⱼ, is read.",
        "빗금: 목표가 묻는 기호 xₙ₊₁₋ⱼ를 읽기 전의 위치.",
    ),
    "about_training": (
        "Loss: teacher-forced, mean over target tokens; accuracies: free-running. {examples}"
        " held-out examples per length. Dotted: guessing (loss ln V, 1/V per token, V⁻ᵏ per"
        " sequence of k targets{symbols}).",
        "손실: 교사 강요, 목표 토큰 평균. 정확도: 자유 실행. 길이마다 평가 예제 {examples}개."
        " 점선: 무작위 추측(손실 ln V, 토큰 1/V, 목표 k개의 시퀀스 V⁻ᵏ{symbols}).",
    ),
    "symbols": (", V = {symbols}", ", V = {symbols}"),
    "last_step": ("after each run's last training step", "각 실행의 마지막 학습 스텝 후"),
    "steps": ("after {steps} training steps", "학습 {steps} 스텝 후"),
}
