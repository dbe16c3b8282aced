"""How long a charge to a ledger takes.

Run ``python benchmarks/ledger.py [--folder FOLDER]``, with a folder on the disk in question. It prints milliseconds of

- a charge inside ``with ledger:``, as estimators make them, and of one that opens and closes the file itself,
- a bare durable insert of one row into an SQLite table, by write-ahead log and by rollback journal,
- one flush of that disk, which is the least that "on disk when it returns" can cost.

They take turns, 20 times each, so that a busy machine slows all of them.
"""

import argparse
import os
import sqlite3
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from dpcd.privacy import Ledger, PrivacyBudget, PrivacyCost


def bare_insert(path, journal):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE numbers (value REAL)")
    return connection, lambda: connection.execute("INSERT INTO numbers VALUES (1.0)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="where to put the files; default: the folder for temporary files")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder)))
        kept, alone = (Ledger(f"sqlite:///{folder}/{name}.db") for name in ("kept", "alone"))
        for ledger in (kept, alone):
            ledger.create("dataset", PrivacyBudget(1.0, 1e-6))
        stack.enter_context(kept)
        actions = {
            f"charge, {name}": lambda ledger=ledger: ledger.charge(
                "dataset", PrivacyCost.gaussian(1e4), "benchmark", "replace one record", 1
            )
            for name, ledger in (("ledger kept open", kept), ("opened for it", alone))
        }
        for name, journal in (("write-ahead log", "WAL"), ("rollback journal", "DELETE")):
            connection, actions[f"bare insert, {name}"] = bare_insert(folder / f"{journal}.db", journal)
            stack.enter_context(closing(connection))
        file = stack.enter_context(open(folder / "flushed", "wb", buffering=0))
        actions["flush of 4 KiB"] = lambda: (file.write(bytes(4096)), os.fsync(file.fileno()))
        times = {name: [] for name in actions}
        for _ in range(arguments.rounds):
            for name, action in actions.items():
                action()  # flushes what the one before has left to the disk
                for _ in range(20):
                    start = time.perf_counter()
                    action()
                    times[name].append(1e3 * (time.perf_counter() - start))
    reference = statistics.median(times["bare insert, write-ahead log"])
    print(f"{'':<32}{'median ms':>10}{'95 % below':>12}{'ratio':>8}")
    for name, record in times.items():
        median, most = statistics.median(record), statistics.quantiles(record, n=20)[-1]
        print(f"{name:<32}{median:>10.2f}{most:>12.2f}{median / reference:>8.2f}")


if __name__ == "__main__":
    main()
