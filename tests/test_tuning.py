"""Private selection, from its accounting to the scikit-learn face."""

import json
import math
import pickle
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, mean_squared_error

import dpcd
from dpcd import BudgetExceeded, DPLasso, DPLinearSVC, DPLogisticRegression, DPRidge, Ledger, LedgerError, PrivateSearch
from dpcd.audit import NoNoise
from dpcd.privacy import Columns, Curator, PrivacyBudget, PrivacyCost, SecureNoise, SeededNoise
from dpcd.privacy.accounting import ORDERS, gaussian_mu
from dpcd.privacy.columns import SecondMoments
from dpcd.privacy.search import (
    BestCandidate,
    MeanLoss,
    NumberOfRuns,
    gaussian_budget,
    gaussian_limit,
)
from dpcd.solvers import DPCD, DPSGD
from dpcd.verify import StatementError, verify

LAWS = ["logarithmic", "geometric", "poisson"]
DELTA = 1 / 45312**2


def their_epsilon(mu, number, delta):
    accountant = RdpAccountant(ORDERS[ORDERS < 5000.0])
    one = dp_accounting.GaussianDpEvent(1 / mu)
    accountant.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(one, number.mean, number.shape))
    return accountant.get_epsilon(delta)


def probabilities(number, largest=4000):
    """The law of K, by its formula."""
    k = np.arange(1, largest)
    if number.law == "poisson":
        return np.arange(largest), stats.poisson.pmf(np.arange(largest), number.mean)
    if number.law == "geometric":
        return k, stats.geom.pmf(k, 1 / number.mean)
    gamma = 1 / number._inverse_gamma
    return k, (1 - gamma) ** k / (k * math.log(1 / gamma))


