import doctest
import hashlib
import math
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import closing
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
from dpcd.privacy import (
    Account,
    Columns,
    Curator,
    Ledger,
    LedgerError,
    PrivacyBudget,
    PrivacyCost,
    SecureNoise,
    SeededNoise,
)
from dpcd.privacy import ledger as module
from dpcd.privacy.accounting import ORDERS, gaussian_mu
from dpcd.solvers import DPCD, DPSGD
from test_curator import Probe

RELATION = "replace one record"
BUDGET = PrivacyBudget(1.0, 1e-6)
ORDER = float(ORDERS[np.searchsorted(ORDERS, 20.0)])
CURVE = PrivacyCost(0.0, 0.0, tuple((1e-4 * ORDERS).tolist()))


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    ledger.create("patients", BUDGET)
    return ledger


def charge(ledger, part=0.1, dataset="patients", description="a probe"):
    """A part of the whole budget's μ²."""
    cost = PrivacyCost(part * ledger.standing(dataset).budget.gaussian_room())
    ledger.charge(dataset, cost, description, RELATION, 3)
    return cost


def execute(ledger, statement, *parameters):
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        return connection.execute(statement, parameters).fetchall()


def contents(ledger):
    with closing(sqlite3.connect(ledger.path)) as connection:
        return list(connection.iterdump())


