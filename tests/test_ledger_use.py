"""The ledger in use: by estimators, by processes side by side, and on the command line."""

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from typer.testing import CliRunner

import ledger_worker
from dpcd import BudgetExceeded, DPLasso, DPLogisticRegression, DPRidge
from dpcd.cli import app
from dpcd.privacy import Ledger, LedgerError, PrivacyBudget, PrivacyCost
from dpcd.solvers import DPCD, DPSGD
from test_ledger import BUDGET, CURVE, ORDER, RELATION, charge, execute


class TestEstimators:
    @pytest.fixture
    def data(self, rng):
        X = rng.normal(size=(400, 2))
        return X, X @ [1.0, -1.0] + 0.1 * rng.normal(size=400)

    @pytest.fixture
    def settings(self, tmp_path):
        """Budget for two fits."""
        url = f"sqlite:///{tmp_path}/two.db"
        fit = PrivacyBudget(1.0, 1e-6)
        Ledger(url).create("patients", PrivacyBudget((2 * fit.as_gaussian()).epsilon(1e-6), 1e-6))
        # Without bounds and passes a fit of so few records would not spend all that it may.
        spending = {"solver": DPCD(n_passes=2), "feature_bounds": (-3, 3), "target_bounds": (-5, 5)}
        return {"epsilon": 1.0, "delta": 1e-6, "ledger": url, "dataset": "patients", **spending}

    def assert_two_fits(self, settings):
        standing = Ledger(settings["ledger"]).standing("patients")
        assert standing.budget.admits(standing.spent)
        one_more = standing.spent + PrivacyBudget(1.0, 1e-6).as_gaussian()
        assert not standing.budget.admits(one_more)
        return standing

    def test_fits_and_clones_share_the_budget(self, data, settings):
        X, y = data
        model = DPRidge(**settings)
        statement = model.fit(X, y).privacy_
        assert "charged to dataset 'patients' of a ledger" in statement.assumptions
        assert "charged to dataset 'patients' of a ledger" in str(statement)
        assert Ledger(settings["ledger"]).standing("patients").spent == statement.cost
        assert statement.epsilon == pytest.approx(1.0, rel=1e-4)
        other = clone(model).set_params(solver=DPCD(n_passes=3)).fit(X, y)
        total = statement.cost + other.privacy_.cost
        assert Ledger(settings["ledger"]).standing("patients").spent.mu_squared == pytest.approx(total.mu_squared)
        classifier = DPLogisticRegression(delta=1e-6, ledger=settings["ledger"], dataset="patients")
        for third, target in ((model, y), (clone(model), y), (classifier, y > 0)):
            with pytest.raises(BudgetExceeded, match="a fit with epsilon = 1 and delta = 1e-06 would bring"):
                third.fit(X, target)
        assert self.assert_two_fits(settings).spent.mu_squared == pytest.approx(total.mu_squared)

    def test_a_grid_search_with_budget_for_two_fits_stops_after_two(self, data, settings):
        X, y = data
        search = GridSearchCV(DPRidge(**settings), {"alpha": [0.1, 1.0]}, cv=5, error_score="raise")
        with pytest.raises(BudgetExceeded):
            search.fit(X, y)
        self.assert_two_fits(settings)

    def test_a_grid_search_that_swallows_errors_gets_two_fits_too(self, data, settings):
        X, y = data
        search = GridSearchCV(DPRidge(**settings), {"alpha": [0.1, 1.0]}, cv=5, refit=False)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            search.fit(X, y)
        assert "8 fits failed out of a total of 10" in str(said[0].message)
        self.assert_two_fits(settings)

    def test_pipelines_spend_from_it_too(self, data, settings):
        X, y = data
        pipeline = make_pipeline(FunctionTransformer(), DPLasso(**settings))
        pipeline.fit(X, y)
        pipeline.fit(X, y)
        with pytest.raises(BudgetExceeded):
            pipeline.fit(X, y)

    def test_batches_are_planned_for_the_ledgers_order(self, data, tmp_path):
        url = f"sqlite:///{tmp_path}/batches.db"
        Ledger(url).create("patients", PrivacyBudget(1.0, 1e-6, ORDER))
        solver = DPSGD(n_passes=2, batch_size=40)
        bounds = {"feature_bounds": (-3, 3), "target_bounds": (-5, 5)}
        model = DPRidge(epsilon=1.0, delta=1e-6, solver=solver, ledger=url, dataset="patients", **bounds).fit(*data)
        standing = Ledger(url).standing("patients")
        assert model.privacy_.order == ORDER
        assert standing.spent == model.privacy_.cost
        assert 0.99 < standing.epsilon_spent <= 1.0

    @pytest.mark.slow
    def test_workers_spend_from_it_too(self, data, settings):
        X, y = data
        # Two that begin at the same time may both find room for one, and then run out of it half way.
        with pytest.warns(match="[89] fits failed out of a total of 10"):
            cross_validate(DPRidge(**settings), X, y, cv=10, n_jobs=4)
        standing = self.assert_two_fits(settings)
        assert standing.n_charges >= 2

    @pytest.mark.parametrize(
        ("parameters", "error", "message"),
        [
            ({"dataset": None}, ValueError, "give both or neither"),
            ({"ledger": None}, ValueError, "give both or neither"),
            ({"ledger": "ledger.db"}, ValueError, r"named as in 'sqlite:///ledger\.db'"),
            ({"ledger": "sqlite:////no/where.db"}, LedgerError, "there is no ledger /no/where.db"),
            ({"dataset": "patience"}, LedgerError, "no dataset 'patience'"),
            ({"random_state": 0}, ValueError, "seeded noise is not"),
            ({"epsilon": math.inf}, BudgetExceeded, "to epsilon = inf"),
            ({"epsilon": 5.0}, BudgetExceeded, "one more fit may ask for about epsilon = 1"),
        ],
    )
    def test_what_is_wrong_is_said_before_anything_is_charged(self, data, settings, parameters, error, message):
        with pytest.raises(error, match=message):
            DPRidge(**settings | parameters).fit(*data)
        assert Ledger(settings["ledger"]).standing("patients").n_charges == 0