class TestAccounting:
    @pytest.mark.parametrize(
        ("law", "mean", "total"),
        [
            ("logarithmic", 10, 1.58),
            ("logarithmic", 30, 1.70),
            ("logarithmic", 100, 1.81),
            ("geometric", 10, 1.85),
            ("geometric", 30, 2.05),
            ("geometric", 100, 2.23),
            ("poisson", 10, 2.04),
            ("poisson", 30, 3.84),
            ("poisson", 100, 7.89),
        ],
    )
    def test_known_totals_of_candidates_with_epsilon_one(self, law, mean, total):
        mu = gaussian_mu(1.0, DELTA)
        number = NumberOfRuns(mean, law)
        ours = number.cost(mu**2).epsilon(DELTA)
        assert ours == pytest.approx(total, abs=0.005)
        assert ours == pytest.approx(their_epsilon(mu, number, DELTA), rel=1e-3)

    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("mu", [0.02, 0.5, 3.0])
    @pytest.mark.parametrize("mean", [2, 1000])
    def test_another_code_base_agrees(self, law, mu, mean):
        number = NumberOfRuns(mean, law)
        assert number.cost(mu**2).epsilon(1e-6) == pytest.approx(their_epsilon(mu, number, 1e-6), rel=0.01)

    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
    @pytest.mark.parametrize("mean", [2.0, 10.0])
    def test_the_theorem_holds_for_what_can_be_computed(self, law, mu, mean):
        """The best of K draws of a discrete Gaussian has P[best ≤ y] = f(P[one ≤ y]), f the generating function of K.

        Its divergence between neighbours, summed over all outcomes, must stay below the bound; and come near it
        nowhere near for free: with the price of repetition left out it does not.
        """
        scale = 4.0
        y = np.arange(-120, 121)
        k, p = probabilities(NumberOfRuns(mean, law))

        def best(center):
            one = np.exp(-((y - center) ** 2) / (2 * scale**2))
            below = np.minimum(np.cumsum(one / one.sum()), 1.0)
            generating = np.array([np.sum(p * q**k) for q in below])
            return np.diff(generating, prepend=p[0] if law == "poisson" else 0.0)

        # y near −120 underflows, where both laws are below 1e-100.
        seen = slice(60, 181) if mu <= 1 else slice(70, 171)
        near, far = best(0.0), best(round(mu * scale))
        cost = NumberOfRuns(mean, law).cost((round(mu * scale) / scale) ** 2)
        exceeded = False
        for order in (2.0, 4.0, 16.0):
            bound = cost.renyi[int(np.flatnonzero(order == ORDERS)[0])]
            for a, b in ((near, far), (far, near)):
                ok = (a[seen] > 1e-13) & (b[seen] > 1e-13)
                divergence = np.log(np.sum(a[seen][ok] ** order * b[seen][ok] ** (1 - order))) / (order - 1)
                assert divergence <= bound
                exceeded = exceeded or divergence > order * (round(mu * scale) / scale) ** 2 / 2
        assert exceeded or mu > 1.0, "repetition must be seen to cost something, or the test proves nothing"

    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
    def test_what_candidates_get_uses_up_the_budget_and_no_more(self, law, epsilon):
        number = NumberOfRuns(10, law)
        budget = PrivacyBudget(epsilon, 1e-8, number.best_order(epsilon, 1e-8))
        spent = PrivacyCost.gaussian(100.0 / epsilon)
        room = number.candidate_room(budget, spent)
        assert budget.admits(spent + number.cost(room))
        assert not budget.admits(spent + number.cost(room * 1.001))
        # The order that was fixed beforehand is as good as any.
        assert (spent + number.cost(room)).epsilon(1e-8) >= 0.99 * epsilon

    def test_a_hopeless_budget_is_refused(self):
        order = float(ORDERS[100])
        with pytest.raises(BudgetExceeded, match="try fewer"):
            NumberOfRuns(1000).candidate_room(PrivacyBudget(0.1, 1e-8, order), PrivacyCost())

    @settings(max_examples=50, deadline=None)
    @given(st.floats(1e-3, 50.0), st.floats(-12, -2))
    def test_no_budget_admits_more_than_its_limit(self, epsilon, log_delta):
        budget = PrivacyBudget(epsilon, 10**log_delta)
        low, high = 0.0, 10.0 * gaussian_limit(budget)
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if budget.admits(PrivacyCost(middle)) else (low, middle)
        assert low <= gaussian_limit(budget) <= low * 1.001
        part = gaussian_budget(gaussian_limit(budget), budget.delta)
        assert 0.9999 * gaussian_limit(budget) <= gaussian_limit(part) <= gaussian_limit(budget)

    def test_costs_of_budgets_with_an_order_are_no_gaussians(self):
        with pytest.raises(ValueError, match="no Rényi order"):
            gaussian_limit(PrivacyBudget(1.0, 1e-6, 32.0))

    def test_wrong_laws_are_refused(self):
        with pytest.raises(ValueError, match="law must be"):
            NumberOfRuns(10, "uniform")
        for mean in (1.0, 0.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="mean number"):
                NumberOfRuns(mean)


class TestNumberOfRuns:
    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("mean", [2.0, 12.5])
    def test_draws_follow_the_law(self, law, mean, rng):
        number, noise = NumberOfRuns(mean, law), SeededNoise(rng)
        draws = np.array([number.draw(noise) for _ in range(300)])
        k, p = probabilities(number)
        assert np.sum(p) == pytest.approx(1.0)
        assert np.sum(k * p) == pytest.approx(mean)
        low = int(k[0])
        edges = [*range(low, low + 4), low + 8, low + 25]
        expected = [np.sum(p[(k >= a) & (k < b)]) for a, b in zip(edges, [*edges[1:], math.inf], strict=True)]
        observed = np.histogram(draws, [*edges, np.inf])[0]
        kept = np.array(expected) * 300 > 1
        rest = observed[~kept].sum(), np.sum(np.array(expected)[~kept])
        if rest[1] > 0:
            observed, expected = np.append(observed[kept], rest[0]), np.append(np.array(expected)[kept], rest[1])
        assert stats.chisquare(observed, np.array(expected) * 300 / np.sum(expected)).pvalue > 1e-5

    def test_nobody_can_reproduce_secret_draws(self):
        number = NumberOfRuns(1000, "geometric")
        np.random.seed(0)
        first = [number.draw(SecureNoise()) for _ in range(5)]
        np.random.seed(0)
        assert first != [number.draw(SecureNoise()) for _ in range(5)]