class TestCreation:
    def test_a_new_budget_is_whole(self, ledger):
        standing = ledger.standing("patients")
        assert standing.budget == BUDGET
        assert standing.spent == PrivacyCost()
        assert (standing.n_charges, standing.relation, standing.epsilon_spent) == (0, None, 0.0)
        assert standing.epsilon_left == BUDGET.epsilon
        assert ledger.history("patients") == ()

    def test_datasets_have_budgets_of_their_own(self, ledger):
        ledger.create("clinics", PrivacyBudget(2.0, 1e-7, ORDER))
        assert ledger.datasets() == ("clinics", "patients")
        assert ledger.standing("clinics").budget == PrivacyBudget(2.0, 1e-7, ORDER)
        charge(ledger)
        assert ledger.standing("clinics").n_charges == 0

    def test_a_budget_is_fixed_once(self, ledger):
        before = contents(ledger)
        with pytest.raises(LedgerError, match="'patients' has a budget already"):
            ledger.create("patients", PrivacyBudget(100.0, 1e-3))
        assert contents(ledger) == before

    def test_paths(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Ledger("sqlite:///a ledger?#%.db").create("d", BUDGET)
        assert Ledger(f"sqlite:///{tmp_path}/a ledger?#%.db").datasets() == ("d",)

    @pytest.mark.parametrize(
        "url", ["ledger.db", "sqlite://ledger.db", "sqlite:///", "sqlite:///:memory:", "", None, 3]
    )
    def test_other_addresses_are_refused(self, url):
        with pytest.raises(ValueError, match=r"named as in 'sqlite:///ledger\.db'"):
            Ledger(url)

    @pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[31m", 3, None])
    def test_names_are_text(self, tmp_path, name):
        with pytest.raises(ValueError, match="printable text"):
            Ledger(f"sqlite:///{tmp_path}/ledger.db").create(name, BUDGET)
        assert not list(tmp_path.iterdir())

    def test_a_budget_is_finite(self, tmp_path):
        with pytest.raises(ValueError, match="finite epsilon"):
            Ledger(f"sqlite:///{tmp_path}/ledger.db").create("d", PrivacyBudget(math.inf, 1e-6))

    def test_an_interrupted_creation_leaves_no_ledger(self, tmp_path, monkeypatch):
        ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
        with monkeypatch.context() as patch:
            patch.setattr(module, "_names", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                ledger.create("patients", BUDGET)
        assert ledger.path.stat().st_size == 0
        with pytest.raises(LedgerError, match="is empty, as an interrupted creation leaves it"):
            ledger.datasets()
        ledger.create("patients", BUDGET)
        charge(ledger)

    def test_it_makes_no_ledger_of_somebody_elses_file(self, tmp_path):
        (tmp_path / "notes.txt").write_text("to do: " * 1000)
        with pytest.raises(LedgerError, match="it is not a ledger: check the name"):
            Ledger(f"sqlite:///{tmp_path}/notes.txt").create("d", BUDGET)
        other = Ledger(f"sqlite:///{tmp_path}/other.db")
        execute(other, "CREATE TABLE songs (title TEXT)")
        before = other.path.read_bytes()
        for action in (lambda: other.create("d", BUDGET), other.datasets):
            with pytest.raises(LedgerError, match="a database, but not a ledger"):
                action()
        assert other.path.read_bytes() == before

    def test_no_folder(self, tmp_path):
        with pytest.raises(LedgerError, match="the folder must exist"):
            Ledger(f"sqlite:///{tmp_path}/nowhere/ledger.db").create("d", BUDGET)

    def test_journals(self, ledger, tmp_path):
        assert execute(ledger, "PRAGMA journal_mode") == [("wal",)]
        shared = Ledger(f"sqlite:///{tmp_path}/shared.db")
        shared.create("patients", BUDGET, network_folder=True)
        charge(shared)
        assert execute(shared, "PRAGMA journal_mode") == [("delete",)]


class TestCharges:
    def test_costs_add_exactly(self, tmp_path, rng):
        ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
        ledger.create("patients", PrivacyBudget(3.0, 1e-6, ORDER))
        costs = [PrivacyCost.gaussian(z) for z in rng.uniform(20.0, 60.0, 10).tolist()] + [CURVE, CURVE]
        costs += [PrivacyCost.pure_dp(0.01), PrivacyCost(0.0, 1e-9, tuple((1e-3 * np.sqrt(ORDERS)).tolist()))]
        rng.shuffle(costs)
        with ledger:
            for cost in costs:
                ledger.charge("patients", cost, "a probe", RELATION)
        total = sum(costs, PrivacyCost())
        standing = ledger.standing("patients")
        assert standing.spent == total
        assert standing.epsilon_spent == total.epsilon(1e-6, ORDER)
        assert [entry.cost for entry in ledger.history("patients")] == costs

    def test_curves_may_be_infinite_at_some_orders(self, tmp_path):
        ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
        ledger.create("patients", PrivacyBudget(3.0, 1e-6, ORDER))
        cost = PrivacyCost(0.0, 0.0, tuple(np.where(ORDERS > 1000.0, np.inf, 1e-3).tolist()))
        ledger.charge("patients", cost, "a probe", RELATION)
        assert ledger.standing("patients").spent == cost

    def test_what_is_written(self, ledger):
        cost = charge(ledger)
        (entry,) = ledger.history("patients")
        assert (entry.description, entry.releases, entry.relation) == ("a probe", 3, RELATION)
        assert entry.cost == cost
        assert entry.process == os.getpid()
        assert re.match(r"\d+\.\d+", entry.library)
        assert abs(entry.time.timestamp() - time.time()) < 60
        assert entry.time.utcoffset().total_seconds() == 0

    def test_what_does_not_fit_is_refused_and_not_written(self, ledger):
        charge(ledger, 0.6)
        before = contents(ledger)
        with pytest.raises(BudgetExceeded) as refusal:
            charge(ledger, 0.5, description="one probe too many")
        assert contents(ledger) == before
        message = str(refusal.value)
        assert re.search(
            r"one probe too many would bring the total of dataset 'patients' to epsilon = 1\.0\d* at delta = 1e-06, "
            r"and its budget is epsilon = 1: one more fit may ask for about epsilon = 0\.6\d* at this delta",
            message,
        ), message
        assert "Ask for less" in message
        rest = gaussian_mu(BUDGET.epsilon, BUDGET.delta) ** 2 - ledger.standing("patients").spent.mu_squared
        ledger.charge("patients", PrivacyCost(rest * (1.0 - 1e-12)), "the rest", RELATION)
        with pytest.raises(BudgetExceeded, match="nothing is left of it"):
            charge(ledger, 0.1)
        with pytest.raises(BudgetExceeded, match="to epsilon = inf"):
            ledger.charge("patients", PrivacyCost.gaussian(0.0), "a probe", RELATION)

    @pytest.mark.parametrize("part", [0.01, 0.5, 0.95, 0.9999])
    def test_what_is_left_can_be_spent_and_no_more(self, ledger, part):
        charge(ledger, part)
        left = ledger.standing("patients").epsilon_left
        assert 0.0 < left < 1.0
        account = Account(ledger, "patients")
        account.require(PrivacyBudget(left, 1e-6))
        with pytest.raises(BudgetExceeded, match="a fit with epsilon"):
            account.require(PrivacyBudget(left * 1.001, 1e-6))
        ledger.charge("patients", PrivacyBudget(left, 1e-6).as_gaussian(), "the rest", RELATION)

    def test_neighbouring_relations_do_not_mix(self, ledger):
        charge(ledger)
        before = contents(ledger)
        with pytest.raises(LedgerError, match=r"neighbours that add or remove one record.*do not add up"):
            ledger.charge("patients", PrivacyCost(1e-6), "a probe", "add or remove one record")
        assert contents(ledger) == before

    def test_secret_batches_need_a_budget_for_them(self, ledger):
        with pytest.raises(LedgerError, match=r"draws secret batches.*--batches"):
            ledger.charge("patients", CURVE, "a probe", RELATION)
        with pytest.raises(LedgerError, match="draws secret batches"):
            Account(ledger, "patients").require(PrivacyBudget(0.1, 1e-6, ORDER))
        assert ledger.history("patients") == ()

    def test_a_charge_is_durable_and_seen_by_others_when_it_returns(self, ledger):
        with ledger:
            # EXTRA, which is FULL for a write-ahead log
            assert ledger._held.execute("PRAGMA synchronous").fetchone() == (3,)
            charge(ledger)
            assert Ledger(f"sqlite:///{ledger.path}").standing("patients").n_charges == 1
        assert sorted(path.name for path in ledger.path.parent.iterdir()) == ["ledger.db"]

    def test_a_ledger_is_opened_once(self, ledger):
        with ledger, pytest.raises(RuntimeError, match="open already"):
            ledger.__enter__()

    def test_the_example_in_the_documentation(self):
        assert doctest.testmod(module).failed == 0

    def test_threads_do_not_share_the_connection(self, ledger):
        from concurrent.futures import ThreadPoolExecutor

        with ledger, ThreadPoolExecutor(4) as pool:
            charge(ledger)
            list(pool.map(lambda _: charge(ledger, 0.01), range(8)))
        assert ledger.standing("patients").n_charges == 9


class TestUnusableFiles:
    def test_missing(self, tmp_path):
        ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
        for action in (ledger.datasets, ledger.__enter__, lambda: ledger.standing("patients")):
            with pytest.raises(LedgerError, match=r"there is no ledger .*ledger\.db: make it with dpcd ledger create"):
                action()
        assert not list(tmp_path.iterdir())

    def test_unknown_dataset(self, ledger):
        for action in (ledger.standing, ledger.history, lambda name: charge(ledger, dataset=name)):
            with pytest.raises(LedgerError, match="no dataset 'patience'; it has 'patients'"):
                action("patience")

    @pytest.mark.parametrize(
        "edit",
        [
            "UPDATE datasets SET mu_squared = mu_squared / 2",
            "UPDATE datasets SET charges = 1",
            "DELETE FROM charges WHERE number = 1",
            "UPDATE charges SET mu_squared = mu_squared * 2 WHERE number = 2",
            "UPDATE charges SET mu_squared = -1 WHERE number = 2",
            "UPDATE charges SET mu_squared = 'much' WHERE number = 2",
            "UPDATE datasets SET renyi = x'00'",
        ],
    )
    def test_edited(self, ledger, edit):
        charge(ledger)
        charge(ledger)
        execute(ledger, edit)
        with pytest.raises(LedgerError, match="damaged or was edited"):
            ledger.standing("patients")
        with pytest.raises(LedgerError, match="damaged or was edited"):
            Account(ledger, "patients").require(PrivacyBudget(0.1, 1e-6))

    def test_overwritten(self, ledger):
        for _ in range(20):
            charge(ledger, 0.001)
        with open(ledger.path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xa5" * 20_000)
        with pytest.raises(LedgerError, match=r"it is damaged|it is not a ledger|damaged or was edited"):
            ledger.standing("patients")

    def test_newer_format(self, ledger):
        execute(ledger, f"PRAGMA user_version = {module.FORMAT + 1}")
        for action in (lambda: charge(ledger), ledger.datasets, lambda: ledger.create("other", BUDGET)):
            with pytest.raises(LedgerError, match=r"newer version of dpcd .*: upgrade dpcd"):
                action()

    def test_older_formats_are_migrated(self, ledger, monkeypatch):
        charge(ledger)
        monkeypatch.setattr(module, "FORMAT", module.FORMAT + 2)
        for k, name in ((2, "owner"), (1, "country")):
            statement = f"ALTER TABLE datasets ADD COLUMN {name} TEXT"
            monkeypatch.setitem(
                module.MIGRATIONS,
                module.FORMAT - k,
                lambda connection, statement=statement: connection.execute(statement),
            )
        assert ledger.standing("patients").n_charges == 1
        assert execute(ledger, "SELECT owner, country FROM datasets") == [(None, None)]
        assert execute(ledger, "PRAGMA user_version") == [(module.FORMAT,)]
        charge(ledger)

    def test_a_failed_migration_changes_nothing(self, ledger, monkeypatch):
        monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)

        def migrate(connection):
            connection.execute("DROP TABLE charges")
            raise ArithmeticError

        monkeypatch.setitem(module.MIGRATIONS, module.FORMAT - 1, migrate)
        with pytest.raises(ArithmeticError):
            charge(ledger)
        assert execute(ledger, "SELECT count(*) FROM charges") == [(0,)]

    def test_the_rényi_orders_belong_to_the_format(self, ledger):
        """If this fails, raise FORMAT and write a migration that carries stored curves over to the new orders."""
        # Platforms may differ in the last digit, and that does not matter.
        digest = hashlib.sha256(" ".join(f"{order:.9g}" for order in ORDERS).encode()).hexdigest()[:16]
        assert (module.FORMAT, digest) == (1, FORMAT_1_ORDERS)
        for other in ("zeroblob(length(value))", "x'00'"):
            execute(ledger, f"UPDATE orders SET value = {other}")
            with pytest.raises(LedgerError, match="at orders that this version of dpcd does not know"):
                ledger.datasets()

    def test_a_ledger_of_format_1_opens(self, tmp_path):
        """Written out, so that no later version forgets it."""
        ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
        with closing(sqlite3.connect(ledger.path)) as connection:
            connection.executescript(FORMAT_1)
            connection.execute("INSERT INTO orders VALUES (?)", (ORDERS.astype("<f8").tobytes(),))
            connection.commit()
        assert ledger.standing("patients").spent == PrivacyCost(0.25, 1e-12)
        charge(ledger, 1e-3)
        assert [entry.description for entry in ledger.history("patients")] == ["first", "second", "a probe"]

    def test_locked_too_long(self, ledger, monkeypatch):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.05)
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerError, match=r"other processes kept it locked for 0\.05 seconds"):
                charge(ledger)
            other.execute("ROLLBACK")
        charge(ledger)

    def test_full(self, ledger, monkeypatch):
        connect = Ledger._connect

        def connect_to_a_full_disk(self, create=False):
            connection = connect(self, create)
            connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
            return connection

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "_connect", connect_to_a_full_disk)
            done = []
            with ledger, pytest.raises(LedgerError, match="the disk is full: make room"):
                done.extend(charge(ledger, 1e-4, description="x" * 500) for _ in range(1000))
        assert ledger.standing("patients").n_charges == len(done)
        charge(ledger)
        assert execute(ledger, "PRAGMA integrity_check") == [("ok",)]


