"""The private scaler: what it learns, what it spends, and how it behaves in pipelines."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpcd import BudgetExceeded, DPLasso, DPStandardScaler, Ledger
from dpcd.preprocessing import _learn_moments, _learnt_range
from dpcd.privacy import Columns, Curator, PrivacyBudget, PrivacyCost, SeededNoise
from replay import KeepingNoise, RecordingCurator, ReplayingCurator, check_books, check_sensitivity

SCALES = np.geomspace(1e-9, 1e9, 8)
OFFSETS = SCALES * [0.0, 3.0, -300.0, 0.0, 300.0, 3.0, -3.0, 300.0]


@pytest.fixture
def table(rng):
    """Normal columns at 18 orders of magnitude, up to 300 standard deviations from zero."""
    return OFFSETS + SCALES * rng.normal(size=(20_000, 8))


class TestWithoutPrivacy:
    @pytest.mark.parametrize("bounds", [None, (-50.0, 400.0)])
    @pytest.mark.parametrize(("with_mean", "with_std"), [(True, True), (True, False), (False, True)])
    def test_it_is_scikit_learns_scaler(self, rng, bounds, with_mean, with_std):
        X = np.column_stack([rng.random(500), 300 + rng.normal(size=500), rng.random(500) < 0.01, np.full(500, 3.3)])
        ours = DPStandardScaler(epsilon=math.inf, feature_bounds=bounds, with_mean=with_mean, with_std=with_std).fit(X)
        theirs = StandardScaler(with_mean=with_mean, with_std=with_std).fit(X)
        np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-7, atol=1e-9)
        if with_std:
            np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=1e-5)
            np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-5, atol=1e-12)
        else:
            assert ours.scale_ is ours.var_ is None
        np.testing.assert_allclose(ours.transform(X), theirs.transform(X), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), X, rtol=1e-9, atol=1e-12)

    def test_constant_columns_are_centered_and_not_scaled(self):
        X = np.column_stack([np.full(100, value) for value in (3.0, 3.3, 0.0, -1e9, 0.1 + 0.2)])
        scaler = DPStandardScaler(epsilon=math.inf).fit(X)
        assert scaler.scale_.tolist() == [1.0] * 5
        np.testing.assert_allclose(scaler.mean_, X[0], rtol=1e-12)
        np.testing.assert_allclose(scaler.transform(X), 0.0, atol=1e-6)


class TestAccuracy:
    def test_normal_columns_of_all_scales_and_offsets(self):
        for seed in range(100, 110):
            X = OFFSETS + SCALES * np.random.default_rng(seed).normal(size=(20_000, 8))
            scaler = DPStandardScaler(epsilon=0.5, random_state=seed).fit(X)
            assert np.all(np.abs(scaler.scale_ / SCALES - 1.0) < 0.25), scaler.scale_ / SCALES
            assert np.all(np.abs(scaler.mean_ - OFFSETS) < 0.25 * SCALES), (scaler.mean_ - OFFSETS) / SCALES
            np.testing.assert_allclose(scaler.scale_**2, scaler.var_)

    def test_transformed_columns_of_other_shapes(self, rng):
        """Within the ranges, where the scaler looks, columns come out at mean 0 and deviation 1, or not far from it."""
        n = 20_000
        shapes = {
            "uniform years": rng.integers(1900, 2020, n),
            "skewed": rng.lognormal(size=n),
            "three degrees of freedom": 100.0 * rng.standard_t(3, n),
            "no variance at all": rng.standard_cauchy(n),
            "flag": rng.random(n) < 0.5,
            "rare flag": rng.random(n) < 0.02,
        }
        X = np.column_stack(list(shapes.values())).astype(float)
        for seed in range(3):
            scaled = DPStandardScaler(epsilon=2.0, random_state=seed).fit_transform(X)
            assert np.all(np.abs(scaled.mean(axis=0)) < 0.15), scaled.mean(axis=0)
            deviations = scaled.std(axis=0)
            assert np.all((deviations > 0.75) & (deviations < 2.0)), deviations
            assert np.abs(scaled).max() < 40.0

    def test_declared_bounds_are_outer_limits(self, rng):
        X = rng.normal(50.0, 10.0, size=(5000, 2))
        X[0] = 1e300
        scaler = DPStandardScaler(epsilon=0.5, feature_bounds=(0.0, 120.0), random_state=0).fit(X)
        assert [release.description for release in scaler.privacy_.releases][-2:] == ["means", "second moments"]
        assert "bounds of the features, declared" in scaler.privacy_.assumptions
        assert np.all((scaler.feature_ranges_ >= 0.0) & (scaler.feature_ranges_ <= 120.0))
        assert np.all(np.abs(scaler.mean_ - 50.0) < 5.0)
        assert np.all(np.abs(scaler.scale_ - 10.0) < 4.0)

    def test_bounds_far_too_wide_do_not_matter(self, rng):
        X = 1e-6 * rng.normal(size=(2000, 3))
        for seed in range(10):
            scaler = DPStandardScaler(feature_bounds=(-1.0, 1.0), random_state=seed).fit(X)
            assert np.all((scaler.scale_ > 0.5e-6) & (scaler.scale_ < 2e-6))

    @pytest.mark.parametrize("epsilon", [0.1, 50.0])
    def test_bounds_that_no_value_lies_in_make_a_column_constant(self, epsilon, rng):
        X = rng.normal(50.0, 1.0, (2000, 2))
        scaler = DPStandardScaler(epsilon=epsilon, feature_bounds=(0.0, 1.0), random_state=0).fit(X)
        assert np.all((scaler.mean_ >= 0.0) & (scaler.mean_ <= 1.0))
        assert np.ptp(scaler.transform(X)) < 5.0

    def test_a_scale_is_never_below_its_noise(self, rng):
        """So few records that nothing is seen but bounds: the estimate is mostly noise, and must not blow values up."""
        X = 1e-6 * rng.normal(size=(20, 3))
        for seed in range(20):
            scaler = DPStandardScaler(epsilon=0.3, feature_bounds=(-1.0, 1.0), random_state=seed).fit(X)
            bounded = np.flatnonzero((scaler.feature_ranges_ == [-1.0, 1.0]).all(axis=1))
            assert np.all(scaler.var_[bounded] > 0.05)
            assert scaler.var_.max() <= 4.0

    def test_what_cannot_be_seen_becomes_zero(self, rng):
        X = pd.DataFrame({"seen": rng.normal(size=2000), "rare": 1e9 * (np.arange(2000) < 3)})
        scaler = DPStandardScaler(random_state=0).fit(X)
        assert scaler.unseen_features_.tolist() == [1]
        assert scaler.feature_ranges_[1].tolist() == [0.0, 0.0]
        assert (scaler.mean_[1], scaler.var_[1], scaler.scale_[1]) == (0.0, 0.0, 1.0)
        assert not scaler.transform(X)[:, 1].any()
        assert "of 1 of 2 features nothing can be seen at this budget: rare" in str(scaler.privacy_)
        as_it_is = clone(scaler).set_params(clip=False).fit(X).transform(X)
        assert np.array_equal(as_it_is[:, 1], X["rare"])
        nothing = DPStandardScaler(epsilon=0.01, random_state=0).fit(X)
        assert nothing.unseen_features_.tolist() == [0, 1]
        assert {release.description for release in nothing.privacy_.releases} == {"histograms of values"}

    def test_values_are_clipped_to_the_ranges(self, table):
        scaler = DPStandardScaler(random_state=0).fit(table)
        far = np.vstack([np.full(8, -1e200), np.full(8, 1e200)])
        np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(far)), scaler.feature_ranges_.T)
        scaler.clip = False
        np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(far)), far)


class TestPrivacy:
    def test_all_of_the_budget_is_spent_and_the_lines_add_up(self, table):
        for parameters in ({}, {"with_std": False}, {"with_mean": False}, {"feature_bounds": (-1e3, 1e3)}):
            statement = DPStandardScaler(epsilon=0.7, random_state=0, **parameters).fit(table).privacy_
            total = sum((release.cost for release in statement.releases), PrivacyCost())
            assert total.epsilon(statement.delta) == statement.spent_epsilon <= statement.epsilon == 0.7
            assert statement.spent_epsilon > 0.7 * (1.0 - 1e-6)
            assert statement.delta == 1 / len(table) ** 2

    def test_noise_is_secure_without_a_seed(self, rng):
        X = rng.normal(size=(2000, 2))
        first, second = (DPStandardScaler().fit(X) for _ in range(2))
        assert str(first.privacy_).startswith("differentially private with epsilon = 1,")
        assert first.privacy_.noise == "OpenDP discrete Gaussian"
        assert not np.array_equal(first.mean_, second.mean_)

    @pytest.mark.parametrize("bounds", [None, (np.full(3, -5.0), np.full(3, 2000.0))], ids=["learnt", "declared"])
    @pytest.mark.parametrize("epsilon", [2.0, 20.0])
    def test_record_and_replay(self, bounds, epsilon, rng):
        """See replay.py. With the larger budget there are further looks, whose questions depend on the first one's."""
        X = rng.normal([0.0, 30.0, 1000.0], [0.1, 1.0, 1.0], size=(1000, 3))
        other = X.copy()
        other[7] = [1e6, -1e308, 5e-324]
        budget, noise = PrivacyBudget(epsilon, 1e-4), KeepingNoise(SeededNoise(np.random.default_rng(2)))

        def run(curator):
            return np.concatenate(_learn_moments(curator, _learnt_range(curator, bounds), with_std=True))

        recorder = RecordingCurator(Columns.copy_of(X, np.zeros(1000)), budget, noise)
        learnt = run(recorder)
        assert budget.admits(recorder.spent)
        assert len(recorder.tape) >= (5 if epsilon == 20.0 else 3)
        check_books(recorder.tape, recorder, noise.drawn)
        neighbour = ReplayingCurator(recorder.tape, Columns.copy_of(other, np.zeros(1000)), budget, noise)
        assert np.array_equal(run(neighbour), learnt)
        assert neighbour.finished, "the neighbour is asked fewer questions"
        check_sensitivity(recorder.tape, recorder._columns, neighbour._columns)

    def test_a_ledger_is_charged_before_data_are_read(self, rng, tmp_path, monkeypatch):
        url = f"sqlite:///{tmp_path}/ledger.db"
        X = rng.normal(size=(2000, 2))
        ledger = Ledger(url)
        ledger.create("patients", PrivacyBudget(1.0, 1e-6))
        scaler = DPStandardScaler(epsilon=0.5, delta=1e-6, ledger=url, dataset="patients").fit(X)
        spent = ledger.standing("patients").spent
        assert spent.mu_squared == pytest.approx(scaler.privacy_.cost.mu_squared)
        assert "charged to dataset 'patients' of a ledger" in scaler.privacy_.assumptions
        with pytest.raises(BudgetExceeded):
            DPStandardScaler(epsilon=1.0, delta=1e-6, ledger=url, dataset="patients").fit(X)
        assert ledger.standing("patients").spent == spent

        def crash(*_):
            raise RuntimeError("the machine stops while it reads")

        monkeypatch.setattr("dpcd.privacy.columns.DyadicCounts.run", crash)
        with pytest.raises(RuntimeError, match="while it reads"):
            clone(scaler).fit(X)
        assert ledger.standing("patients").spent.mu_squared > spent.mu_squared
        with pytest.raises(ValueError, match="random_state=None"):
            clone(scaler).set_params(random_state=0).fit(X)

    def test_the_price_of_a_pipeline_is_the_sum(self, rng):
        X = rng.normal(100.0, 20.0, size=(20_000, 3))
        y = X @ [1.0, 0.0, -1.0] + rng.normal(size=len(X))
        pipeline = make_pipeline(
            DPStandardScaler(epsilon=0.5, random_state=0), DPLasso(epsilon=0.5, alpha=0.01, random_state=0)
        ).fit(X, y)
        assert pipeline.score(X, y) > 0.9
        first, second = (step.privacy_ for step in pipeline)
        together = (first.cost + second.cost).epsilon(first.delta)
        assert 0.5 < 0.7 < together < 0.75, "less than the sum of the two epsilons"

    @pytest.mark.parametrize("bounds", [None, (-1.0, 1.0), (-1e308, 1e308)])
    @pytest.mark.parametrize("clip", [True, False])
    def test_nothing_is_said_about_the_data(self, bounds, clip, rng, capfd, recwarn):
        X = np.full((500, 4), 1e308)
        X[:, 1] = 0.0
        X[:, 2] = rng.standard_cauchy(500)
        X[::2, 3] = 5e-324
        DPStandardScaler(random_state=0, feature_bounds=bounds, clip=clip).fit(X).transform(X)
        assert not recwarn.list
        assert capfd.readouterr() == ("", "")


