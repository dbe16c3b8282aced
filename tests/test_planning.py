"""Plans: made without data, true to what estimators do, and right about their errors."""

import itertools
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import dpcd
from dpcd import DPLogisticRegression, DPRidge
from dpcd.cli import app
from dpcd.losses import Huber, Logistic, SmoothedHinge, Squared
from dpcd.penalties import L1, L2
from dpcd.planning import CLASSIFICATION, REGRESSION, RESOLUTION
from dpcd.solvers.auto import choose

FORECASTS = Path(__file__).parents[1] / "benchmarks" / "forecasts.py"


def test_more_records_more_budget_and_fewer_columns_are_never_worse():
    kinds = (None, "regular", "long-tailed", "flags")
    for loss, declared, intercept, kind in itertools.product(
        ("squared", "logistic"), (False, True), (False, True), kinds
    ):
        options = {"loss": loss, "smoothness_declared": declared, "fit_intercept": intercept, "kind": kind}

        def lost(n, p, epsilon, delta=None, options=options):
            return dpcd.plan(n, p, epsilon, delta, **options).lost

        for p in (1, 8, 100):
            in_n = [lost(int(n), p, 0.5) for n in np.geomspace(10, 1e9, 25)]
            in_epsilon = [lost(5000, p, epsilon) for epsilon in np.geomspace(1e-4, 1000, 25)]
            for losses in (in_n, in_epsilon):
                assert np.all(np.diff(losses) <= 1e-12)
                assert losses[0] > 0.8
                # What long tails cost no budget brings back.
                assert losses[-1] < 0.15
        in_p = [lost(5000, p, 0.5) for p in (1, 2, 4, 8, 16, 32, 64, 128, 1000)]
        assert np.all(np.diff(in_p) >= 0.0)
        in_delta = [lost(5000, 8, 0.5, delta) for delta in (1e-12, 1e-9, 1e-6, 1e-3)]
        assert np.all(np.diff(in_delta) <= 0.0)


def test_what_would_make_it_good_does():
    for loss, n, p, epsilon in (("squared", 5000, 30, 0.1), ("logistic", 500, 3, 1.0)):
        plan = dpcd.plan(n, p, epsilon, loss=loss)
        for part in (0.05, 0.3):
            enough = plan.epsilon_for(part)
            assert dpcd.plan(n, p, enough, loss=loss).lost <= part
            assert dpcd.plan(n, p, 0.99 * enough, loss=loss).lost > part
            records = plan.n_for(part)
            assert dpcd.plan(records, p, epsilon, loss=loss).lost <= part
            assert dpcd.plan(int(0.99 * records), p, epsilon, loss=loss).lost > part
    assert dpcd.plan(5000, 3, 1.0).epsilon_for(0.9) < 1.0
    assert dpcd.plan(5000, 3, 1.0).epsilon_for(REGRESSION.unknown_tails - 0.001) is None
    assert dpcd.plan(2, 3, 1.0).epsilon_for() is None


@pytest.mark.parametrize("loss", [Squared(), Logistic()])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("declared", ["nothing", "bounds", "smoothness"])
def test_a_fit_spends_what_the_plan_says_on_the_solver_it_names(loss, intercept, declared):
    rng = np.random.default_rng(0)
    X = 1.0 + rng.normal(size=(20_000, 4))
    y = X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=len(X)) + 2.0
    options = {"epsilon": 0.8, "fit_intercept": intercept, "random_state": 0}
    if declared == "bounds":
        options["feature_bounds"] = (-4, 6)
    if declared == "smoothness":
        options["smoothness"] = loss.curvature * np.mean(X**2, axis=0)
    if isinstance(loss, Squared):
        model = DPRidge(**options, target_bounds=(-8, 12) if declared == "bounds" else None).fit(X, y)
    else:
        model = DPLogisticRegression(**options).fit(X, y > 2)
    plan = dpcd.plan(
        *X.shape,
        0.8,
        loss=loss,
        fit_intercept=intercept,
        bounds_declared=declared == "bounds",
        smoothness_declared=declared == "smoothness",
    )
    assert model.privacy_.notes[0].split(",")[0] == plan.reason.split(",")[0]
    spent = {}
    for release in model.privacy_.releases:
        spent[release.description] = spent.get(release.description, 0.0) + release.cost.mu_squared / plan.mu**2
    assert sum(plan.shares.values()) == pytest.approx(1.0)
    assert sum(spent.values()) == pytest.approx(1.0, rel=1e-3)
    # How often columns are looked at depends on what looks show.
    prepared = {"histograms of values", "means", "second moments"}
    assert sum(spent.get(name, 0.0) for name in prepared) == pytest.approx(1.0 - plan.shares["solver"], abs=0.03)
    assert (declared == "smoothness") == (not prepared & spent.keys())


