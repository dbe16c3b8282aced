import numpy as np
import pytest

from dpcd.experiments.families import FAMILIES, family
from dpcd.losses import Huber, Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=["squared", "logistic"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_a_problem_with_a_known_share_of_signal(name, loss):
    n, p = 2000, 15
    sample = family(name, n, p, loss)
    assert sample.X.shape == (n, p)
    assert np.isfinite(sample.X).all()
    assert np.isfinite(sample.y).all()
    assert sample.X.flags.f_contiguous
    if isinstance(loss, Logistic):
        assert set(sample.y) == {-1.0, 1.0}
    again, other = family(name, n, p, loss), family(name, n, p, loss, seed=1)
    assert np.array_equal(again.X, sample.X)
    assert np.array_equal(again.y, sample.y)
    assert not np.array_equal(other.y, sample.y)
    weights, _ = optimum(sample.X, sample.y, loss, sample.penalty, tol=1e-4)
    left = objective(*sample[1:], weights) / objective(*sample[1:], np.zeros(p))
    assert left > 0.98 if name == "no-signal" else 0.05 < left < 0.9


def test_families_have_what_their_names_say():
    def moments(name, p=80):
        X = family(name, 20_000, p, Squared()).X
        return X, np.mean(X**2, axis=0)

    X, second = moments("scales", 9)
    assert second.max() / second.min() == pytest.approx(1e16, rel=0.1)
    X, _ = moments("strongly-correlated", 5)
    assert np.corrcoef(X.T)[0, 1] == pytest.approx(0.9, abs=0.01)
    X, second = moments("outliers", 8)
    assert np.max(np.max(X**2, axis=0) / second) > 1000
    X, second = moments("duplicates", 8)
    assert np.array_equal(X[:, 0], X[:, 4])
    assert second[6] == 0.0
    assert np.ptp(X[:, 7]) == 0.0
    X, second = moments("one-hot")
    assert np.sum(np.all((X == 0.0) | (X == 1.0), axis=0)) == 75
    assert np.sum(second < 0.005) >= 5
    X, second = moments("one-hot-standardized")
    np.testing.assert_allclose(second, 1.0)
    assert np.max(np.abs(X)) > 15.0
    assert np.mean(family("rare-class", 5000, 4, Logistic()).y > 0) < 0.1


def test_penalties_are_weak_beside_every_column():
    assert family("scales", 1000, 5, Squared()).penalty == pytest.approx(L2(1e-11), rel=0.2)
    assert isinstance(family("sparse", 1000, 50, Huber()).penalty, L1)


def test_wrong_requests_are_refused():
    with pytest.raises(ValueError, match="there is no family 'gaussian': choose one of correlated"):
        family("gaussian", 100, 5, Squared())
    with pytest.raises(ValueError, match="3 features"):
        family("correlated", 100, 2, Squared())