class TestConventions:
    def test_frames_pipelines_and_column_transformers(self, rng):
        X = pd.DataFrame(rng.normal(40.0, 10.0, size=(3000, 2)), columns=["age", "hours"], index=range(5, 3005))
        bounds = {"hours": (0.0, 100.0), "age": (0.0, 120.0)}
        scaler = DPStandardScaler(feature_bounds=bounds, random_state=0).set_output(transform="pandas")
        scaled = scaler.fit_transform(X)
        assert scaled.index.equals(X.index)
        assert scaled.columns.tolist() == scaler.get_feature_names_out().tolist() == ["age", "hours"]
        assert np.all((scaler.feature_ranges_[0] >= 0.0) & (scaler.feature_ranges_[0] <= 120.0))
        mixed = ColumnTransformer([("scaled", DPStandardScaler(random_state=0), ["hours"])], remainder="passthrough")
        assert mixed.fit_transform(X).shape == (3000, 2)
        assert mixed.get_feature_names_out().tolist() == ["scaled__hours", "remainder__age"]
        assert mixed.named_transformers_["scaled"].privacy_.epsilon == 1.0
        assert make_pipeline(DPStandardScaler(random_state=0), Ridge()).fit(X, X["age"]).score(X, X["age"]) > 0.9

    def test_clone_and_pickle(self, table):
        X = table[:500]
        scaler = DPStandardScaler(epsilon=2.0, with_mean=False, random_state=1).fit(X)
        copy = clone(scaler)
        assert copy.get_params() == scaler.get_params()
        assert not hasattr(copy, "privacy_")
        stored = pickle.dumps(scaler)
        restored = pickle.loads(stored)
        assert np.array_equal(restored.transform(X), scaler.transform(X))
        assert restored.privacy_ == scaler.privacy_
        for row in X:
            assert row.tobytes() not in stored, "a fitted scaler must not carry the data"
        assert len(stored) < 10_000

    def test_inputs_stay_as_they_are_and_single_precision_stays_single(self, rng):
        X = rng.normal(size=(2000, 2)).astype(np.float32)
        before = X.copy()
        for clip in (True, False):
            scaler = DPStandardScaler(clip=clip, random_state=0).fit(X)
            scaled = scaler.transform(X)
            assert scaled.dtype == scaler.inverse_transform(scaled).dtype == np.float32
            assert np.array_equal(X, before)

    def test_documentation_names_every_parameter(self):
        for parameter in DPStandardScaler().get_params():
            assert f"\n{parameter} :" in DPStandardScaler.__doc__, parameter
        assert "{" not in DPStandardScaler.__doc__


