import numpy as np
import pytest

from dpcd.privacy import BudgetExceeded, Columns, Curator, PrivacyBudget, PrivacyCost, SeededNoise
from dpcd.privacy.mechanism import Mechanism


class Probe(Mechanism):
    """A mechanism that remembers whether it saw the data, and may fail."""

    description = "probe"
    count = 1
    cost = None
    noise_multipliers = (1.0, 1.0)
    relation = "replace one record"

    def __init__(self, cost, fails=False):
        self.cost = cost
        self.fails = fails
        self.saw_data = False

    def run(self, data, noise):
        self.saw_data = True
        if self.fails:
            raise ArithmeticError("half way")
        return "released"


@pytest.fixture
def curator(rng):
    columns = Columns.copy_of(rng.normal(size=(10, 2)), rng.normal(size=10))
    return Curator(columns, PrivacyBudget(1.0, 1e-5), SeededNoise(rng))


def test_release_charges_and_records(curator):
    cost = PrivacyCost(curator.gaussian_room / 2)
    assert curator.release(Probe(cost)) == "released"
    assert curator.spent == cost
    assert [release.cost for release in curator.releases] == [cost]
    curator.release(Probe(PrivacyCost(curator.gaussian_room)))
    assert 0.999 < curator.spent.epsilon(1e-5) <= 1.0


def test_what_the_budget_cannot_cover_is_neither_read_nor_charged(curator):
    probe = Probe(PrivacyCost(curator.gaussian_room * 1.01))
    with pytest.raises(BudgetExceeded, match=r"probe would bring the total to epsilon = 1\.0.*budget is epsilon = 1"):
        curator.release(probe)
    assert not probe.saw_data
    assert curator.spent == PrivacyCost()
    assert curator.releases == ()


def test_a_failure_is_charged_all_the_same(curator):
    cost = PrivacyCost(curator.gaussian_room / 2)
    with pytest.raises(ArithmeticError):
        curator.release(Probe(cost, fails=True))
    assert curator.spent == cost
    with pytest.raises(BudgetExceeded):
        curator.release(Probe(PrivacyCost(0.6 / 0.5 * cost.mu_squared)))


def test_infinite_cost_needs_an_infinite_budget(curator, rng):
    with pytest.raises(BudgetExceeded):
        curator.release(Probe(PrivacyCost.gaussian(0.0)))
    free = Curator(Columns.copy_of(np.zeros((2, 1)), np.zeros(2)), PrivacyBudget(np.inf, 1e-5), SeededNoise(rng))
    assert free.release(Probe(PrivacyCost.gaussian(0.0))) == "released"


def test_columns_are_one_fortran_ordered_copy(rng):
    X, y = rng.normal(size=(6, 3)).astype(np.float32), np.arange(6)
    columns = Columns.copy_of(X, y, intercept=True)
    assert columns.features.flags.f_contiguous
    assert (columns.features.dtype, columns.target.dtype) == (X.dtype, np.float64)
    assert np.array_equal(columns.features[:, :3], X)
    assert np.array_equal(columns.features[:, 3], np.ones(6))
    columns.features[:] = 0.0
    columns.target[:] = 0.0
    assert X.any()
    assert y.any()


def test_clipping_changes_records_one_at_a_time(rng):
    X, y = 3 * rng.normal(size=(50, 2)), 3 * rng.normal(size=50)
    columns = Columns.copy_of(X, y, intercept=True)
    curator = Curator(columns, PrivacyBudget(1.0, 1e-5), SeededNoise(rng))
    curator.clip_features(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), np.array([0.0, 2.0]))
    curator.clip_target(-2.0, 1.0, -0.5)
    np.testing.assert_array_equal(columns.features[:, 0], np.clip(X[:, 0], -1, 1))
    np.testing.assert_array_equal(columns.features[:, 1], np.clip(X[:, 1], 0, 4) - 2.0)
    np.testing.assert_array_equal(columns.features[:, 2], np.ones(50))
    np.testing.assert_array_equal(columns.target, np.clip(y, -2, 1) + 0.5)
    assert curator.releases == ()


def test_threads_cannot_spend_the_same_budget_twice(curator):
    import sys
    from concurrent.futures import ThreadPoolExecutor

    cost = PrivacyCost(0.9 * curator.gaussian_room)

    def attempt(_):
        try:
            return curator.release(Probe(cost)) == "released"
        except BudgetExceeded:
            return False

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attempt, range(64))) == 1
    finally:
        sys.setswitchinterval(interval)
    assert len(curator.releases) == 1


def test_a_curator_cannot_be_copied(curator):
    import copy
    import pickle

    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither may be copied"):
            duplicate(curator)


def test_relations_do_not_mix(curator):
    curator.release(Probe(PrivacyCost.gaussian(50.0)))
    other = Probe(PrivacyCost.gaussian(50.0))
    other.relation = "add or remove one record"
    with pytest.raises(ValueError, match="do not add up"):
        curator.release(other)
    assert not other.saw_data


def test_only_mechanisms_of_the_package_see_data(curator):
    """A solver may be wrong, but it does not decide what a release costs."""

    class Free:
        description, count, noise_multipliers, relation = "free", 1, (1.0, 1.0), "replace one record"
        cost = PrivacyCost()

        def run(self, data, noise):
            return data.features[0, 0]

    for mechanism in (Free(), Free, None):
        with pytest.raises(TypeError, match=r"is no mechanism of dpcd\.privacy, where each argues what it costs"):
            curator.release(mechanism)
    assert curator.releases == ()


def test_a_budget_cannot_be_replaced(curator):
    budget = curator.budget
    with pytest.raises(AttributeError):
        curator.budget = PrivacyBudget(np.inf, 0.5)
    assert curator.budget is budget
