import csv
import gzip
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import dpcd
from dpcd import cli, datasets
from dpcd.experiments import report, reproduce, runs, settings
from dpcd.experiments.curves import bounds_and_errors, error_against_epsilon, tuned_path
from dpcd.experiments.runs import Cell, Grid, Unit
from dpcd.losses import Logistic
from dpcd.penalties import L1, L2

TINY = Grid((2, 5), np.array([0.1, 1.0]), np.array([1e-3, 1e-1]), np.array([0.1, 1.0, 10.0]), 2)


@pytest.fixture
def small_problems(monkeypatch):
    """The five problems' names on small data of the same kind."""

    def table(loss, scales, n=300):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(n, len(scales))) * scales
        y = X @ (rng.normal(size=len(scales)) / scales) + 0.3 * rng.normal(size=n)
        y = np.where(y > 0, 1.0, -1.0) if isinstance(loss, Logistic) else y
        return lambda: datasets.Dataset(X, y, tuple(map(str, range(len(scales)))))

    raw, std, wide = np.array([10.0, 1.0, 0.1]), np.ones(3), np.ones(20)
    small = {}
    for key, problem in settings.PROBLEMS.items():
        scales = raw if key.endswith("raw") else wide if key == "sparse-lasso" else std
        small[key] = settings.PaperProblem(
            problem.title,
            table(problem.loss, scales),
            problem.standardize,
            problem.loss,
            (lambda n: L2(0.1)) if isinstance(problem.loss, Logistic) else (lambda n: L1(0.05)),
            problem.epsilon,
        )
    monkeypatch.setattr(settings, "PROBLEMS", small)
    settings.instance.cache_clear()
    yield
    settings.instance.cache_clear()


def test_sparse_lasso_is_the_pinned_surrogate():
    data = settings.instance("sparse-lasso")
    zero = np.mean(data.y**2) / 2
    assert zero == pytest.approx(57349.60, abs=0.01)
    assert data.best == pytest.approx(32946.66, abs=0.01)
    assert data.relative_error(np.zeros(1000)) == pytest.approx(0.740680, abs=1e-6)


@pytest.mark.usefixtures("real_data")
def test_constants_of_the_real_problems():
    data = settings.instance("california-raw")
    assert data.global_smoothness == pytest.approx(3.324e6, rel=1e-3)
    assert data.smoothness.min() == pytest.approx(1.43, abs=0.01)
    assert settings.instance("electricity-std").global_smoothness == pytest.approx(0.6105, abs=1e-4)
    assert data.delta == 1 / 20640**2


@pytest.mark.parametrize(
    ("passes", "california", "electricity", "sparse"), [(2, 25.53, 26.50, 27.19), (50, 127.65, 132.49, 135.93)]
)
def test_calibration_is_the_papers(passes, california, electricity, sparse):
    for (n, p, epsilon), expected in {
        (20640, 8, 1.0): california,
        (45312, 8, 1.0): electricity,
        (1000, 1000, 10.0): sparse,
    }.items():
        ours = dpcd.privacy.noise_multiplier(epsilon, 1 / n**2, passes * p, accounting="renyi")
        assert ours == pytest.approx(expected, abs=0.01)