class TestBadInput:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"epsilon": 0.0}, "epsilon must be a positive number"),
            ({"delta": 1.0}, "delta must lie"),
            ({"feature_bounds": (1.0, 0.0)}, "lower < upper"),
            ({"feature_bounds": {"a": (0, 1)}}, "data frame"),
            ({"with_mean": 1}, "with_mean must be True or False"),
            ({"with_std": "yes"}, "with_std must be True or False"),
            ({"clip": None}, "clip must be True or False"),
            ({"with_mean": False, "with_std": False}, "both False"),
            ({"random_state": "today"}, "random_state must be"),
            ({"dataset": "patients"}, "give both or neither"),
        ],
    )
    def test_wrong_parameters_are_refused_before_anything_is_charged(self, rng, parameters, message, monkeypatch):
        def refuse(*_):
            raise AssertionError("something was charged")

        monkeypatch.setattr(Curator, "release", refuse)
        with pytest.raises(ValueError, match=message):
            DPStandardScaler(**parameters).fit(rng.normal(size=(50, 2)))

    def test_tables_that_cannot_be_scaled(self, rng):
        X = rng.normal(size=(200, 2))
        for value in (np.nan, np.inf):
            broken = X.copy()
            broken[3, 1] = value
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                DPStandardScaler().fit(broken)
        with pytest.raises(ValueError, match="at least 2 samples"):
            DPStandardScaler().fit(X[:1])
        names = X.astype(object)
        names[3, 1] = "Ms. Smith"
        with pytest.raises(ValueError, match="must be numeric") as error:
            DPStandardScaler().fit(names)
        assert "Smith" not in str(error.value)
        with pytest.raises(ValueError, match="expecting 2 features"):
            DPStandardScaler(random_state=0).fit(X).inverse_transform(X[:, :1])
        with pytest.raises(ValueError, match="Expected 2D array"):
            DPStandardScaler().fit(X[:, 0])
