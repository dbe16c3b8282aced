"""Processes that spend from a ledger, for test_ledger.py: a module of their own, so that they start quickly."""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from dpcd.privacy import BudgetExceeded, Ledger, LedgerError, PrivacyBudget, PrivacyCost

RELATION = "replace one record"
NOBODY = 65534

# A server that has imported the library forks the workers: they start in milliseconds, from a process without threads.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["dpcd"])


def drop_privileges():
    """Permissions mean nothing to root."""
    if os.getuid() == 0:
        with suppress(OSError):  # who is root in a namespace only knows nobody else
            os.setuid(NOBODY)


def spend(url, dataset, mu_squared, witness_folder, seconds=60.0):
    """Charge as fast as possible, and witness each charge in a file of one's own, after it has returned."""
    drop_privileges()
    os.umask(0)
    end = time.monotonic() + seconds
    with open(Path(witness_folder) / f"{os.getpid()}", "ab", buffering=0) as witness, Ledger(url) as ledger:
        while time.monotonic() < end:
            try:
                ledger.charge(dataset, PrivacyCost(mu_squared), "hammer", RELATION, 1)
            except (BudgetExceeded, LedgerError):
                return
            witness.write(b"x")


def start(url, dataset, mu_squared, witness_folder):
    process = processes.Process(target=spend, args=(url, dataset, mu_squared, str(witness_folder)))
    process.start()
    return process


def hammer(url, dataset, mu_squared, witness_folder, n_processes, seconds, seed, at_half_time=None):
    """Keep processes spending, and kill one of them at random every now and then."""
    rng = random.Random(seed)
    running = [start(url, dataset, mu_squared, witness_folder) for _ in range(n_processes)]
    begin = time.monotonic()
    killed = 0
    while time.monotonic() < begin + seconds:
        time.sleep(rng.uniform(0.0, 0.2))
        victim = rng.randrange(n_processes)
        if running[victim].is_alive():
            os.kill(running[victim].pid, signal.SIGKILL)
            killed += 1
        running[victim].join()
        running[victim].close()
        running[victim] = start(url, dataset, mu_squared, witness_folder)
        if at_half_time is not None and time.monotonic() > begin + seconds / 2:
            at_half_time()
            at_half_time = None
    for process in running:
        process.kill()
        process.join()
        process.close()
    return killed


def check_against_witnesses(url, dataset, witness_folder):
    """Every witnessed charge is recorded, and a process has at most one more: the one it was killed in."""
    ledger = Ledger(url)
    standing = ledger.standing(dataset)
    recorded = Counter(charge.process for charge in ledger.history(dataset))
    witnessed = Counter({int(path.name): path.stat().st_size for path in Path(witness_folder).iterdir()})
    assert set(recorded) <= set(witnessed)
    for process, count in witnessed.items():
        assert count <= recorded[process] <= count + 1
    assert standing.budget.admits(standing.spent), "overspent"
    return standing.n_charges, witnessed.total()


def fail_to_grow(url, dataset, witness_folder):
    """Spend with a limit on the size of files, as on a disk that fills up."""
    import resource

    with Ledger(url) as ledger:
        ledger.charge(dataset, PrivacyCost(1e-6), "before", RELATION)
        size = max(path.stat().st_size for path in ledger.path.parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10_000, size + 10_000))
        message = "it went on and on"
        with open(Path(witness_folder) / f"{os.getpid()}", "ab", buffering=0) as witness:
            witness.write(b"x")
            for _ in range(1000):
                try:
                    ledger.charge(dataset, PrivacyCost(1e-6), "hammer", RELATION, 1)
                except LedgerError as error:
                    message = str(error)
                    break
                witness.write(b"x")
        (ledger.path.parent / "message").write_text(message)


def meet_read_only(url, dataset, message_path):
    """Try to spend from a ledger that cannot be written, and look at it."""
    drop_privileges()
    try:
        Ledger(url).charge(dataset, PrivacyCost(1e-6), "hammer", RELATION, 1)
        message = "charged"
    except LedgerError as error:
        message = str(error)
    Path(message_path).write_text(f"{message}\n{Ledger(url).standing(dataset).n_charges}")


def fill_the_disk(disk, witness_folder):
    """Spend on a small disk of its own while it fills up, is full, and has room again."""
    url, witnesses = f"sqlite:///{disk}/ledger.db", Path(witness_folder)
    ballast, filler = Path(disk) / "ballast", Path(disk) / "filler"
    ballast.write_bytes(bytes(2**19))

    def fill():
        with open(filler, "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1024))

    Ledger(url).create("full", PrivacyBudget(1.0, 1e-6))
    errors = set()
    with open(witnesses / f"{os.getpid()}", "ab", buffering=0) as witness, Ledger(url) as ledger:
        for count in range(100):
            if count == 5:
                fill()
            try:
                ledger.charge("full", PrivacyCost(1e-6), "hammer", RELATION, 1)
                witness.write(b"x")
            except LedgerError as error:
                errors.add(str(error))
    assert any("the disk is full" in error for error in errors), errors
    filler.unlink()
    hammer(url, "full", 1e-6, witnesses, 4, 6.0, seed=0, at_half_time=fill)
    filler.unlink()
    ballast.unlink()  # the ledger itself may have filled the disk
    before, _ = check_against_witnesses(url, "full", witnesses)
    Ledger(url).charge("full", PrivacyCost(1e-6), "afterwards", RELATION)
    assert Ledger(url).standing("full").n_charges == before + 1
    print(f"{before} charges")


if __name__ == "__main__":
    fill_the_disk(*sys.argv[1:])
