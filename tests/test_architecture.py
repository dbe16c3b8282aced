"""The shape of the code: who may import whom, and who may touch raw data or draw noise."""

import ast
from pathlib import Path

import dpcd

PACKAGE = Path(dpcd.__file__).parent
# Each layer may import from those before it.
LAYERS = [
    "compilation",
    "plugins",
    "losses",
    "penalties",
    "privacy",
    "solvers",
    "intervals",
    "usefulness",
    "validation",
    "planning",
    "estimators",
    "preprocessing",
    "tuning",
]
# Not private: may import all of the above, and nothing above may import them.
OUTSIDE = {"nonprivate", "datasets", "theory", "experiments", "audit", "verify", "cli"}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).with_suffix("").as_posix(), ast.parse(path.read_text())


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "dpcd":
                yield from (f"dpcd.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_dependencies_point_one_way():
    for name, tree in modules():
        layer = name.split("/")[0]
        if layer == "__init__" or layer in OUTSIDE:
            continue
        for module in imports(tree):
            if module.startswith("dpcd."):
                imported = module.split(".")[1]
                assert imported in LAYERS, f"{name} imports {module}, which is not private"
                assert LAYERS.index(imported) <= LAYERS.index(layer), f"{name} imports {module}"


def test_a_second_opinion_shares_no_arithmetic_with_the_first():
    tree = dict(modules())["verify"]
    ours = {module for module in imports(tree) if module.startswith("dpcd")}
    assert ours == {"dpcd.privacy.noise", "dpcd.privacy.statement"}


def test_only_the_curator_holds_raw_data_and_only_it_runs_mechanisms():
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("_columns", "_noise"):
                assert name == "privacy/curator", f"{name}:{node.lineno} reaches for the curator's {node.attr}"
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr == "run" and name.split("/")[0] not in OUTSIDE:
                assert name == "privacy/curator", f"{name}:{node.lineno} runs something besides the curator"


def test_noise_is_drawn_in_one_place():
    for name, tree in modules():
        if name != "privacy/noise":
            assert "opendp" not in " ".join(imports(tree)), f"{name} draws noise of its own"


def test_core_imports_are_light():
    """Heavy libraries load when somebody needs them."""
    import subprocess
    import sys

    code = (
        "import sys, dpcd; print([m for m in ('opendp', 'matplotlib', 'pandas', 'dp_accounting') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "opendp" not in out
    assert "matplotlib" not in out
    assert "dp_accounting" not in out


def test_every_mechanism_argues_its_sensitivity():
    tree = dict(modules())["privacy/mechanisms"]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    mechanisms = [node for node in classes if any(getattr(item, "name", "") == "run" for item in node.body)]
    assert len(mechanisms) >= 5
    for node in mechanisms:
        if node.name != "Mechanism":
            assert "\n    Privacy. " in ast.get_docstring(node, clean=False), f"{node.name} does not argue its privacy"
