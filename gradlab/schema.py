"""What a scenario may say: its tables, and each key's type, range, default and meaning.

The models are frozen and strict: no unknown key, no string for a number, no NaN or infinity.
`Scenario.model_json_schema()` is the JSON schema of a scenario file, for editors.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

INTEGER_LIMIT: Final = 2**63  # integers are stored in 64 bits; only a slip reaches this

Count = Annotated[int, Field(ge=1, lt=INTEGER_LIMIT)]
CountOrZero = Annotated[int, Field(ge=0, lt=INTEGER_LIMIT)]
Positive = Annotated[float, Field(gt=0)]


def _all_different(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(values)) < len(values):
        raise ValueError("values repeat")
    return values


Lengths = Annotated[
    tuple[Count, ...],
    Field(strict=False, min_length=1, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_all_different),
]


class Frozen(BaseModel):
    """A table whose values never change and are exactly of the type written here."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Task(Frozen):
    """`[task]`: what the model is asked to learn."""

    name: Literal["copy", "reverse"] = Field(description="what to do with the symbols")
    length: Count = Field(20, description="source length n, in symbols")
    min_length: Count | None = Field(
        None, description="training lengths are uniform in [min_length, length]; default: length"
    )
    symbols: Annotated[int, Field(ge=2, lt=INTEGER_LIMIT)] = Field(
        10, description="number of data symbols V"
    )
    delay: CountOrZero = Field(0, description="blank steps between the last symbol and the answer")
    reverse_source: bool = Field(
        False,
        description="the symbols are read backwards, then the blanks; targets are unchanged, so "
        '"reverse" then asks for the symbols in the order in which they are read',
    )
    keep: Count | None = Field(
        None, description="copy only the first symbols, this many of them; default: all"
    )


class Model(Frozen):
    """`[model]`: the network, its paths and how it starts."""

    kind: Literal["seq2seq", "synchronous", "transformer"] = Field(
        "seq2seq", description="encoder-decoder, one output per input step, or attention only"
    )
    cell: Literal["gru", "rnn", "lstm"] = Field("gru", description="recurrent cell")
    hidden: Count = Field(64, description="hidden size of encoder, decoder and attention")
    embedding: Count = Field(32, description="embedding size")
    layers: Count = Field(1, description="recurrent layers, of the encoder and of the decoder")
    bidirectional: bool = Field(False, description="whether the encoder reads in both directions")
    attention: Literal[
        "additive", "none", "dot", "scaled_dot", "general", "concat", "cosine", "location"
    ] = Field("additive", description="how a query scores the encoder states")
    scope: Literal["global", "local_monotonic", "local_predictive"] = Field(
        "global", description="which encoder states a query may attend to"
    )
    window: Count = Field(2, description="half-width D of local attention, in timesteps")
    timing: Literal["bahdanau", "luong"] = Field(
        "bahdanau", description="the query is the previous decoder state, or the current one"
    )
    input_feeding: bool = Field(
        False, description="whether the attentional vector is read at the next step (luong timing)"
    )
    bridge: Literal["initial", "every_step", "mean", "none"] = Field(
        "initial", description="how the encoder's final state enters the decoder"
    )
    init: Literal["torch", "orthogonal", "identity"] = Field(
        "torch",
        description="how recurrent weights start: as in torch, or each gate's block a multiple of "
        "an orthogonal matrix or of the identity, recurrent biases zero",
    )
    gain: Positive = Field(1.0, description="factor on that orthogonal matrix or identity")
    heads: Count = Field(4, description="attention heads of a transformer; they divide hidden")
    feedforward: Count = Field(
        128, description="units of the feed-forward part of each transformer layer"
    )


class Training(Frozen):
    """`[training]`: how the weights are changed."""

    steps: CountOrZero = Field(600, description="training steps; 0 measures at initialisation")
    batch: Count = Field(64, description="examples in a training batch")
    optimizer: Literal["adam", "sgd", "rmsprop", "adamw"] = Field("adam", description="update rule")
    lr: Positive = Field(3e-3, description="learning rate")
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.0, description='decay of the weights: decoupled for "adamw", an L2 penalty for the others'
    )
    clip: Annotated[float, Field(ge=0)] = Field(
        1.0, description="largest gradient norm of an update; 0 switches clipping off"
    )
    teacher_forcing: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0,
        description="probability that a decoder input is the true previous symbol, not the model's",
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="precision of training")


