"""The budget that outlives a process: what was ever spent on a data set, in one file.

A ledger is an SQLite file with a budget (ε, δ) for each of its datasets, every charge against them, and the running
totals. A charge is one transaction: read the total, add, refuse or record. It is on disk when `Ledger.charge` returns,
and the curator reads the data only after that. Whatever kills a process, the recorded spend is therefore never below
what was released, and two processes never spend the same budget twice.

Totals add exactly as in `accounting`. They are kept beside the charges so that a charge does not read all of history,
and compared with the sum of the charges whenever a fit, or a person, opens the account.

The budget of a dataset, with its Rényi order if it has one, is fixed before its first charge: costs may then depend on
what was released earlier, as `accounting` argues.

What this cannot see: data that are fitted without their ledger, and a copy of the file put in its place.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dpcd.privacy.accounting import ORDERS, SMALLEST_EPSILON, BudgetExceeded, PrivacyBudget, PrivacyCost
from dpcd.privacy.statement import library_version

#: How long a charge waits for other processes' charges.
BUSY_SECONDS = 30.0
#: Marks the file as a ledger: "dpcd" in ASCII.
APPLICATION_ID = 0x64706364
#: Version of the schema below. The Rényi orders belong to it: new `ORDERS` need a new format and a migration.
FORMAT = 1
#: How to turn a ledger of format k into one of format k + 1, inside a transaction.
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {}

_SCHEMA = """
CREATE TABLE orders (value BLOB NOT NULL);

CREATE TABLE datasets (
    name TEXT PRIMARY KEY,
    created TEXT NOT NULL,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    "order" REAL,
    relation TEXT,
    charges INTEGER NOT NULL DEFAULT 0,
    mu_squared REAL NOT NULL DEFAULT 0,
    discretization REAL NOT NULL DEFAULT 0,
    renyi BLOB NOT NULL DEFAULT x''
);

CREATE TABLE charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    dataset TEXT NOT NULL REFERENCES datasets (name),
    time TEXT NOT NULL,
    description TEXT NOT NULL,
    releases INTEGER,
    relation TEXT NOT NULL,
    mu_squared REAL NOT NULL,
    discretization REAL NOT NULL,
    renyi BLOB NOT NULL,
    library TEXT NOT NULL,
    process INTEGER NOT NULL
);

CREATE INDEX charges_of_dataset ON charges (dataset, number);
"""
_COST = "mu_squared, discretization, renyi"


class LedgerError(RuntimeError):
    """A ledger cannot be used; the message says what to do. Nothing was released."""


@dataclass(frozen=True)
class Charge:
    """One entry of a ledger.

    Attributes
    ----------
    number
        Counts the charges of a ledger, whatever their dataset.
    time
        When it was made (UTC).
    description, releases
        What was about to be released, and how many releases that is (None if nobody said).
    relation
        Which data sets are neighbours.
    library, process
        The version of this library, and the id of the process, that made the charge.
    cost
        What was charged.
    """

    number: int
    time: datetime
    description: str
    releases: int | None
    relation: str
    library: str
    process: int
    cost: PrivacyCost


@dataclass(frozen=True)
class Standing:
    """Where the budget of a dataset stands.

    Attributes
    ----------
    dataset, created
        Its name, and when its budget was fixed (UTC).
    budget
        What everything ever released about it may cost together.
    spent
        What has been charged so far.
    n_charges
        In how many charges.
    relation
        Which data sets are neighbours; the first charge decides.
    """

    dataset: str
    created: datetime
    budget: PrivacyBudget
    spent: PrivacyCost
    n_charges: int
    relation: str | None

    @property
    def epsilon_spent(self) -> float:
        """ε of everything charged so far, at the budget's δ."""
        return self.spent.epsilon(self.budget.delta, self.budget.order)

    @property
    def epsilon_left(self) -> float:
        """The largest ε, rounded down, that one more fit may ask for at the budget's δ (0 if there is none).

        Costs add in μ² and not in ε, so this and `epsilon_spent` together exceed the budget's ε.
        """

        def fits(epsilon: float) -> bool:
            return self.budget.admits(self.spent + PrivacyBudget(epsilon, self.budget.delta).as_gaussian())

        low, high = SMALLEST_EPSILON, self.budget.epsilon
        if fits(high):
            return high
        if not fits(low):
            return 0.0
        while high > low * (1.0 + 1e-7):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def check(self, cost: PrivacyCost, description: str) -> None:
        """Raise `BudgetExceeded` unless there is room for the cost."""
        if cost.renyi:
            self.check_sampling(description)
        after = self.spent + cost
        if self.budget.admits(after):
            return
        total, left = after.epsilon(self.budget.delta, self.budget.order), self.epsilon_left
        room = f"one more fit may ask for about epsilon = {left:.4g} at this delta" if left else "nothing is left of it"
        raise BudgetExceeded(
            f"{description} would bring the total of dataset {self.dataset!r} to epsilon = {total:.6g} at delta = "
            f"{self.budget.delta:.3g}, and its budget is epsilon = {self.budget.epsilon:.6g}: {room}. Ask for less, or "
            f"stop here: what is spent does not come back. Nothing was charged for this"
        )

    def check_sampling(self, description: str) -> None:
        """Raise unless the budget is one that secret sampling can be charged to."""
        if self.budget.order is None:
            raise LedgerError(
                f"{description} draws secret batches of records, or the best of many candidates, and the budget of "
                f"dataset {self.dataset!r} is not for that: it would have to be created with a Rényi order (dpcd "
                f"ledger create --batches), before anything was spent. Use one fit by a solver without batches"
            )


