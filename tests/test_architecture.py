"""The shape of the code: who may import whom, and who may touch raw data or draw noise."""

import ast
from pathlib import Path

import dpcd
from dpcd.tables import Columns, Part

PACKAGE = Path(dpcd.__file__).parent
# Each layer may import from those before it.
LAYERS = [
    "compilation",
    "plugins",
    "losses",
    "penalties",
    "tables",
    "policy",
    "privacy",
    "ranges",
    "quadratic",
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


def test_only_comparisons_need_the_rivals():
    for name, tree in modules():
        if name.startswith("privacy/") and not name.startswith("privacy/rivals/"):
            assert not [module for module in imports(tree) if module.startswith("dpcd.privacy.rivals")], name


def test_only_the_core_reads_records_and_only_the_curator_runs_mechanisms():
    """Others fill a table and hand it to a curator; what a table shows of its records is for the core."""
    readers = {member for kind in (Columns, Part) for member in vars(kind) if not member.startswith("_")}
    readers -= {"copy", "copy_of", "clip_features", "clip_target", "n_records", "n_columns", "features", "target"}
    assert readers >= {"column", "doubles", "part", "signed_target", "sums", "tiles"}
    for name, tree in modules():
        layer = name.split("/")[0]
        if layer not in {"tables", "privacy", *OUTSIDE}:
            assert not [module for module in imports(tree) if module.startswith("dpcd.tables")], name
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("_columns", "_noise"):
                assert name == "privacy/curator", f"{name}:{node.lineno} reaches for the curator's {node.attr}"
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in readers and layer not in OUTSIDE:
                assert layer in {"tables", "privacy"}, f"{name}:{node.lineno} reads records: {called.attr}"
            if isinstance(called, ast.Attribute) and called.attr == "run" and layer not in OUTSIDE:
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