def test_several_classes_share_the_budget():
    rng = np.random.default_rng(0)
    X = 1.0 + rng.normal(size=(20_000, 3))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=len(X)), [0.5, 1.5])
    plan = dpcd.plan(*X.shape, 1.0, loss="logistic", n_classes=3)
    note = DPLogisticRegression(random_state=0).fit(X, y).privacy_.notes[0]
    assert note.split("=")[0] == plan.reason.split("=")[0]
    assert dpcd.plan(*X.shape, 1.0, loss="logistic").lost < plan.lost


def test_the_solver_is_the_one_that_auto_chooses():
    for n, p, epsilon, penalty in itertools.product((500, 20_000), (3, 50, 1000), (0.1, 3.0), (L1(0.1), L2(0.1))):
        plan = dpcd.plan(n, p, epsilon, penalty=penalty)
        choice = choose(n, p + 1, plan.records / n, penalty, Squared())
        assert plan.solver == type(choice.solver).__name__
        assert plan.reason == choice.reason
    assert dpcd.plan(500, 1000, penalty="l1").solver == "Screened"
    assert dpcd.plan(20_000, 3).solver == "DPNewton"
    assert dpcd.plan(5000, 50).solver == "DPBlockCD"


def test_no_hope_means_no_model():
    """Where the verdict is that nothing can be had, estimators return the zero model, and the other way round."""
    rng = np.random.default_rng(0)
    for n, p, epsilon in ((100, 3, 0.5), (500, 5, 0.1), (2000, 50, 0.1)):
        assert dpcd.plan(n, p, epsilon).verdict == "no better than the zero model"
        X = rng.normal(size=(n, p))
        with pytest.warns(dpcd.UselessModelWarning):
            models = [DPRidge(epsilon=epsilon, random_state=seed).fit(X, X[:, 0]) for seed in range(5)]
        assert sum(not np.any(model.coef_) for model in models) >= 4
    assert dpcd.plan(20_000, 5, 1.0).verdict == "good"
    X = rng.normal(size=(20_000, 5))
    assert np.any(DPRidge(random_state=0).fit(X, X[:, 0]).coef_)


def test_the_rarest_flag_is_seen_and_rarer_ones_are_not():
    n, rng = 20_000, np.random.default_rng(0)
    rarest = dpcd.plan(n, 2, 0.3, fit_intercept=False).rarest_flag
    assert 0.0 < rarest < 0.2
    for part, seen in ((2.0, True), (0.1, False)):
        X = np.column_stack([rng.normal(size=n), np.arange(n) < part * rarest * n])
        models = [DPRidge(epsilon=0.3, fit_intercept=False, random_state=seed).fit(X, X[:, 0]) for seed in range(5)]
        assert all((1 not in model.unseen_features_) is seen for model in models)
    assert dpcd.plan(n, 2, 0.3, bounds_declared=True).rarest_flag == 0.0


def test_without_privacy_nothing_is_lost():
    plan = dpcd.plan(1000, 10, math.inf)
    assert plan.lost == plan.noise == plan.rarest_flag == 0.0
    assert plan.verdict == "good"
    assert "no noise" in str(plan)


def test_what_the_columns_are_like_counts():
    regular, unknown, long_tailed = (dpcd.plan(20_000, 8, kind=kind).lost for kind in ("regular", None, "long-tailed"))
    assert regular < unknown < long_tailed
    assert dpcd.plan(20_000, 8, kind="flags").lost > 3 * regular
    declared = {
        dpcd.plan(20_000, 8, kind=kind, smoothness_declared=True).lost for kind in ("flags", None, "long-tailed")
    }
    assert len(declared) == 1