class TestProcesses:
    @pytest.fixture
    def folder(self):
        """One that a user without privileges can write, which pytest's own is not."""
        with tempfile.TemporaryDirectory() as name:
            os.chmod(name, 0o777)
            witnesses = Path(name) / "witnesses"
            witnesses.mkdir(mode=0o777)
            os.chmod(witnesses, 0o777)
            yield Path(name)

    def create(self, folder, capacity):
        """A budget for a number of charges, open to all."""
        ledger = Ledger(f"sqlite:///{folder}/ledger.db")
        ledger.create("patients", BUDGET)
        os.chmod(ledger.path, 0o666)
        return f"sqlite:///{folder}/ledger.db", BUDGET.gaussian_room() / (capacity + 0.5)

    def test_together_they_spend_the_budget_and_no_more(self, folder):
        url, mu_squared = self.create(folder, capacity=60)
        running = [ledger_worker.start(url, "patients", mu_squared, folder / "witnesses") for _ in range(4)]
        for process in running:
            process.join(30)
            assert process.exitcode == 0
            process.close()
        n_charges, n_witnessed = ledger_worker.check_against_witnesses(url, "patients", folder / "witnesses")
        assert n_charges == n_witnessed == 60

    def test_whoever_is_killed_leaves_an_honest_ledger(self, folder):
        url, mu_squared = self.create(folder, capacity=1e6)
        killed = ledger_worker.hammer(url, "patients", mu_squared, folder / "witnesses", 3, 1.5, seed=0)
        assert killed > 3
        n_charges, _ = ledger_worker.check_against_witnesses(url, "patients", folder / "witnesses")
        assert n_charges > 0
        assert execute(Ledger(url), "PRAGMA integrity_check") == [("ok",)]
        charge(Ledger(url))

    @staticmethod
    def in_a_process(target, *args):
        process = ledger_worker.processes.Process(target=target, args=args)
        process.start()
        process.join(30)
        assert process.exitcode == 0
        process.close()

    def test_read_only_half_way(self, folder):
        url, _ = self.create(folder, capacity=100)
        path = folder / "ledger.db"
        charge(Ledger(url))
        os.chmod(path, 0o444)
        self.in_a_process(ledger_worker.meet_read_only, url, "patients", str(folder / "message"))
        message, n_charges = (folder / "message").read_text().splitlines()
        assert "it cannot be written: make the file, its folder, and ledger.db-wal and ledger.db-shm" in message
        assert n_charges == "1"
        for file in folder.glob("ledger.db*"):
            os.chmod(file, 0o666)
        charge(Ledger(url))
        assert Ledger(url).standing("patients").n_charges == 2

    def test_a_disk_that_fills_up(self, folder):
        url, _ = self.create(folder, capacity=100)
        self.in_a_process(ledger_worker.fail_to_grow, url, "patients", str(folder / "witnesses"))
        assert re.search("the disk (is full|did not read or write it)", (folder / "message").read_text())
        n_charges, n_witnessed = ledger_worker.check_against_witnesses(url, "patients", folder / "witnesses")
        assert 1 < n_witnessed <= n_charges < 1000
        charge(Ledger(url))
        assert execute(Ledger(url), "PRAGMA integrity_check") == [("ok",)]

    @pytest.mark.slow
    def test_hammered_for_half_a_minute(self, folder):
        """8 processes, killed at random; the file is read-only for a while; then a budget that runs out."""
        url, mu_squared = self.create(folder, capacity=1e6)

        def read_only_for_a_while():
            os.chmod(folder / "ledger.db", 0o444)
            time.sleep(3.0)
            for file in folder.glob("ledger.db*"):
                os.chmod(file, 0o666)

        witnesses = folder / "witnesses"
        killed = ledger_worker.hammer(url, "patients", mu_squared, witnesses, 8, 25.0, 1, read_only_for_a_while)
        assert killed > 50
        n_charges, n_witnessed = ledger_worker.check_against_witnesses(url, "patients", witnesses)
        assert n_witnessed > 300
        # Now one that runs out, with all of them after the last charge.
        small = BUDGET.gaussian_room() / 200.5
        Ledger(url).create("small", BUDGET)
        (folder / "others").mkdir(mode=0o777)
        os.chmod(folder / "others", 0o777)
        ledger_worker.hammer(url, "small", small, folder / "others", 8, 10.0, seed=2)
        n_small, _ = ledger_worker.check_against_witnesses(url, "small", folder / "others")
        assert n_small == 200
        assert Ledger(url).standing("patients").n_charges == n_charges
        assert execute(Ledger(url), "PRAGMA integrity_check") == [("ok",)]

    @pytest.mark.slow
    def test_a_disk_that_is_really_full(self, folder):
        """A file system of 2 MiB of its own."""
        disk = folder / "disk"
        disk.mkdir()
        command = 'mount -t tmpfs -o size=2m none "$1" && exec "$2" "$3" "$1" "$4"'
        values = [disk, sys.executable, ledger_worker.__file__, folder / "witnesses"]
        namespace = ["unshare", "--map-root-user", "--mount"]
        if not shutil.which("unshare") or subprocess.run([*namespace, "true"], capture_output=True).returncode:
            pytest.skip("this system does not let us mount a file system")
        done = subprocess.run([*namespace, "sh", "-c", command, "sh", *values], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[0]) > 10