class Record(Frozen):
    """`[record]`: what is measured, how often and on what."""

    every: Count = Field(100, description="training steps between measurements")
    lengths: Lengths | None = Field(
        None, description="source lengths measured; default: only the task's length"
    )
    examples: Count = Field(64, description="held-out examples per length")
    loss: Literal["mean", "sum", "first", "last"] = Field(
        "mean", description="reduction over target tokens of the loss that is differentiated"
    )
    paths: bool = Field(True, description="split the gradient by path")
    map: bool = Field(False, description="gradient of each target step at each encoder step")
    hops: bool = Field(False, description="split the gradient by recurrent hops")
    jacobians: bool = Field(False, description="singular values and Lyapunov exponents")


TABLES: Final[dict[str, type[Frozen]]] = {
    "task": Task,
    "model": Model,
    "training": Training,
    "record": Record,
}
KEYS: Final = tuple(f"{table}.{name}" for table in TABLES for name in TABLES[table].model_fields)
LIST_KEYS: Final = frozenset({"record.lengths"})  # keys whose own value is a list
TEXTS: Final = ("title", "notes")
BASE_KEYS: Final = (*TEXTS, *KEYS)  # outside [sweep]
SWEEP_KEYS: Final = ("seed", "cases", *KEYS)
OVERRIDE_KEYS: Final = (*TEXTS, "seed", *KEYS)


class Case(Frozen):
    """One choice on an axis: the keys it sets, and its label where it comes from `cases`."""

    label: str | None = None
    settings: tuple[tuple[str, Any], ...]


class Axis(Frozen):
    """One factor of the product; `key` is the dotted key, or "cases"."""

    key: str
    cases: tuple[Case, ...]

    @property
    def always_set(self) -> frozenset[str]:
        """The keys that every case sets."""
        return frozenset.intersection(*(frozenset(dict(case.settings)) for case in self.cases))


class Sweep(Frozen):
    """`[sweep]`: the axes in the order written, and the seeds, which vary fastest."""

    axes: tuple[Axis, ...] = ()
    seed: tuple[CountOrZero, ...] = (0,)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """The `[sweep]` table as written in a file: dotted or nested keys to lists."""
        tables = {table: model.model_json_schema() for table, model in TABLES.items()}
        dotted = {key: key_schema(key) for key in KEYS}
        seed = {"type": "integer", "minimum": 0, "exclusiveMaximum": INTEGER_LIMIT}
        nested = {
            table: _object(
                {name: _axis(dotted[f"{table}.{name}"]) for name in schema["properties"]}
            )
            for table, schema in tables.items()
        }
        label = {"type": "string", "minLength": 1, "description": "name of the case in pictures"}
        plain = {table: {**schema, "required": []} for table, schema in tables.items()}
        case = {**_object({"label": label, **dotted, **plain}), "required": ["label"]}
        axes = {key: _axis(schema) for key, schema in dotted.items()}
        return _object({"seed": _axis(seed), "cases": _axis(case), **axes, **nested})


class Scenario(Frozen):
    """One experiment: its base values and its sweep."""

    title: str = Field(description="what the scenario shows, in a line")
    notes: str = Field("", description="anything a reader should know")
    task: Task
    model: Model = Model()
    training: Training = Training()
    record: Record = Record()
    sweep: Sweep = Field(Sweep(), json_schema_extra={"default": {}})


class _OneSeed(Frozen):
    seed: CountOrZero


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _axis(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "uniqueItems": True, "items": items}


def model_and_field(key: str) -> tuple[type[Frozen], str]:
    """The table that holds `key` ("seed", "title" or a dotted key), and the key's name in it."""
    table, _, name = key.rpartition(".")
    if table:
        return TABLES[table], name
    return (_OneSeed, name) if name == "seed" else (Scenario, name)


@cache
def key_schema(key: str) -> dict[str, Any]:
    """JSON schema of one value of `key` ("seed", "title" or a dotted key), default left out."""
    model, name = model_and_field(key)
    schema: dict[str, Any] = model.model_json_schema()["properties"][name]
    return {word: part for word, part in schema.items() if word != "default"}