class Ledger:
    """Budgets of datasets, in an SQLite file that processes on one machine share.

    Every method is a transaction of its own. Inside ``with ledger:`` they share a connection, which saves opening and
    closing the file for every charge.

    Parameters
    ----------
    url
        ``"sqlite:///path.db"``, or ``"sqlite:////path.db"`` with four slashes for an absolute path.

    Examples
    --------
    >>> import tempfile
    >>> from dpcd.privacy import Ledger, PrivacyBudget, PrivacyCost
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(f"sqlite:///{folder}/ledger.db")
    ...     ledger.create("patients-2026", PrivacyBudget(2.0, 1e-6))
    ...     ledger.charge("patients-2026", PrivacyCost.gaussian(10.0), "a mean", "replace one record")
    ...     round(ledger.standing("patients-2026").epsilon_spent, 3)
    0.397
    """

    def __init__(self, url: str) -> None:
        path = url.removeprefix("sqlite:///") if isinstance(url, str) else ""
        if path in ("", url, ":memory:"):
            raise ValueError(
                f"a ledger is a file, named as in 'sqlite:///ledger.db', or with four slashes for an absolute path as "
                f"in 'sqlite:////home/me/ledger.db'; got {url!r}"
            )
        self.path = Path(path)
        self._held: sqlite3.Connection | None = None
        self._holder = (0, 0)

    def __enter__(self) -> Ledger:
        if self._held is not None:
            raise RuntimeError("this ledger is open already: make another Ledger of the same file")
        with self._explaining():
            self._held = self._connect()
        self._holder = (os.getpid(), threading.get_ident())
        return self

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def create(self, dataset: str, budget: PrivacyBudget, network_folder: bool = False) -> None:
        """Fix the budget of a dataset, once; the file is made if there is none.

        Parameters
        ----------
        dataset
            A name, which is public.
        budget
            What everything ever released about the dataset may cost together. Solvers that draw secret batches need one
            with a Rényi order.
        network_folder
            Whether the file is new and lies in a folder that several machines share. Charges are slower then.
        """
        if not (isinstance(dataset, str) and dataset.strip() and dataset.isprintable()):
            raise ValueError(f"a dataset's name is printable text, got {dataset!r}")
        if math.isinf(budget.epsilon):
            raise ValueError("the budget of a dataset needs a finite epsilon")
        with self._explaining(), closing(self._connect(create=True)) as connection:
            # An interrupted creation leaves an empty file, or one that SQLite rolls back to empty: never half a ledger.
            with _rolled_back_unless_committed(connection, "BEGIN IMMEDIATE"):
                new = _is_empty(connection)
                if new:
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute("INSERT INTO orders VALUES (?)", (ORDERS.astype("<f8").tobytes(),))
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {FORMAT}")
                self._check_format(connection)
                if dataset in _names(connection):
                    raise LedgerError(f"dataset {dataset!r} has a budget already, which is fixed for good")
                connection.execute(
                    'INSERT INTO datasets (name, created, epsilon, delta, "order") VALUES (?, ?, ?, ?, ?)',
                    (dataset, _now(), budget.epsilon, budget.delta, budget.order),
                )
            if new and not network_folder:
                # A write-ahead log makes a charge durable with one flush of the disk, where a rollback journal needs
                # four or five. It needs memory that all processes share, so it is for one machine; and until the last
                # process has closed the ledger, charges may be in the -wal file beside it. The file remembers the mode.
                with suppress(sqlite3.OperationalError):  # somebody is reading already: it works without, only slower
                    connection.execute("PRAGMA journal_mode = WAL").fetchone()

    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets."""
        with self._transaction("BEGIN") as connection:
            return _names(connection)

    def standing(self, dataset: str) -> Standing:
        """Where the budget of a dataset stands.

        Raises
        ------
        LedgerError
            Also if the charges do not add up to the recorded total: the file is damaged or was edited.
        """
        with self._transaction("BEGIN") as connection:
            standing, charges = _standing(connection, dataset), _charges(connection, dataset)
        # The same additions in the same order: not even a rounding error may differ.
        if (standing.n_charges, standing.spent) != (len(charges), sum((c.cost for c in charges), PrivacyCost())):
            raise LedgerError(
                f"the charges of dataset {dataset!r} do not add up to the total that {self.path} records: the file is "
                f"damaged or was edited, and nothing can be charged to it. Put its latest good copy in its place"
            )
        return standing

    def history(self, dataset: str) -> tuple[Charge, ...]:
        """All charges to a dataset, in order."""
        with self._transaction("BEGIN") as connection:
            _standing(connection, dataset)
            return _charges(connection, dataset)

    def charge(
        self, dataset: str, cost: PrivacyCost, description: str, relation: str, releases: int | None = None
    ) -> None:
        """Record a cost, durably, before anything is released for it.

        Parameters
        ----------
        dataset
            Whose budget it is.
        cost, description, relation, releases
            As a `Charge` has them.

        Raises
        ------
        BudgetExceeded
            If the budget has no room for it. Nothing is recorded.
        LedgerError
            If it cannot be recorded. Release nothing.
        """
        # IMMEDIATE: from reading the total to recording the new one, nobody else may charge.
        with self._transaction("BEGIN IMMEDIATE") as connection:
            standing = _standing(connection, dataset)
            if standing.relation not in (None, relation):
                raise LedgerError(
                    f"{description} is accounted for neighbours that {relation}, and what dataset {dataset!r} has "
                    f"spent is for neighbours that {standing.relation}: their costs do not add up"
                )
            standing.check(cost, description)
            connection.execute(
                f"INSERT INTO charges (dataset, time, description, releases, relation, {_COST}, library, process) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (dataset, _now(), description, releases, relation, *_stored(cost), library_version(), os.getpid()),
            )
            connection.execute(
                f"UPDATE datasets SET charges = charges + 1, relation = ?, ({_COST}) = (?, ?, ?) WHERE name = ?",
                (relation, *_stored(standing.spent + cost), dataset),
            )

    def _connect(self, create: bool = False) -> sqlite3.Connection:
        if not create and not self.path.is_file():
            raise LedgerError(
                f"there is no ledger {self.path}: make it with dpcd ledger create {self.path} --dataset NAME "
                f"--epsilon E --delta D"
            )
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
        )
        try:
            # FULL, and in a rollback journal also the folder: after a power cut an unlinked journal must not come back
            # and undo the charge. fullfsync is what durable takes on macOS, and nothing elsewhere.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Everything inside is recorded on leaving, or, if anything is raised, nothing."""
        with self._explaining():
            # Connections must not cross into other threads or forked processes.
            if self._held is not None and self._holder == (os.getpid(), threading.get_ident()):
                with _rolled_back_unless_committed(self._held, begin):
                    self._check_format(self._held)
                    yield self._held
            else:
                with closing(self._connect()) as connection, _rolled_back_unless_committed(connection, begin):
                    self._check_format(connection)
                    yield connection

    def _check_format(self, connection: sqlite3.Connection) -> None:
        """Refuse what is not a ledger, or a ledger from the future; bring an older one up to date."""
        if _is_empty(connection):
            raise LedgerError(
                f"{self.path} is empty, as an interrupted creation leaves it: make the ledger with dpcd ledger create"
            )
        if _pragma(connection, "application_id") != APPLICATION_ID:
            raise LedgerError(f"{self.path} is a database, but not a ledger: check the name")
        found = _pragma(connection, "user_version")
        if found > FORMAT:
            raise LedgerError(
                f"{self.path} was made or used by a newer version of dpcd (format {found}, and this version knows "
                f"{FORMAT}): upgrade dpcd"
            )
        if found < FORMAT:
            for older in range(found, FORMAT):
                MIGRATIONS[older](connection)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        (orders,) = connection.execute("SELECT value FROM orders").fetchone()
        # Their last digit depends on the machine.
        if len(orders) != ORDERS.nbytes or not np.allclose(np.frombuffer(orders, "<f8"), ORDERS, rtol=1e-9, atol=0.0):
            raise LedgerError(f"{self.path} keeps Rényi curves at orders that this version of dpcd does not know")

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn SQLite's errors into what happened and what to do."""
        try:
            yield
        except sqlite3.Error as error:
            beside = f"{self.path.name}-wal and {self.path.name}-shm, if they exist"
            # The low byte is the kind of error, the rest details.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            explanation = {
                sqlite3.SQLITE_BUSY: f"other processes kept it locked for {BUSY_SECONDS:g} seconds: try again, and see "
                "what holds it if that does not help",
                sqlite3.SQLITE_READONLY: f"it cannot be written: make the file, its folder, and {beside}, writable",
                sqlite3.SQLITE_CANTOPEN: "it cannot be opened: the folder must exist, and it, the file, and "
                f"{beside}, must be readable and writable",
                sqlite3.SQLITE_FULL: "the disk is full: make room on it",
                sqlite3.SQLITE_IOERR: "the disk did not read or write it: is there room, and is it healthy?",
                sqlite3.SQLITE_CORRUPT: "it is damaged: put its latest good copy in its place, and charge anew what "
                "was spent since",
                sqlite3.SQLITE_NOTADB: "it is not a ledger: check the name",
            }.get(kind, "SQLite cannot use it")
            raise LedgerError(f"ledger {self.path}: {explanation} ({error})") from error


