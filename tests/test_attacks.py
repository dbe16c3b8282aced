"""Adversaries: attacks that work on textbook implementations, tried on this one."""

import gc
import math
import pickle

import numpy as np
import pytest

from dpcd import DPLogisticRegression, DPRidge, UselessModelWarning, audit
from dpcd.losses import Squared
from dpcd.penalties import Zero
from dpcd.privacy import Columns, Curator, PrivacyBudget, SecureNoise
from dpcd.privacy.columns import SecondMoments
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.solvers import DPCD


class TestFloatingPoint:
    """The low-order bits of a floating-point sum plus floating-point noise say what the sum was.

    Near 0 doubles are finer than near 1: noise added to a sum of 1 comes out on the grid of 2⁻⁵³, noise added to 0 does
    not. Whoever sees an output near 0 can tell the two sums apart, whatever the noise's scale.
    """

    runs = 1500

    @staticmethod
    def on_the_coarse_grid(output):
        """1 if the output is a multiple of 2⁻⁵³, −1 if it is not; 0, no evidence, if it is not small enough to tell."""
        if abs(output) >= 2.0**-5:
            return 0.0
        return 1.0 if math.fmod(output, 2.0**-53) == 0.0 else -1.0

    def test_succeeds_on_textbook_noise(self):
        rng = np.random.default_rng(0)
        # σ for a sum of sensitivity 1 at ε = 1, δ = 10⁻⁵, by the very accounting that is used here.
        sigma = 1.0 / PrivacyBudget(1.0, 1e-5).gaussian_room() ** 0.5

        def textbook(neighbour):
            return self.on_the_coarse_grid((1.0 if neighbour else 0.0) + sigma * rng.normal() * 0.2)

        # A fifth of the noise, so that enough outputs are near 0 in this many runs; the claim is scaled along.
        claim = audit.gaussian_epsilon(5.0 / sigma, 1e-5)
        result = audit.audit(textbook, claim, 1e-5, self.runs)
        naive = audit.audit(lambda n: (1.0 if n else 0.0) + 0.2 * sigma * rng.normal(), claim, 1e-5, self.runs)
        assert not naive.refuted, "the value itself tells no more than claimed"
        scores = result.neighbour_scores[result.neighbour_scores != 0.0]
        assert np.all(scores == 1.0), "every output near 0 gives a sum of 1 away"
        others = result.scores[result.scores != 0.0]
        assert np.mean(others == -1.0) > 0.95

    def test_fails_on_ours(self):
        """The released numbers lie on the same grid for both data sets, always."""
        pair = audit.worst_case_pair(4, 1, labels=False)
        grids = []
        for columns in pair:
            curator = Curator(columns, PrivacyBudget(1.0, 1e-5), SecureNoise())
            multiplier = math.sqrt(200 / curator.gaussian_room)
            ones = np.ones(1)
            mechanism = CoordinateUpdates(
                Squared(), Zero(), np.zeros(200, dtype=int), 1, ones, 0.0 * ones, 1.01 * multiplier * ones, 0.0 * ones
            )
            released, _ = curator.release(mechanism)
            assert released.dtype == np.int64
            # All residues modulo a power of two occur alike: nothing is left of the sum in the low-order bits.
            grids.append(np.bincount(released % 8, minlength=8))
        for counts in grids:
            assert counts.min() > 5

    def test_the_order_of_records_changes_no_sum(self, rng):
        """A floating-point sum depends on its order, so that moving one record can move it by more than the record."""
        values = np.concatenate([[2.0**53], np.ones(1000)])
        assert np.cumsum(values)[-1] != np.cumsum(values[::-1])[-1]
        X = np.concatenate([[1.0], np.full(1000, 1e-9)])[:, None]
        sums = [
            SecondMoments(np.array([0]), np.ones(1), None, 0.0).run(Columns.copy_of(order, X[:, 0]), audit.NoNoise())
            for order in (X, X[::-1], rng.permutation(X))
        ]
        assert sums[0] == sums[1] == sums[2]


class TestRows:
    """Rows that break floating-point code."""

    @pytest.mark.parametrize("row", [1e308, -1e308, 5e-324, 0.0, -0.0, 1.7976931348623157e308])
    def test_extreme_rows_fit(self, row, rng):
        X = rng.normal(size=(200, 3))
        X[0] = row
        y = np.sign(X[:, 1])
        for model in (DPLogisticRegression(random_state=0), DPRidge(random_state=0, feature_bounds=(-1, 1))):
            assert np.all(np.isfinite(model.fit(X, y).coef_))

    @pytest.mark.parametrize("row", [np.nan, np.inf, -np.inf])
    def test_rows_that_are_no_numbers_are_refused(self, row, rng):
        X = rng.normal(size=(200, 3))
        X[0, 2] = row
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            DPRidge(random_state=0).fit(X, X[:, 0])

    @pytest.mark.parametrize("value", [{"a": 1}, [1, 2], object(), "seven", 10**400, 1 + 2j])
    def test_objects_are_refused_without_being_quoted(self, value, rng):
        X = rng.normal(size=(50, 2)).astype(object)
        X[7, 1] = value
        with pytest.raises((TypeError, ValueError)) as error:
            DPRidge(random_state=0).fit(X, np.arange(50.0))
        assert "seven" not in str(error.value)
        assert "1000000" not in str(error.value)

    def test_two_records(self):
        with pytest.warns(UselessModelWarning):
            model = DPRidge(random_state=0).fit([[1.0], [2.0]], [1.0, 2.0])
        assert model.coef_.shape == (1,)
        with pytest.raises(ValueError, match="at least 2 samples"):
            DPRidge(random_state=0).fit([[1.0]], [1.0])


class TestNothingIsKept:
    def test_a_failing_fit_keeps_no_data_in_its_message(self):
        secret = 123456.789
        X = np.full((50, 2), secret)

        with pytest.raises(ValueError, match="infinite clip") as error:
            DPRidge(solver=DPCD(clip=math.inf)).fit(X, X[:, 0])
        assert "123456" not in str(error.value)

    def test_no_curator_and_no_data_outlive_a_fit(self, rng):
        X = rng.normal(size=(300, 3))
        model = DPRidge(random_state=0).fit(X, X[:, 0])
        gc.collect()
        assert not [thing for thing in gc.get_objects() if type(thing) in (Curator, Columns)]
        stored = pickle.dumps(model)
        assert all(row.tobytes() not in stored for row in X)
        assert all(np.float64(value).tobytes() not in stored for value in X[:50].ravel())