@pytest.mark.usefixtures("small_problems")
class TestUnits:
    @pytest.mark.parametrize("method", settings.METHODS)
    def test_settings_side_by_side_equal_settings_one_by_one(self, method):
        unit = Unit("electricity-raw", method, 5, 0)
        errors = runs.run_unit(unit, TINY, seed=3)
        steps = TINY.steps(method)
        assert errors.shape == (len(steps), 3)
        alone = Grid((5,), TINY.cd_steps[1:], TINY.sgd_steps[1:], TINY.clips[2:], 1)
        np.testing.assert_allclose(runs.run_unit(unit, alone, seed=3)[-1, 0], errors[-1, 2], rtol=1e-9)

    def test_runs_differ_and_seeds_reproduce(self):
        first, again, other = (
            runs.run_unit(Unit("california-std", "DP-CD", 2, run), TINY, seed) for run, seed in ((0, 1), (0, 1), (1, 1))
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_private_smoothness_is_the_papers_laplace_noise(self, monkeypatch):
        scales = []
        monkeypatch.setattr(
            runs.SeededNoise,
            "laplace",
            lambda self, scale, size: scales.append(scale) or np.zeros(size, dtype=np.int64),
        )
        data = settings.instance("california-raw")
        runs.coordinate_descent(Unit("california-raw", "DP-CD-P", 2, 0), 0.1, 1.0, 0)
        n, p = data.X.shape
        # In units of M_j the noise is that of the paper: 2 b_j p/(n ε') with b_j = (2 max |x_j|)².
        bound = 2.0**40
        ranges = (math.sqrt(2.0) * 2.0 * data.largest) ** 2
        np.testing.assert_allclose(scales[0] / (n * bound) * ranges, 2 * (2 * data.largest) ** 2 * p / (n * 0.1))

    def test_an_interrupted_grid_goes_on(self, tmp_path, monkeypatch):
        ran = []
        monkeypatch.setattr(runs, "ProcessPoolExecutor", _Inline)
        original = runs.run_unit

        def fails_after_ten(unit, grid, seed):
            ran.append(unit)
            if len(ran) == 10:
                raise KeyboardInterrupt
            return original(unit, grid, seed)

        monkeypatch.setattr(runs, "run_unit", fails_after_ten)
        with pytest.raises(KeyboardInterrupt):
            runs.run_grid(TINY, tmp_path, 0, 1)
        assert len(list(tmp_path.iterdir())) == 9
        seen = []
        runs.run_grid(TINY, tmp_path, 0, 1, lambda unit, seconds: seen.append((unit, seconds > 0)))
        everything = runs.units(TINY)
        assert len(everything) == len(seen) == len({unit for unit, _ in seen})
        assert len(ran) == len(everything) + 1, "a finished unit is not run again"
        assert sum(fresh for _, fresh in seen) == len(everything) - 9
        assert not list(tmp_path.glob("*.partial*"))

    def test_everything_from_the_command_line(self, tmp_path, monkeypatch):
        """The whole of `dpcd reproduce`, on small problems, a tiny grid and in this process."""
        monkeypatch.setattr(runs, "ProcessPoolExecutor", _Inline)
        monkeypatch.setattr(runs, "QUICK", TINY)
        monkeypatch.setattr("dpcd.experiments.curves.EPSILONS", (0.5, 5.0))
        few = [p._replace(case=c) for c in ("convex", "strongly convex") for p in _bounds()]
        monkeypatch.setattr(reproduce, "bounds_and_errors", lambda seed, runs: few)
        result = CliRunner().invoke(cli.app, ["reproduce", "--quick", "--output", str(tmp_path / "out"), "--jobs", "1"])
        assert result.exit_code == 0, result.output
        folder = tmp_path / "out-quick"
        page = (folder / "README.md").read_text()
        assert "**A quick look" in page
        assert "0.1458" in page, "the paper's numbers stand beside ours"
        for name in ("figure-1", "figure-2", "figure-3", "figure-epsilon", "figure-bounds"):
            assert (folder / f"{name}.png").stat().st_size > 5_000
            assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        rows = list(csv.DictReader(gzip.decompress((folder / "grid.csv.gz").read_bytes()).decode().splitlines()))
        expected = sum(
            len(problems) * len(TINY.passes) * len(TINY.steps(method)) * 3
            for method, problems in settings.METHODS.items()
        )
        assert len(rows) == expected
        # Twice the same bytes for what does not measure time.
        before = (folder / "grid.csv.gz").read_bytes(), (folder / "figure-1.png").read_bytes()
        assert CliRunner().invoke(cli.app, ["reproduce", "--quick", "--output", str(tmp_path / "out")]).exit_code == 0
        assert before == ((folder / "grid.csv.gz").read_bytes(), (folder / "figure-1.png").read_bytes())

    def test_paths_and_budgets(self):
        cell = Cell("electricity-std", "DP-CD", 5, 0.5, 1.0, 0.0, 0.0)
        path = tuned_path(cell, seed=0, runs=3)
        assert [point.passes for point in path] == list(range(6))
        data = settings.instance("electricity-std")
        assert path[0].mean == pytest.approx(data.relative_error(np.zeros(3)))
        assert path[0].low == path[0].high
        assert path[-1].low <= path[-1].mean <= path[-1].high < path[0].mean
        assert path[-1].seconds > 0
        points = error_against_epsilon([cell], seed=0, runs=3)
        assert [point.epsilon for point in points] == [0.05, 0.1, 0.3, 1.0, 3.0, 10.0]
        assert points[-1].mean < points[0].mean


def _bounds():
    from dpcd.experiments.curves import BoundPoint

    return [
        BoundPoint("convex", v, n, p, 10 / n * p, 1 / n * p, 0.1 / n * p) for v in "np" for n, p in ((10, 5), (20, 9))
    ]


class _Inline:
    """A process pool that runs everything here and now."""

    def __init__(self, jobs, initializer=None, initargs=()):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def shutdown(self, cancel_futures):
        pass

    def submit(self, function, *args):
        from concurrent.futures import Future

        future = Future()
        try:
            future.set_result(function(*args))
        except KeyboardInterrupt as error:
            future.set_exception(error)
            raise
        return future


def test_theory_lies_around_the_measured_error():
    for point in bounds_and_errors(0, runs=3)[:6]:
        assert point.lower < point.measured < point.upper


def test_table_2_marks_the_lowest_and_shows_the_paper():
    best = {
        ("sparse-lasso", "DP-CD", 2): Cell("sparse-lasso", "DP-CD", 2, 1.0, 1.0, 0.25, 0.01),
        ("sparse-lasso", "DP-CD", 5): Cell("sparse-lasso", "DP-CD", 5, 1.0, 1.0, 0.5, 0.01),
    }
    text = report.table_2(best, (2, 5))
    assert "0.2500 ± 1e-02 * | 0.5000 ± 1e-02 |" in text
    assert "*0.2498* | *0.4702*" in text


def test_best_cells_ignore_what_diverged():
    table = [
        Cell("p", "m", 2, 1.0, 1.0, math.nan, 0.0),
        Cell("p", "m", 2, 2.0, 1.0, 0.3, 0.0),
        Cell("p", "m", 2, 3.0, 1.0, 0.1, 0.0),
        Cell("p", "m", 2, 4.0, 1.0, math.inf, 0.0),
    ]
    assert runs.best_cells(table)["p", "m", 2].step == 3.0


def test_missing_data_are_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("DPCD_DATA", str(tmp_path))
    result = CliRunner().invoke(cli.app, ["reproduce", "--output", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "DPCD_DATA" in result.output
    assert not (tmp_path / "out").exists()


def test_version():
    result = CliRunner().invoke(cli.app, ["--version"])
    assert result.output == f"dpcd {dpcd.__version__}\n"
