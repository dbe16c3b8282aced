import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcd import datasets
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2


def test_offline_files_are_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("DPCD_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"has no california\.csv\.gz: put it there, or unset DPCD_DATA"):
        datasets.california()
    (tmp_path / "electricity.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(ValueError, match="checksum"):
        datasets.electricity()


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_other_file_is_refused_in_words(content, compress):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        (Path(folder) / "california.csv.gz").write_bytes(gzip.compress(content) if compress else content)
        patch.setenv("DPCD_DATA", folder)
        with pytest.raises(ValueError, match="its checksum differs"):
            datasets.california()


def test_a_failed_download_says_what_to_do(monkeypatch):
    monkeypatch.delenv("DPCD_DATA", raising=False)

    def unreachable(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_california_housing", unreachable)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", unreachable)
    for load in (datasets.california, datasets.electricity):
        with pytest.raises(OSError, match="set DPCD_DATA"):
            load()


def test_downloads_have_the_documented_form(monkeypatch):
    import pandas as pd
    from sklearn.utils import Bunch

    monkeypatch.delenv("DPCD_DATA", raising=False)
    frame = pd.DataFrame({"day": ["1", "2"], "price": [0.5, 0.25]})
    bunch = Bunch(data=frame, target=pd.Series(["UP", "DOWN"], dtype="category"))
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: bunch)
    X, y, names = datasets.electricity()
    assert X.tolist() == [[1.0, 0.5], [2.0, 0.25]]
    assert y.tolist() == [1.0, -1.0]
    assert names == ("day", "price")
    house = Bunch(data=np.ones((2, 1)), target=np.array([1.0, 2.0]), feature_names=["MedInc"])
    monkeypatch.setattr("sklearn.datasets.fetch_california_housing", lambda: house)
    assert datasets.california().names == ("MedInc",)


@pytest.mark.parametrize(
    ("load", "loss", "penalty", "standardize", "best", "error_at_zero"),
    [
        ("california", Squared(), L1(1.0), False, 0.63729099, 3.40182213),
        ("california", Squared(), L1(0.1), True, 2.55883094, 0.09629814),
        ("electricity", Logistic(), L2(1 / 45312), False, 0.55685694, 0.24474910),
        ("electricity", Logistic(), L2(1 / 45312), True, 0.51018166, 0.35862817),
    ],
)
@pytest.mark.usefixtures("real_data")
def test_optima_are_those_of_the_papers_figures(load, loss, penalty, standardize, best, error_at_zero):
    X, y, names = getattr(datasets, load)()
    assert X.shape == ((20640, 8) if load == "california" else (45312, 8))
    assert len(names) == 8
    if standardize:
        X = datasets.standardized(X)
    coef, _ = optimum(X, y, loss, penalty)
    value = objective(X, y, loss, penalty, coef)
    zero = objective(X, y, loss, penalty, np.zeros(8))
    assert value == pytest.approx(best, abs=1e-8)
    assert (zero - value) / value == pytest.approx(error_at_zero, rel=1e-7)