@dataclass(frozen=True)
class Account:
    """The budget of one dataset in a ledger: what a curator charges beside its own."""

    ledger: Ledger
    dataset: str

    @property
    def order(self) -> float | None:
        """The Rényi order at which costs add up, if the dataset's budget has one."""
        return self.ledger.standing(self.dataset).budget.order

    def require(self, budget: PrivacyBudget) -> None:
        """Raise `BudgetExceeded` unless releases that use up this budget would fit, as things stand."""
        description = f"a fit with epsilon = {budget.epsilon:.6g} and delta = {budget.delta:.3g}"
        standing = self.ledger.standing(self.dataset)
        if budget.order is not None:
            standing.check_sampling(description)
        standing.check(budget.as_gaussian(), description)

    def charge(self, cost: PrivacyCost, description: str, relation: str, releases: int | None = None) -> None:
        """Charge the dataset, as `Ledger.charge` does."""
        self.ledger.charge(self.dataset, cost, description, relation, releases)


@contextmanager
def _rolled_back_unless_committed(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the file holds nothing yet."""
    return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


def _names(connection: sqlite3.Connection) -> tuple[str, ...]:
    return tuple(name for (name,) in connection.execute("SELECT name FROM datasets ORDER BY name"))


def _standing(connection: sqlite3.Connection, dataset: str) -> Standing:
    query = f'SELECT created, epsilon, delta, "order", charges, relation, {_COST} FROM datasets WHERE name = ?'
    row = connection.execute(query, (dataset,)).fetchone()
    if row is None:
        known = ", ".join(map(repr, _names(connection)))
        raise LedgerError(f"the ledger has no dataset {dataset!r}; it has {known}")
    created, epsilon, delta, order, n_charges, relation, *cost = row
    if order is not None:
        order = float(ORDERS[np.abs(ORDERS - order).argmin()])
    budget = PrivacyBudget(epsilon, delta, order)
    return Standing(dataset, datetime.fromisoformat(created), budget, _read_cost(*cost), n_charges, relation)


def _charges(connection: sqlite3.Connection, dataset: str) -> tuple[Charge, ...]:
    query = (
        f"SELECT number, time, description, releases, relation, library, process, {_COST} FROM charges "
        f"WHERE dataset = ? ORDER BY number"
    )
    charges = []
    for number, time, description, releases, relation, library, process, *cost in connection.execute(query, (dataset,)):
        made = number, datetime.fromisoformat(time), description, releases, relation, library, process
        charges.append(Charge(*made, _read_cost(*cost)))
    return tuple(charges)


def _stored(cost: PrivacyCost) -> tuple[float, float, bytes]:
    """The columns `_COST` of a cost."""
    curve = np.array(cost.renyi, dtype="<f8").tobytes()
    return cost.mu_squared, cost.discretization, curve


def _read_cost(mu_squared: float, discretization: float, renyi: Any) -> PrivacyCost:
    try:
        return PrivacyCost(mu_squared, discretization, tuple(np.frombuffer(renyi, dtype="<f8").tolist()))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"the ledger holds a cost that is none, so it is damaged or was edited: {error}") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
