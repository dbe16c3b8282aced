"""Every fault in `mutations.py` is caught by the tests named with it, and only by the fault being there."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dpcd
from mutations import MUTATIONS

TESTS = Path(__file__).parent


def run_tests(package, tests):
    """Exit status of the named tests against a copy of the package."""
    name, *options = shlex.split(tests)
    quick = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *quick, str(TESTS / name), *options]
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent)
    return result.returncode, result.stdout


def copied(folder):
    package = folder / "dpcd"
    shutil.copytree(Path(dpcd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def test_every_fault_can_be_made():
    assert len(MUTATIONS) >= 20
    for mutation in MUTATIONS:
        source = (Path(dpcd.__file__).parent / "privacy" / mutation.file).read_text()
        assert source.count(mutation.old) == 1, f"{mutation.fault}: {mutation.old!r} is not there once"


@pytest.mark.slow
@pytest.mark.parametrize("tests", sorted({mutation.tests for mutation in MUTATIONS}))
def test_without_a_fault_the_tests_pass(tests, tmp_path):
    status, output = run_tests(copied(tmp_path), tests)
    assert status == 0, output


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.fault)
def test_every_fault_is_caught(mutation, tmp_path):
    package = copied(tmp_path)
    file = package / "privacy" / mutation.file
    file.write_text(file.read_text().replace(mutation.old, mutation.new))
    status, output = run_tests(package, mutation.tests)
    assert status == 1, output