def model(rng, rows=1, features=3):
    return rng.normal(size=(rows, features)), rng.normal(size=rows)


class TestMeanLoss:
    def test_it_is_the_mean_of_what_scikit_learn_computes(self, rng):
        X = rng.normal(size=(400, 3))
        y = X @ [1.0, 2.0, 0.0] + rng.normal(size=400)
        fitted = DPRidge(epsilon=math.inf).fit(X, y)
        line = fitted.coef_[None, :], np.array([fitted.intercept_])

        def loss(measure, model, target, largest=1e3):
            return MeanLoss(measure, *model, largest, 0.0).run(Columns.copy_of(X, target), NoNoise())

        assert loss("squared error", line, y) == pytest.approx(mean_squared_error(y, fitted.predict(X)))
        assert loss("absolute error", line, y) == pytest.approx(mean_absolute_error(y, fitted.predict(X)))
        clipped = np.minimum(abs(y - fitted.predict(X)), 0.3)
        assert loss("absolute error", line, y, 0.3) == pytest.approx(np.mean(clipped))
        bounded = DPRidge(epsilon=math.inf, feature_bounds=(-0.5, 0.5)).fit(X, y)
        weights = bounded.coef_[None, :], np.array([bounded.intercept_])
        judged = MeanLoss("squared error", *weights, 1e3, 0.0, bounded.feature_ranges_)
        found = judged.run(Columns.copy_of(X, y), NoNoise())
        assert found == pytest.approx(mean_squared_error(y, bounded.predict(X)))
        assert abs(found - loss("squared error", weights, y)) > 0.01
        for classes in (2, 3):
            codes = np.digitize(y, [-1.0, 1.0][: classes - 1])
            fitted = DPLogisticRegression(epsilon=math.inf).fit(X, codes)
            parts = fitted.coef_, fitted.intercept_
            wrong = loss("misclassification", parts, codes)
            assert wrong == pytest.approx(1 - accuracy_score(codes, fitted.predict(X)))
            assert loss("log loss", parts, codes) == pytest.approx(log_loss(codes, fitted.predict_proba(X)))

    def test_noise_has_the_size_it_is_charged_for(self, rng):
        mechanism = MeanLoss("absolute error", *model(rng), 2.0, 10.0)
        data, noise = Columns.copy_of(np.zeros((50, 3)), np.full(50, 1e9)), SeededNoise(rng)
        values = np.array([mechanism.run(data, noise) for _ in range(300)])
        assert stats.kstest((values - 2.0) / (10.0 * 2.0 / 50), "norm").pvalue > 1e-5

    def test_wrong_fields_are_refused(self, rng):
        for largest in (0.0, math.inf, math.nan):
            with pytest.raises(ValueError, match="largest loss"):
                MeanLoss("squared error", *model(rng), largest, 1.0)
        with pytest.raises(ValueError, match="rows of coefficients"):
            MeanLoss("squared error", np.zeros(3), np.zeros(1), 1.0, 1.0)


class Constant:
    """A candidate that asks for one release and predicts a constant."""

    intercept = False

    def __init__(self, value, curators, noise_multiplier=50.0, failure=None):
        self.value, self._curators, self._multiplier, self._failure = value, curators, noise_multiplier, failure

    def fit(self, curator):
        self._curators.append(curator)
        curator.release(SecondMoments(np.array([0]), np.array([1.0]), None, self._multiplier))
        if self._failure is not None:
            warnings.warn("a loser speaks", stacklevel=1)
            raise self._failure
        return np.zeros((1, 2)), np.array([self.value]), None


