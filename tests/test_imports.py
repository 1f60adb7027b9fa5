"""Imports point one way: the map of the house in `gradlab/__init__.py`, enforced."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gradlab"

# What each module or folder of gradlab may import of it, besides itself.
SCENARIO = {"errors", "limits", "schema", "mistakes", "combinations", "grid", "draft", "scenario"}
INNER = SCENARIO | {"seeding", "tasks", "models", "gradients"}
STORED = {"lab.tables", "lab.store", "lab.results"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "limits": set(),
    "seeding": {"errors"},
    "schema": {"errors"},
    "mistakes": {"errors", "schema"},
    "combinations": {"errors", "schema", "mistakes", "limits"},
    "grid": {"errors", "schema", "mistakes", "combinations"},
    "draft": {"errors", "schema", "mistakes", "limits", "grid"},
    "scenario": {"errors", "schema", "mistakes", "grid", "draft"},
    "tasks": {"errors", "seeding", "schema"},
    "models": {"errors", "seeding", "schema", "tasks"},
    "gradients": {"errors", "limits", "seeding", "schema", "tasks", "models"},
    "gradients.decay": set(),
    "gradients.bottleneck": {"gradients.decay"},
    "lab.tables": {"errors"},
    "lab.store": SCENARIO | {"lab.tables"},
    "lab.results": SCENARIO | {"lab.tables", "lab.store", "gradients.decay"},
    "lab": INNER,
    "plots": SCENARIO | STORED | {"seeding"},
    "lecture": SCENARIO | STORED | {"seeding", "plots"},
    "progress": INNER | {"lab", "plots", "lecture"},
    "running": INNER | {"lab", "progress"},
    "drawing": INNER | {"lab", "plots", "lecture", "progress"},
    "cli": INNER | {"lab", "plots", "lecture", "progress", "drawing"},
}
WITHOUT_TORCH = SCENARIO | STORED | {"seeding", "plots", "lecture", "gradients.decay"}
LAZY = "gradlab"  # `gradlab/__init__.py` names everything and loads it on first use


def modules(package: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, inside functions too, but not for types alone."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for statement in node.orelse:
                yield from visit(statement)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            for child in ast.iter_child_nodes(node):
                yield from visit(child)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")))


def place(name: str) -> str | None:
    """Return the narrowest key of ALLOWED that a dotted name belongs to; None outside gradlab."""
    parts = name.split(".")[1:]
    if name.split(".")[0] != "gradlab" or not parts or parts[0] == "__version__":
        return None
    narrow = ".".join(parts[:2])
    return narrow if narrow in ALLOWED else parts[0]


def may_import(here: str, there: str) -> bool:
    reachable = ALLOWED[here] | {here}
    return there in reachable or ("." in there and there.split(".")[0] in reachable)


def violations(package: Path) -> list[str]:
    found = []
    for module, path in modules(package):
        here = place(module)
        if module == LAZY or here is None:
            continue
        if here not in ALLOWED:
            found.append(f"{module}: has no place in the map")
            continue
        for name in imported(path):
            there = place(name)
            heavy = name.split(".")[0] == "torch" and here in WITHOUT_TORCH
            if heavy or (there is not None and not may_import(here, there)):
                found.append(f"{module}: imports {name}")
    return found


def test_imports_point_one_way() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("errors", "from gradlab.schema import Task"),
        ("schema", "import gradlab.grid"),
        ("grid", "from gradlab.scenario import load_scenario"),
        ("scenario", "from gradlab import tasks"),
        ("tasks", "from gradlab.models.cells import CELLS"),
        ("models/cells", "def f():\n    from gradlab.gradients import probe"),
        ("models/cells", "from gradlab.lab.training import train"),
        ("models/cells", "import gradlab.plots"),
        ("gradients/probe", "from gradlab.lab import run"),
        ("plots/lines", "import torch"),
        ("plots/lines", "from torch import Tensor"),
        ("plots/lines", "if True:\n    from gradlab.models.cells import CELLS"),
        ("plots/lines", "from gradlab.gradients.probe import EXIT_EDGES"),
        ("plots/lines", "from gradlab.lab.run import run_point"),
        ("plots/lines", "from gradlab.lab import sweep"),
        ("lab/store", "import torch.nn"),
        ("lab/store", "from gradlab.lab.run import Run"),
        ("lab/run", "from gradlab.plots import gradient_decay"),
        ("lab/run", "from gradlab.cli import main"),
        ("lab/run", "if TYPE_CHECKING:\n    pass\nelse:\n    import gradlab.cli"),
        ("drawer", "x = 1"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, module: str, line: str) -> None:
    path = tmp_path / "gradlab" / f"{module}.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"import numpy\n{line}\n", encoding="utf-8")
    assert len(violations(tmp_path / "gradlab")) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("models/cells", "import torch\nfrom gradlab.models.layers import linear"),
        ("lab/run", "import gradlab\nfrom gradlab.lab.store import write_run"),
        ("lab/store", "if TYPE_CHECKING:\n    from gradlab.lab.run import Run"),
        ("plots/lines", "from gradlab.lab.store import Results\nfrom gradlab.plots import style"),
        ("cli", "from gradlab.lab.sweep import run\nfrom gradlab import plots, __version__"),
        ("cli", "from gradlab.lab.store import open_results\nimport torch"),
        ("__init__", "import gradlab.cli"),
    ],
)
def test_what_the_map_allows_is_not_a_violation(tmp_path: Path, module: str, line: str) -> None:
    path = tmp_path / "gradlab" / f"{module}.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"{line}\n", encoding="utf-8")
    assert violations(tmp_path / "gradlab") == []


def loaded_with(module: str) -> set[str]:
    """Return the modules that another process holds after importing `module`."""
    code = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-W", "ignore", "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(printed.split())


@pytest.mark.parametrize(
    "module", ["gradlab", "gradlab.plots", "gradlab.lab.results", "gradlab.cli"]
)
def test_torch_is_not_loaded_before_it_is_needed(module: str) -> None:
    assert importlib.util.find_spec(module) is not None
    loaded = loaded_with(module)
    assert module in loaded
    assert "torch" not in loaded
    assert not [name for name in loaded if name.startswith(("gradlab.models", "gradlab.gradients"))]