class TestCommandLine:
    @pytest.fixture
    def run(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "120")

        def run(*arguments):
            return CliRunner().invoke(app, ["ledger", *arguments])

        return run

    def test_create_show_history(self, run, tmp_path):
        created = run("create", "ledger.db", "--dataset", "patients [x]", "--epsilon", "2", "--delta", "1e-6")
        assert created.exit_code == 0
        url = re.search(r"ledger='(.*)', dataset='patients \[x\]'", created.output).group(1)
        assert url == f"sqlite:///{tmp_path}/ledger.db"
        ledger = Ledger(url)
        ledger.charge("patients [x]", PrivacyCost.gaussian(8.0), "second moments [y]", RELATION, 7)
        for address in ("ledger.db", url, str(tmp_path / "ledger.db")):
            shown = run("show", address)
            assert shown.exit_code == 0
            line = next(line for line in shown.output.splitlines() if "patients [x]" in line)
            cells = [cell.strip() for cell in line.strip("│ ").split("│")]
            assert cells[1:3] == ["2", "1e-06"]
            assert float(cells[3]) == pytest.approx(ledger.standing("patients [x]").epsilon_spent, rel=1e-3)
            assert float(cells[4]) <= ledger.standing("patients [x]").epsilon_left
            assert cells[5] == "1"
        listed = run("history", url, "--dataset", "patients [x]")
        assert listed.exit_code == 0
        assert "second moments [y]" in listed.output
        assert str(os.getpid()) in listed.output

    def test_what_the_readme_says(self, run):
        text = (Path(__file__).parents[1] / "README.md").read_text()
        (command,) = re.findall(r"`(dpcd ledger create .*?)`", text)
        assert run(*shlex.split(command)[2:]).exit_code == 0
        (example,) = re.findall(r"^```python\n(model = .*?ledger=.*?)```", text, flags=re.MULTILINE | re.DOTALL)
        X = np.random.default_rng(0).normal(size=(20_000, 3))
        namespace = {"DPLogisticRegression": DPLogisticRegression, "X": X, "y": X[:, 0] > 0}
        exec(example, namespace)
        standing = Ledger("sqlite:///ledger.db").standing("patients-2026")
        assert standing.spent == namespace["model"].privacy_.cost
        fit = PrivacyBudget(1.0, namespace["model"].privacy_.delta).as_gaussian()
        assert "pays for five such fits" in text
        assert standing.budget.admits(5 * fit)
        assert not standing.budget.admits(6 * fit)

    def test_many_datasets(self, run):
        for name in ("one", "two"):
            assert run("create", "ledger.db", "--dataset", name, "--epsilon", "1", "--delta", "1e-6").exit_code == 0
        assert run("show", "ledger.db").output.count("1e-06") == 2
        assert run("show", "ledger.db", "--dataset", "two").output.count("1e-06") == 1

    def test_batches(self, run):
        run("create", "ledger.db", "--dataset", "sampled", "--epsilon", "1", "--delta", "1e-6", "--batches")
        ledger = Ledger("sqlite:///ledger.db")
        assert 2.0 < ledger.standing("sampled").budget.order < 1000.0
        ledger.charge("sampled", CURVE, "a probe", RELATION)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["show", "ledger.db"], "there is no ledger"),
            (["show", "postgres://ledger"], "named as in 'sqlite:///ledger.db'"),
            (["history", "ledger.db", "--dataset", "d"], "there is no ledger"),
            (["create", "ledger.db", "--dataset", "d", "--epsilon", "-1", "--delta", "1e-6"], "epsilon must be"),
            (["create", "ledger.db", "--dataset", "d", "--epsilon", "inf", "--delta", "1e-6"], "finite epsilon"),
            (["create", "ledger.db", "--dataset", "d", "--epsilon", "1", "--delta", "2"], "delta must lie"),
            (["create", "no/where.db", "--dataset", "d", "--epsilon", "1", "--delta", "1e-6"], "the folder must exist"),
        ],
    )
    def test_errors_are_one_message_and_status_1(self, run, arguments, message):
        result = run(*arguments)
        assert result.exit_code == 1
        assert message in result.stderr
        assert "Traceback" not in result.output + result.stderr