FORMAT_1_ORDERS = "023f73fca445094a"
FORMAT_1 = """
PRAGMA application_id = 1685087076;
PRAGMA user_version = 1;
CREATE TABLE orders (value BLOB NOT NULL);
CREATE TABLE datasets (
    name TEXT PRIMARY KEY, created TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, "order" REAL,
    relation TEXT, charges INTEGER NOT NULL DEFAULT 0, mu_squared REAL NOT NULL DEFAULT 0,
    discretization REAL NOT NULL DEFAULT 0, renyi BLOB NOT NULL DEFAULT x''
);
CREATE TABLE charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT, dataset TEXT NOT NULL REFERENCES datasets (name), time TEXT NOT NULL,
    description TEXT NOT NULL, releases INTEGER, relation TEXT NOT NULL, mu_squared REAL NOT NULL,
    discretization REAL NOT NULL, renyi BLOB NOT NULL, library TEXT NOT NULL, process INTEGER NOT NULL
);
CREATE INDEX charges_of_dataset ON charges (dataset, number);
INSERT INTO datasets VALUES
    ('patients', '2026-01-31T12:00:00.000+00:00', 8.0, 1e-6, NULL, 'replace one record', 2, 0.25, 1e-12, x'');
INSERT INTO charges VALUES
    (1, 'patients', '2026-01-31T12:00:01.000+00:00', 'first', 5, 'replace one record', 0.125, 1e-12, x'', '0.1.0', 7),
    (2, 'patients', '2026-01-31T12:00:02.000+00:00', 'second', NULL, 'replace one record', 0.125, 0, x'', '0.1.0', 7);
"""


