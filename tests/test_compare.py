import csv
import json
import math
from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

from dpcd import DPGeneralizedLinearModel, cli
from dpcd.experiments import compare, methods, methods_report, runs
from dpcd.experiments.compare import QUICK, Effort, FromFile, Row, Simulated, Unit, fit
from dpcd.experiments.methods import METHODS, Method, Setting
from dpcd.losses import Logistic, Squared
from dpcd.penalties import L1, L2
from dpcd.solvers import DPCD, DPBlockCD
from test_experiments import _Inline

SMALL = Simulated("correlated", 1000, 3, Squared())


def method(name):
    return next(method for method in METHODS if method.name == name)


@pytest.fixture
def small_study(monkeypatch, tmp_path):
    """One small problem, three methods, this process."""
    some = (method("DP-CD"), method("DP-SCD, tuned"), method("DP-Frank–Wolfe"))
    for module in (compare, methods):
        monkeypatch.setattr(module, "METHODS", some)
    monkeypatch.setattr(compare, "DEFAULT", SMALL)
    monkeypatch.setattr(compare, "STUDY", (SMALL, Simulated("correlated", 900, 3, Logistic())))
    monkeypatch.setattr(runs, "ProcessPoolExecutor", _Inline)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(cli.app, ["compare", "--jobs", "1", *map(str, arguments)])


def test_a_comparison_from_the_command_line(small_study):
    result = run("--quick", "--out", small_study / "out", "--tuned", "--epsilon", 10, "--epsilon", 0.5)
    assert result.exit_code == 0, result.output
    assert "zero model" in result.output
    folder = small_study / "out-quick"
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    # Frank–Wolfe refuses the l2 penalty of the family. Nothing declared comes first, and nothing is tuned there.
    assert [(row["declared"], row["method"], row["epsilon"]) for row in rows] == [
        (declared, name, epsilon)
        for declared, name in (("False", "DP-CD"), ("True", "DP-CD"), ("True", "DP-SCD, tuned"))
        for epsilon in ("0.5", "10")
    ]
    assert float(rows[1]["mean"]) < 0.1, "with so much budget hardly anything is lost"
    for row in rows:
        assert float(row["mean"]) <= float(row["worst"])
        lost = float(row["relative_mean"]) * float(row["optimum"]) / (float(row["zero"]) - float(row["optimum"]))
        assert lost == pytest.approx(float(row["mean"]), rel=0.01)
    page = (folder / "README.md").read_text()
    assert "`dpcd compare --tuned --quick`" in page
    assert "**Not private**" in page
    assert (folder / "figure.png").stat().st_size > 20_000


def test_what_is_stored_is_not_run_again(small_study):
    arguments = [SMALL], [method("DP-CD")], (0.5, 10.0), (False, True), QUICK, small_study, 0, 1
    rows = compare.compare(*arguments)
    times = {path.name: path.stat().st_mtime_ns for path in small_study.iterdir()}
    assert set(times) == {Unit(SMALL, "DP-CD", *each).name for each in product((10.0, 0.5), (False, True))}
    assert len(times) == 4
    assert compare.compare(*arguments) == rows
    assert times == {path.name: path.stat().st_mtime_ns for path in small_study.iterdir()}


def test_a_method_can_be_forgotten(small_study, monkeypatch):
    folder = small_study / "out-quick" / "units"
    folder.mkdir(parents=True)
    for name in ("DP-CD", "DP-Frank–Wolfe"):
        (folder / Unit(SMALL, name, 3.0, declared=False).name).write_text("stored")

    def stop(*arguments):
        raise ValueError("far enough")

    monkeypatch.setattr(compare, "compare", stop)
    result = run("--quick", "--out", small_study / "out", "--epsilon", 3, "--again", "DP-CD")
    assert "far enough" in result.output
    assert [path.name for path in folder.iterdir()] == [Unit(SMALL, "DP-Frank–Wolfe", 3.0, declared=False).name]


@pytest.mark.parametrize(("flags", "declared"), [(["--declared"], True), (["--undeclared"], False)])
def test_one_path_alone(small_study, flags, declared):
    result = run("--quick", "--out", small_study / "out", "--epsilon", 3, *flags)
    assert result.exit_code == 0, result.output
    names = "nothing declared", "smoothness declared"
    assert [name in result.output for name in names] == [not declared, declared]
    folder = small_study / "out-quick"
    page = (folder / "README.md").read_text()
    assert f"`dpcd compare {flags[0]} --quick`" in page
    assert [f"Lost, {name}" in page for name in names] == [not declared, declared]
    rows = csv.DictReader((folder / "table.csv").read_text().splitlines())
    assert {row["declared"] for row in rows} == {str(declared)}


@pytest.mark.parametrize("declared", [False, True])
def test_with_nothing_declared_a_fit_learns_the_smoothness(monkeypatch, declared):
    assumed = []
    keep = DPGeneralizedLinearModel.fit

    def fit_and_look(self, X, y):
        keep(self, X, y)
        assumed.append("smoothness constants, declared" in self.privacy_.assumptions)

    monkeypatch.setattr(DPGeneralizedLinearModel, "fit", fit_and_look)
    fit(SMALL.load(), Setting(DPBlockCD(), 3.0), 0, declared)
    assert assumed == [declared]