def tournament(propose, number=None, multiplier=1.0):
    return BestCandidate(
        number or NumberOfRuns(30, "geometric"), propose, PrivacyBudget(1.0, 1e-6), "squared error", 100.0, multiplier
    )


def zeros():
    return Columns(np.zeros((1000, 2), order="F"), np.zeros(1000))


class TestBestCandidate:
    def test_the_best_comes_out_and_each_has_a_curator_and_a_copy_of_its_own(self, rng):
        curators = []

        def propose(generator):
            return Constant(generator.uniform(-5, 5), curators)

        best, loss = tournament(propose).run(zeros(), SeededNoise(rng))
        assert len(curators) > 3
        assert len({id(curator) for curator in curators}) == len(curators)
        assert loss == pytest.approx(best.value**2, abs=1.0)
        for curator in curators:
            assert curator.budget == PrivacyBudget(1.0, 1e-6)
            assert curator._columns.features is not curators[0]._columns.features or curator is curators[0]

    def test_its_cost_is_that_of_the_limit_whatever_candidates_spend(self):
        mechanism = tournament(lambda generator: Constant(0.0, []), NumberOfRuns(10), multiplier=20.0)
        mu_squared = gaussian_limit(mechanism.budget) + 1 / 400
        assert mechanism.cost == NumberOfRuns(10).cost(mu_squared)
        assert mechanism.noise_multipliers == pytest.approx((mu_squared**-0.5,) * 2)
        assert mechanism.selection == {"law": "logarithmic", "mean": 10, "shape": 0.0}

    def test_candidates_cannot_overspend(self, rng):
        def propose(generator):
            return Constant(0.0, [], noise_multiplier=0.1)

        with pytest.raises(BudgetExceeded, match="second moments"):
            tournament(propose).run(zeros(), SeededNoise(rng))

    def test_failures_and_warnings_of_losers_stay_secret(self, rng):
        calls = []

        def propose(generator):
            calls.append(1)
            return Constant(0.0, [], failure=None if len(calls) == 3 else ValueError("too bad"))

        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            best, _ = tournament(propose, NumberOfRuns(1000, "poisson")).run(zeros(), SeededNoise(rng))
        assert len(calls) > 3
        assert best.value == 0.0
        assert not shown

    def test_warnings_of_losers_stay_secret_in_threads(self):
        """Filters of warnings belong to all threads: those of one search are neither another's, nor anybody else's."""

        class Slow(Constant):
            def fit(self, curator):
                for _ in range(20):
                    warnings.warn("a loser speaks", stacklevel=1)
                    time.sleep(1e-4)
                return super().fit(curator)

        def run(seed):
            noise = SeededNoise(np.random.default_rng(seed))
            for _ in range(3):
                tournament(lambda generator: Slow(0.0, []), NumberOfRuns(4, "poisson")).run(zeros(), noise)
            warnings.warn("somebody else speaks", stacklevel=1)

        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(run, range(4)))
        assert [str(warning.message) for warning in shown] == ["somebody else speaks"] * 4

    def test_if_all_fail_that_is_what_comes_out(self, rng):
        class Failing(Constant):
            def fit(self, curator):
                try:
                    raise ArithmeticError("with frames that hold data")
                except ArithmeticError:
                    super().fit(curator)

        with pytest.raises(ValueError, match="too bad") as error:
            tournament(lambda generator: Failing(0.0, [], failure=ValueError("too bad"))).run(zeros(), SeededNoise(rng))
        assert error.value.__context__ is error.value.__cause__ is None

    def test_scores_need_noise(self):
        with pytest.raises(ValueError, match="scores without noise"):
            tournament(lambda generator: Constant(0.0, []), multiplier=0.0)

    def test_equal_scores_go_to_the_first(self, rng):
        made = []

        def propose(generator):
            made.append(Constant(1e9, []))
            return made[-1]

        # Every loss is at its largest, and the noise of all curators is the same.
        best, _ = tournament(propose, NumberOfRuns(50, "poisson")).run(zeros(), NoNoise())
        assert len(made) > 1
        assert best is made[0]