def test_noise_counts_against_the_signal():
    weak, strong = (dpcd.plan(5000, 8, 0.5, signal=signal) for signal in (0.1, 0.9))
    assert weak.lost > dpcd.plan(5000, 8, 0.5).lost > strong.lost
    assert weak.noise == strong.noise
    assert dpcd.plan(5000, 8).signal == REGRESSION.signal
    assert dpcd.plan(5000, 8, loss=SmoothedHinge(0.5)).signal == CLASSIFICATION.signal
    assert dpcd.plan(5000, 8, loss=Huber(1.0)).lost == pytest.approx(dpcd.plan(5000, 8).lost)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 1}, "n must be a whole number of at least 2"),
        ({"n": 1e4}, "n must be a whole number"),
        ({"n": True}, "n must be a whole number"),
        ({"n": 10**14}, "n must be at most"),
        ({"p": 0}, "p must be a whole number of at least 1"),
        ({"epsilon": 0.0}, "epsilon must be a positive number"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"loss": "hinge"}, "loss must be 'squared', 'logistic'"),
        ({"penalty": "l0"}, "penalty must be 'l1', 'l2'"),
        ({"kind": "nice"}, "kind must be None, 'regular'"),
        ({"signal": 1.0}, "signal must be a part between 0 and 1"),
        ({"signal": math.nan}, "signal"),
        ({"n_classes": 1, "loss": "logistic"}, "n_classes must be a whole number of at least 2"),
        ({"n_classes": 3}, "needs a loss for classification"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        dpcd.plan(**{"n": 1000, "p": 3, **options})


def test_forecasts_are_no_finer_than_they_were_checked():
    for lost in (0.0, RESOLUTION / 2, 1.0, math.nan):
        for question in (dpcd.plan(1000, 3).epsilon_for, dpcd.plan(1000, 3).n_for):
            with pytest.raises(ValueError, match="lost must be a part"):
                question(lost)


def test_a_plan_reads_well():
    text = str(dpcd.plan(5000, 30, 0.25))
    assert text.splitlines()[0] == "5000 records, 30 features, epsilon = 0.25, delta = 4e-08: usable"
    for words in ("one-block DP-CD, because", "histograms of values", "signal lost", "to be good  epsilon = "):
        assert words in text
    assert "declare feature_bounds" in str(dpcd.plan(200, 3, 0.1))
    assert "no epsilon and no number" not in text


def test_command_line():
    result = CliRunner().invoke(app, ["plan", "--n", "20000", "--p", "8", "--loss", "logistic", "--epsilon", "0.5"])
    assert result.exit_code == 0
    assert result.output.strip() == str(dpcd.plan(20_000, 8, 0.5, loss="logistic"))
    options = [
        "--n",
        "900",
        "--p",
        "2",
        "--no-intercept",
        "--bounds",
        "--smoothness",
        "--signal",
        "0.2",
        "--kind",
        "flags",
    ]
    result = CliRunner().invoke(app, ["plan", *options, "--delta", "1e-4", "--penalty", "l1"])
    declared = {"fit_intercept": False, "bounds_declared": True, "smoothness_declared": True}
    assert result.output.strip() == str(
        dpcd.plan(900, 2, 1.0, 1e-4, penalty="l1", kind="flags", signal=0.2, **declared)
    )
    for options, message in ((["--loss", "cubic"], "loss must be"), (["--classes", "3"], "loss for classification")):
        result = CliRunner().invoke(app, ["plan", "--n", "900", "--p", "2", *options])
        assert result.exit_code == 1
        assert message in result.output


def test_forecasts_of_a_few_fits_are_right():
    study = runpy.run_path(str(FORECASTS))
    tables = study["tables"](
        ("strongly-correlated", "lognormal"), (7, 8, 9), sizes=(5000,), widths=(5,), intercepts=(True,)
    )
    measured = [case for table in tables for case in study["cases"](table)]
    assert len(measured) == 96
    assert np.mean([case.right(informed=True) for case in measured]) >= 0.75


@pytest.mark.slow
def test_four_of_five_forecasts_are_right():
    study = runpy.run_path(str(FORECASTS))
    fitted, new = (
        [
            (case.right(), case.right(informed=True))
            for table in study["tables"](study[names], (100,))
            for case in study["cases"](table)
        ]
        for names in ("CALIBRATED_ON", "NEVER_FITTED")
    )
    assert np.all(np.mean(fitted + new, axis=0) >= 0.8)
    # Among these are one-hot columns and duplicates, about which n, p and epsilon say least.
    assert np.all(np.mean(new, axis=0) >= 0.72)