def test_several_problems(small_study):
    result = run("--quick", "--out", small_study / "out", "--problem", "all")
    assert result.exit_code == 0, result.output
    assert (small_study / "out-quick" / "figure-others.png").is_file()
    assert not (small_study / "out-quick" / "figure-paper.png").exists()
    page = (small_study / "out-quick" / "README.md").read_text()
    assert page.count("| correlated, 0.9k × 3, logistic | DP-CD ") == 2
    assert page.index("Lost, nothing declared") < page.index("Lost, smoothness declared")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--problem", "nonsense"], "there is no problem nonsense"),
        (["--again", "nonsense"], "there is no method nonsense"),
        (["--epsilon", "-1"], "epsilon"),
        (["--data", "nowhere.csv"], "there is no file nowhere.csv"),
        (["--data", __file__], "--target"),
        (["--data", __file__, "--target", "y", "--loss", "absolute"], "squared or logistic"),
        (["--data", __file__, "--target", "y", "--penalty", "l0"], "l1 or l2"),
    ],
)
def test_wrong_requests_are_refused_in_words(arguments, message, tmp_path):
    result = run(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "out").exists()


class TestUserTables:
    @pytest.fixture
    def path(self, tmp_path, rng):
        n = 300
        color = rng.choice(["red", "green", "blue"], size=n)
        x = rng.normal(size=n)
        price = 7.0 + 2.0 * x + (color == "red") + 0.1 * rng.normal(size=n)
        path = tmp_path / "houses.csv"
        lines = [f"{x},{c},{p},{'yes' if p > 7 else 'no'}" for x, c, p in zip(x, color, price, strict=True)]
        path.write_text("\n".join(["x,color,price,sold", *lines]) + "\n")
        return path

    def test_text_becomes_columns_and_the_loss_follows_the_target(self, path):
        X, y, loss = FromFile(path, "price").read()
        # x, three colours, and the two values of sold
        assert X.shape == (300, 6)
        np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(X.std(axis=0), 1.0)
        assert loss == Squared()
        assert abs(y.mean()) < 1e-12
        X, y, loss = FromFile(path, "sold", standardize=False).read()
        assert isinstance(loss, Logistic)
        assert set(y) == {-1.0, 1.0}
        assert set(X[:, -1]) == {0.0, 1.0}
        instance = FromFile(path, "price", penalty="l1", alpha=0.05).load()
        assert instance.penalty == L1(0.05)
        assert instance.best < 0.1 * instance.objective(np.zeros(7))

    def test_the_intercept_is_fitted_without_a_penalty(self, path):
        instance = FromFile(path, "price", alpha=10.0, standardize=False).load()
        np.testing.assert_array_equal(instance.X[:, -1], 1.0)
        assert instance.features.shape == (300, 6)
        constant = np.append(np.zeros(6), instance.y.mean())
        assert instance.best <= instance.objective(constant) < 0.1 * instance.objective(np.zeros(7))
        assert fit(instance, Setting(DPBlockCD(), math.inf), 0, declared=True) == pytest.approx(instance.best, rel=1e-6)

    def test_other_contents_or_use_are_other_problems(self, path):
        first = FromFile(path, "price").key
        assert FromFile(path, "price", alpha=0.1).key != first
        path.write_text(path.read_text() + "0.0,red,1.0,no\n")
        assert FromFile(path, "price").key != first

    def test_what_cannot_be_is_refused(self, path):
        with pytest.raises(ValueError, match="no column 'cost' to predict: its columns are x, color, price, sold"):
            FromFile(path, "cost").read()
        with pytest.raises(ValueError, match="needs two classes, and 'color' has 3"):
            FromFile(path, "color", loss="logistic").read()
        with pytest.raises(ValueError, match="needs a numeric target, and 'color' is not"):
            FromFile(path, "color").read()
        path.write_text(path.read_text() + ",red,1.0,no\n")
        with pytest.raises(ValueError, match="missing values in x"):
            FromFile(path, "price").read()

    def test_a_study_of_the_users_data_warns(self, path, small_study):
        result = run("--quick", "--out", small_study / "out", "--data", path, "--target", "price")
        assert result.exit_code == 0, result.output
        assert result.output.startswith("Not private:")
        assert "houses.csv, price" in result.output