class TestCurator:
    @pytest.fixture
    def curator(self, ledger, rng):
        columns = Columns.copy_of(rng.normal(size=(10, 2)), rng.normal(size=10))
        return Curator(columns, PrivacyBudget(0.5, 1e-6), SecureNoise(), Account(ledger, "patients"))

    def test_every_release_is_charged(self, curator, ledger):
        probe = Probe(PrivacyCost(1e-4))
        assert curator.release(probe) == "released"
        assert curator.spent == ledger.standing("patients").spent == probe.cost
        (entry,) = ledger.history("patients")
        assert (entry.description, entry.releases, entry.relation) == ("probe", probe.count, probe.relation)

    def test_the_charge_is_on_disk_before_the_data_are_read(self, curator, ledger):
        class Reader(Probe):
            def run(self, data, noise):
                return ledger.standing("patients").spent

        cost = PrivacyCost(1e-4)
        assert curator.release(Reader(cost)) == cost

    def test_the_curators_own_budget_comes_first(self, curator, ledger):
        probe = Probe(PrivacyCost(2 * curator.gaussian_room))
        with pytest.raises(BudgetExceeded, match=r"the budget is epsilon = 0\.5"):
            curator.release(probe)
        assert ledger.standing("patients").n_charges == 0
        assert not probe.saw_data

    def test_what_the_ledger_refuses_is_charged_nowhere_and_read_by_nobody(self, curator, ledger):
        charge(ledger, 0.95, description="another process")
        probe = Probe(PrivacyCost(0.9 * curator.gaussian_room))
        with pytest.raises(BudgetExceeded, match="total of dataset 'patients'"):
            curator.release(probe)
        assert not probe.saw_data
        assert curator.spent == PrivacyCost()
        assert curator.releases == ()
        assert ledger.standing("patients").n_charges == 1

    def test_what_the_ledger_cannot_record_is_not_read(self, curator, ledger):
        ledger.path.unlink()
        probe = Probe(PrivacyCost(1e-4))
        with pytest.raises(LedgerError, match="there is no ledger"):
            curator.release(probe)
        assert not probe.saw_data
        assert curator.spent == PrivacyCost()

    def test_a_failure_is_charged_all_the_same(self, curator, ledger):
        cost = PrivacyCost(1e-4)
        with pytest.raises(ArithmeticError):
            curator.release(Probe(cost, fails=True))
        assert ledger.standing("patients").spent == cost

    def test_seeded_noise_is_refused(self, ledger, rng):
        columns = Columns.copy_of(rng.normal(size=(10, 2)), rng.normal(size=10))
        with pytest.raises(ValueError, match=r"seeded noise is not: leave random_state=None"):
            Curator(columns, PrivacyBudget(0.5, 1e-6), SeededNoise(rng), Account(ledger, "patients"))

    def test_all_of_the_fits_budget_must_be_there_at_the_start(self, ledger, rng):
        charge(ledger, 0.9)
        columns = Columns.copy_of(rng.normal(size=(10, 2)), rng.normal(size=10))
        with pytest.raises(BudgetExceeded, match=r"a fit with epsilon = 0\.5 and delta = 1e-06 would bring"):
            Curator(columns, PrivacyBudget(0.5, 1e-6), SecureNoise(), Account(ledger, "patients"))


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

    def test_read_only_half_way(self, folder):
        url, _ = self.create(folder, capacity=100)
        path = folder / "ledger.db"
        charge(Ledger(url))
        os.chmod(path, 0o444)
        process = ledger_worker.processes.Process(
            target=ledger_worker.meet_read_only, args=(url, "patients", str(folder / "message"))
        )
        process.start()
        process.join(30)
        assert process.exitcode == 0
        process.close()
        message, n_charges = (folder / "message").read_text().splitlines()
        assert "it cannot be written: make the file, its folder, and ledger.db-wal and ledger.db-shm" in message
        assert n_charges == "1"
        for file in folder.glob("ledger.db*"):
            os.chmod(file, 0o666)
        charge(Ledger(url))
        assert Ledger(url).standing("patients").n_charges == 2

    def test_a_disk_that_fills_up(self, folder):
        url, _ = self.create(folder, capacity=100)
        process = ledger_worker.processes.Process(
            target=ledger_worker.fail_to_grow, args=(url, "patients", str(folder / "witnesses"))
        )
        process.start()
        process.join(30)
        assert process.exitcode == 0
        process.close()
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
        (command,) = re.findall(r"^dpcd ledger create .*$", text, flags=re.MULTILINE)
        assert run(*shlex.split(command)[2:]).exit_code == 0
        (example,) = re.findall(r"^```python\n(model = .*?ledger=.*?)```", text, flags=re.MULTILINE | re.DOTALL)
        X = np.random.default_rng(0).normal(size=(20_000, 3))
        namespace = {"DPLogisticRegression": DPLogisticRegression, "X": X, "y": X[:, 0] > 0}
        exec(example, namespace)
        standing = Ledger("sqlite:///ledger.db").standing("patients-2026")
        assert standing.spent == namespace["model"].privacy_.cost
        fit = PrivacyBudget(1.0, namespace["model"].privacy_.delta).as_gaussian()
        assert "pays for five of the fits above" in text
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