@pytest.fixture
def table(rng):
    X = rng.normal(size=(4000, 3))
    return X, X @ [1.0, -1.0, 0.5] + rng.normal(size=4000)


# As if the noise had been secure: what is checked is arithmetic.
SECURE = {"private": True, "noise": "OpenDP discrete Gaussian"}


def search(estimator=None, **changes):
    space = changes.pop("space", {"alpha": [1e-3, 10.0]})
    estimator = DPRidge(feature_bounds=(-4, 4)) if estimator is None else estimator
    return PrivateSearch(estimator, space, **({"random_state": 0} | changes))


class TestPrivateSearch:
    @pytest.mark.parametrize(
        ("law", "epsilon"), [("logarithmic", 0.3), ("logarithmic", 1.0), ("geometric", 5.0), ("poisson", 1.0)]
    )
    def test_one_total_that_another_code_base_arrives_at(self, table, law, epsilon):
        statement = search(law=law, epsilon=epsilon).fit(*table).privacy_
        assert statement.epsilon == epsilon
        assert epsilon * 0.99 <= statement.spent_epsilon <= epsilon
        result = verify(json.dumps(statement.to_dict() | SECURE))
        assert result.verified, str(result)
        assert result.recomputed_epsilon == pytest.approx(epsilon, rel=0.01)

    def test_false_statements_are_found_out(self, table):
        fields = search().fit(*table).privacy_.to_dict() | SECURE
        line = fields["releases"][-1]
        for lie in (
            {"selection": line["selection"] | {"mean": 100.0}},
            {"selection": line["selection"] | {"shape": 1.0}},
            {"noise_multipliers": [[0.5 * line["smallest_noise_multiplier"], 1]]},
            {"count": 2},
        ):
            lied = fields | {"releases": [*fields["releases"][:-1], line | lie]}
            assert not verify(json.dumps(lied)).verified
        for nonsense in (3, {}, {"mean": 0.5, "shape": 0.0}, {"mean": 10.0, "shape": 0.3}):
            lied = fields | {"releases": [line | {"selection": nonsense}]}
            with pytest.raises(StatementError):
                verify(json.dumps(lied))

    def test_only_the_best_is_shown(self, table):
        searches = [search(random_state=seed).fit(*table) for seed in range(6)]
        for found in searches:
            assert found.cv_results_["params"] == [found.best_params_]
            assert found.cv_results_["mean_test_score"].tolist() == [found.best_score_]
            assert {len(column) for column in found.cv_results_.values()} == {1}
            assert vars(found).keys() == vars(searches[0]).keys()
            assert vars(found.best_estimator_).keys() == vars(searches[0].best_estimator_).keys()
            assert [r.description for r in found.privacy_.releases] == [
                r.description for r in searches[0].privacy_.releases
            ]
            assert found.best_estimator_.privacy_ is found.privacy_
            assert found.best_estimator_.epsilon == 1.0
            assert pickle.loads(pickle.dumps(found)).best_score_ == found.best_score_
        assert len({len(str(found.privacy_)) for found in searches}) == 1

    def test_it_finds_the_better_settings(self, table):
        X, y = table
        chosen = [search(random_state=seed, law="geometric").fit(X, y).best_params_["alpha"] for seed in range(12)]
        # A single candidate, which is as likely as not the worse one, comes up once in ten searches.
        assert chosen.count(1e-3) >= 9
        without = search(epsilon=math.inf, n_iter=20, law="poisson").fit(X, y)
        assert without.best_params_ == {"alpha": 1e-3}
        assert without.score(X, y) == pytest.approx(Ridge(alpha=4.0).fit(X, y).score(X, y), abs=1e-6)
        residuals = y - without.predict(X)
        rms = math.sqrt(np.mean(y**2))
        assert without.best_score_ == pytest.approx(-np.mean(np.minimum(residuals**2, rms**2)), rel=0.01)

    def test_classifiers(self, table):
        X, y = table
        labels = np.where(y > 0, "up", "down")
        found = search(DPLogisticRegression(), epsilon=8.0).fit(X, labels)
        assert list(found.classes_) == ["down", "up"]
        assert found.best_score_ == pytest.approx(found.score(X, labels), abs=0.02)
        assert found.predict_proba(X).shape == (4000, 2)
        assert found.predict_log_proba(X).shape == (4000, 2)
        assert found.decision_function(X).shape == (4000,)
        by_loss = search(DPLogisticRegression(), epsilon=8.0, scoring="neg_log_loss").fit(X, labels)
        assert by_loss.best_score_ == pytest.approx(-log_loss(labels, by_loss.predict_proba(X)), abs=0.05)
        assert not hasattr(search(DPLinearSVC()), "predict_proba")
        assert not hasattr(search(DPLasso()), "decision_function")
        several = search(DPLinearSVC(), epsilon=8.0).fit(X, np.digitize(y, [-1, 1]))
        assert several.best_estimator_.coef_.shape == (3, 3)
        assert "3 classes, taken from the labels" in str(several.privacy_)
        assert any(note.startswith("the classes are the labels that occur") for note in several.privacy_.notes)

    def test_settings_of_all_kinds(self, table):
        space = [
            {"alpha": stats.loguniform(1e-4, 1e-2), "fit_intercept": [True, False]},
            {"solver": [DPCD(n_passes=3), DPCD(n_passes=5)], "target_bounds": [(-5, 5), (-8, 8)]},
        ]
        found = [search(space=space, random_state=seed).fit(*table) for seed in range(8)]
        assert len({tuple(sorted(one.best_params_)) for one in found}) == 2
        for one in found:
            for name, value in one.best_params_.items():
                assert repr(getattr(one.best_estimator_, name)) == repr(value)

    def test_target_bounds_save_a_release(self, table):
        declared = search(DPRidge(target_bounds=(-6, 6))).fit(*table).privacy_
        assert [release.description for release in declared.releases] == ["best of about 10 candidates"]
        learnt = search().fit(*table).privacy_
        assert [release.description for release in learnt.releases][:1] == ["histograms of values"]
        assert len(learnt.releases) == 2
        assert "each candidate had 1.8 times the noise of a single fit" in str(learnt)

    def test_an_invisible_target(self, rng):
        with pytest.warns(dpcd.UselessModelWarning, match="bought no update"):
            found = search(scoring="neg_mean_absolute_error").fit(rng.normal(size=(20, 2)), np.zeros(20))
        assert "scores mean nothing" in str(found.privacy_)
        assert "bought no update" in str(found.privacy_)

    def test_reproducible_with_a_seed_and_private_without(self, table):
        first, second = search(random_state=3).fit(*table), search(random_state=3).fit(*table)
        assert np.array_equal(first.best_estimator_.coef_, second.best_estimator_.coef_)
        assert not first.privacy_.private
        secret = search(random_state=None, n_iter=2).fit(*table)
        assert secret.privacy_.private
        assert verify(secret.privacy_.to_json()).verified

    def test_parameters(self):
        one = search(n_iter=7, law="geometric")
        assert clone(one).get_params()["n_iter"] == 7
        assert one.set_params(estimator__alpha=0.5).estimator.alpha == 0.5

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            ({"estimator": Ridge()}, TypeError, "this library's models only"),
            ({"estimator": DPRidge(random_state=1)}, ValueError, "random_state"),
            ({"estimator": DPRidge(solver=DPSGD())}, ValueError, "secret batches"),
            ({"space": {"solver": [DPCD(), DPSGD()]}}, ValueError, "secret batches"),
            ({"space": {"epsilon": [1.0, 2.0]}}, ValueError, "epsilon cannot be searched over"),
            ({"space": {"beta": [1.0]}}, ValueError, "no parameter 'beta'"),
            ({"space": {"alpha": [1.0, -1.0]}}, ValueError, "alpha must be"),
            ({"space": {"alpha": []}}, ValueError, "empty|non-empty"),
            ({"space": {"alpha": 3.0}}, TypeError, "iterable|list"),
            ({"scoring": "r2"}, ValueError, "bounded losses"),
            ({"scoring": "accuracy"}, ValueError, "bounded losses"),
            ({"n_iter": 1}, ValueError, "at least 2"),
            ({"n_iter": "many"}, ValueError, "at least 2"),
            ({"law": "uniform"}, ValueError, "law must be"),
            ({"epsilon": -1.0}, ValueError, "epsilon must be"),
        ],
    )
    def test_mistakes_are_found_before_anything_is_spent(self, table, tmp_path, changes, error, message):
        url = f"sqlite:///{tmp_path}/ledger.db"
        Ledger(url).create("d", PrivacyBudget(5.0, 1e-6, 32.0))
        with pytest.raises(error, match=message):
            search(**({"random_state": None, "ledger": url, "dataset": "d"} | changes)).fit(*table)
        assert Ledger(url).standing("d").n_charges == 0

    def test_the_ledger_is_charged_for_the_search_as_a_whole(self, table, tmp_path):
        url = f"sqlite:///{tmp_path}/ledger.db"
        account = {"random_state": None, "ledger": url, "dataset": "d", "n_iter": 2}
        Ledger(url).create("d", PrivacyBudget(2.0, 1 / 4000**2, 32.0))
        found = search(DPRidge(target_bounds=(-6, 6)), **account).fit(*table)
        (charge,) = Ledger(url).history("d")
        assert charge.description == "best of about 2 candidates"
        assert charge.cost == found.privacy_.releases[0].cost
        assert Ledger(url).standing("d").epsilon_spent == pytest.approx(1.0, rel=1e-4)
        assert found.privacy_.order == 32.0
        with pytest.raises(BudgetExceeded):
            search(DPRidge(target_bounds=(-6, 6)), epsilon=2.0, **account).fit(*table)
        with pytest.raises(ValueError, match="seeded noise"):
            search(DPRidge(target_bounds=(-6, 6)), **(account | {"random_state": 0})).fit(*table)
        Ledger(url).create("gaussian", PrivacyBudget(2.0, 1e-6))
        with pytest.raises(LedgerError, match="best of many candidates"):
            search(**(account | {"dataset": "gaussian"})).fit(*table)
        assert len(Ledger(url).history("d")) == 1

    def test_what_every_candidate_spends_stays_within_what_the_statement_says(self, table, monkeypatch):
        """And the raw data are asked for nothing besides."""
        curators = []
        make = Curator.__init__

        def kept(self, *arguments):
            make(self, *arguments)
            curators.append(self)

        monkeypatch.setattr(Curator, "__init__", kept)
        found = search(n_iter=30, random_state=1).fit(*table)
        curators = [curator for curator in curators if curator.n_records == 4000]
        outer, inner = curators[0], curators[1:]
        assert outer.releases == found.privacy_.releases
        fits, scores = inner[::2], inner[1::2]
        assert len(fits) == len(scores) > 1
        limit = 1 / found.privacy_.releases[-1].smallest_noise_multiplier ** 2
        for fit, score in zip(fits, scores, strict=True):
            assert [type(release).__name__ for release in fit.releases]
            (line,) = score.releases
            assert line.description == "mean loss"
            assert 0.99 * limit <= fit.spent.mu_squared + score.spent.mu_squared <= limit

    def test_no_candidate_at_all(self, table, monkeypatch):
        monkeypatch.setattr(NumberOfRuns, "draw", lambda number, noise: 0)
        with pytest.raises(RuntimeError, match="no candidate at all"):
            search(law="poisson").fit(*table)