class TestTuning:
    def test_chooses_by_runs_that_do_not_judge(self, monkeypatch):
        seen = []

        def fit(problem, setting, random_state, declared):
            seen.append((setting.solver.n_passes, random_state))
            return problem.best * (1.0 + abs(setting.solver.n_passes - 7))

        candidates = [Setting(DPCD(n_passes=passes), 1.0) for passes in range(1, 21)]
        monkeypatch.setattr(compare, "fit", fit)
        monkeypatch.setattr(compare, "METHODS", (Method("some", lambda problem, epsilon: candidates, tuned=True),))
        effort = Effort(4, ((1, 1.0), (2, 0.25), (3, 0.1)))
        result = json.loads(compare.measure(Unit(SMALL, "some", 1.0, declared=True), effort, 0))
        assert "n_passes=7," in result["setting"]
        assert result["tried"] == 20
        judging = {seed for _, seed in seen[-4:]}
        assert len(judging) == 4
        tuning = seen[:-4]
        assert len(tuning) == 20 + 2 * 5 + 3 * 2
        assert not judging & {seed for _, seed in tuning}
        assert len({seed for _, seed in tuning[:20]}) == 1, "settings are compared on equal luck"

    def test_methods_are_judged_on_the_same_seeds(self, monkeypatch):
        seeds = {}

        def fit(problem, setting, random_state, declared):
            seeds.setdefault((name, declared), []).append(random_state)
            return 1.0

        monkeypatch.setattr(compare, "fit", fit)
        for name, declared in product(("DP-CD", "DP-GCD"), (False, True)):
            compare.measure(Unit(SMALL, name, 1.0, declared), QUICK, 0)
        assert len(seeds) == 4
        (same,) = set(map(tuple, seeds.values()))
        assert len(set(same)) == 3

    def test_a_setting_that_the_budget_forbids_counts_as_diverged(self):
        problem = SMALL.load()
        setting = Setting(DPCD(n_passes=50, clip=1.0, noise_multiplier=0.1), 1.0)
        assert compare.fit(problem, setting, 0, declared=True) == math.inf
        assert compare.fit(problem, Setting(setting.solver, math.inf), 0, declared=True) < math.inf


def test_every_method_gives_settings_or_does_not_apply(monkeypatch):
    monkeypatch.setattr(methods, "_numerical_multiplier", lambda *arguments: 2.0)
    names = [method.name for method in METHODS]
    assert len(set(names)) == len(names)
    regression, sparse = SMALL.load(), Simulated("sparse", 300, 40, Squared()).load()
    for each in METHODS:
        for problem in (regression, sparse):
            settings = methods.applicable(each, problem, 1.0)
            assert each.tuned or len(settings) <= 1
    assert methods.applicable(method("DP-SCD, tuned"), regression, 1.0)
    assert not methods.applicable(method("DP-SCD, tuned"), sparse, 1.0), "it needs an l2 penalty"


def test_batches_get_the_tightest_noise():
    from dpcd.privacy import PrivacyBudget
    from dpcd.privacy.rivals.sampling import FixedSize, planned_order, sampled_noise_multiplier

    n, size, count, epsilon, delta = 10_000, 100, 500, 0.5, 1e-8
    ours = methods._numerical_multiplier(size / n, count, epsilon, delta)
    sampling = FixedSize(size, n)
    budget = PrivacyBudget(epsilon, delta, planned_order(sampling, epsilon, delta, count, 5))
    assert 0.8 < ours / sampled_noise_multiplier(sampling, budget, count, 5) < 1.0
    # No accounting can ask for less than the pair (1 − q)N(0) + qN(±½), which these batches may well come to, does; for
    # much noise that is a Gaussian of μ = q√count/z.
    from dpcd.privacy import noise_multiplier

    assert ours >= 0.99 * size / n * math.sqrt(count) * noise_multiplier(epsilon, delta, 1)


def test_verdicts_name_what_falls_short():
    def row(method, epsilon, mean, worst):
        return Row(SMALL.key, False, method, epsilon, mean, worst, mean, worst, 1.0, 2.0, 0.1, 1, "")

    rows = [
        row("auto", 1.0, 0.1, 0.2),
        row("DP-CD", 1.0, 0.04, 0.2),
        row("DP-SGD, tuned", 1.0, 0.2, 0.2),
        row("auto", 0.1, 0.9, 1.6),
        row("DP-CD", 0.1, 0.8, 0.9),
        row("DP-SGD, tuned", 0.1, 0.5, math.inf),
    ]
    text = methods_report.verdicts(rows, [SMALL])
    behind, wild, beaten, ratios = text.splitlines()
    assert "in 1 of 2 cells; not in: correlated, 1k × 3, squared at ε = 1 (0.10, DP-CD 0.040)." in behind
    assert "in 1 of 2 cells; not in: correlated, 1k × 3, squared at ε = 0.1 (1.6)." in wild
    assert "in 1 of 2 cells; not in: correlated, 1k × 3, squared at ε = 0.1 (0.90, DP-SGD 0.50)." in beaten
    assert ratios.endswith("geometric mean: 2.50 at ε = 1, 1.80 at ε = 0.1.")
    assert methods_report.verdicts(rows[1:3], [SMALL]) == ""
    table = methods_report.table([row for row in rows if row.epsilon == 0.1])
    assert "| DP-SGD, tuned | **0.50** (∞) |" in table
    assert "auto × 2.5" in methods_report.summary(rows, [SMALL])


def test_penalty_of_logistic_problems_reaches_the_classifier():
    problem = Simulated("correlated", 900, 3, Logistic()).load()
    assert isinstance(problem.penalty, L2)
    value = compare.fit(problem, Setting(DPCD(n_passes=200, step_size=1.0, clip=100.0), math.inf), 0, True)
    assert value == pytest.approx(problem.best, rel=1e-6)
