"""The ledger itself: what it writes, what it refuses, and that a curator asks it first."""

import doctest
import hashlib
import math
import os
import re
import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest

from dpcd import BudgetExceeded
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
