"""Speed and memory of DP-CD, as ratios measured in one run.

Run ``python benchmarks/kernels.py``; it needs a C compiler (`cc`). It prints

- the compiled kernel against a C loop built with ``-O3 -march=native -ffast-math`` (kernels.c),
- a whole seeded fit of 50 passes against the time in its kernel,
- peak memory of a fit against the size of X,
- how long a fresh process takes to import, fit and exit with a warm cache on disk.
"""

import argparse
import ctypes
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from dpcd import DPGeneralizedLinearModel
from dpcd.losses import Logistic, Squared
from dpcd.penalties import L1
from dpcd.privacy import Columns, SeededNoise
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.solvers import DPCD

N_RECORDS, N_FEATURES, N_PASSES, ALPHA, CLIP = 45_312, 8, 50, 0.01, 3.0

FRESH_FIT = """
import numpy as np, dpcd
rng = np.random.default_rng(0)
X = rng.normal(size=(45312, 8))
dpcd.DPLogisticRegression().fit(X, X[:, 0] > 0)
"""


def simulate(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_RECORDS, N_FEATURES))
    y = X @ rng.normal(size=N_FEATURES) + rng.normal(size=N_RECORDS)
    return X, np.sign(y) if isinstance(loss, Logistic) else y


def c_library(folder):
    path = Path(folder) / "kernels.so"
    source = Path(__file__).with_name("kernels.c")
    command = ["cc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", str(source), "-o", str(path), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def best_of_alternating(repeats, *functions):
    """Shortest time of each function, the functions taking turns so that a busy machine slows all of them."""
    times = [[] for _ in functions]
    for _ in range(repeats):
        for function, record in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            record.append(time.perf_counter() - start)
    return [min(record) for record in times]


def compare_kernels(library, repeats):
    for loss, routine in ((Squared(), library.descend_squared), (Logistic(), library.descend_logistic)):
        X, y = simulate(loss)
        data = Columns.copy_of(X, y)
        order = np.tile(np.arange(N_FEATURES), N_PASSES)
        clip, steps = np.full(N_FEATURES, CLIP), np.full(N_FEATURES, 1.0 / loss.curvature)
        start, multipliers = np.zeros(N_FEATURES), np.zeros(N_FEATURES)
        updates = CoordinateUpdates(loss, L1(ALPHA), order, N_FEATURES, clip, steps, multipliers, start)
        noise = np.zeros(len(order))
        final = {}

        def ours(updates=updates, data=data, final=final):
            final["ours"] = updates.run(data, SeededNoise(np.random.default_rng(0)))[1][-N_FEATURES:]

        def rival(routine=routine, data=data, order=order, clip=clip, steps=steps, noise=noise, final=final):
            predictor, weights = np.zeros(N_RECORDS), np.zeros(N_FEATURES)
            arrays = (data.features, data.target, predictor, weights, order)
            routine(
                *map(pointer, arrays),
                ctypes.c_long(len(order)),
                *map(pointer, (clip, steps, noise)),
                ctypes.c_double(ALPHA),
                ctypes.c_size_t(N_RECORDS),
            )
            final["rival"] = weights

        ours()
        rival()
        assert np.allclose(final["ours"], final["rival"], atol=1e-8), "the two kernels disagree"
        ours_s, rival_s = best_of_alternating(repeats, ours, rival)
        nanoseconds = ours_s / (len(order) * N_RECORDS) * 1e9
        ratio = ours_s / rival_s
        print(f"{type(loss).__name__:<9} kernel: {ratio:.2f} x C -O3 -ffast-math ({nanoseconds:.2f} ns a sample)")


def compare_fit_with_kernel(repeats):
    for loss in (Squared(), Logistic()):
        X, y = simulate(loss)
        smoothness = loss.curvature * np.mean(X**2, axis=0)
        model = DPGeneralizedLinearModel(
            loss=loss,
            penalty=L1(ALPHA),
            smoothness=smoothness,
            fit_intercept=False,
            solver=DPCD(n_passes=N_PASSES, clip=CLIP),
            random_state=0,
        )
        order = np.tile(np.arange(N_FEATURES), N_PASSES)
        ones = np.ones(N_FEATURES)
        updates = CoordinateUpdates(loss, L1(ALPHA), order, N_FEATURES, CLIP * ones, ones, 100 * ones, 0 * ones)
        for layout in ("C", "F"):
            table = np.array(X, order=layout)
            data = Columns.copy_of(table, y)
            model.fit(table, y)
            fit_s, kernel_s = best_of_alternating(
                repeats,
                lambda model=model, table=table, y=y: model.fit(table, y),
                lambda data=data, updates=updates: updates.run(data, SeededNoise(np.random.default_rng(0))),
            )
            ratio = fit_s / kernel_s
            print(f"{type(loss).__name__:<9} fit of {N_PASSES} passes, {layout}-ordered X: {ratio:.2f} x its kernel")


def measure_memory():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400_000, 25))
    y = X[:, 0] + rng.normal(size=len(X))
    model = DPGeneralizedLinearModel(random_state=0)
    model.fit(X[:1000], y[:1000])
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    per_record = (peak - X.nbytes) / len(X) / 8
    print(f"memory    peak of a fit: {peak / X.nbytes:.2f} x X, that is one copy and {per_record:.1f} doubles a record")


def measure_fresh_process():
    times = []
    for _ in range(4):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", FRESH_FIT], check=True)
        times.append(time.perf_counter() - start)
    first, *warm = times
    print(f"process   import, private fit, exit: {min(warm):.2f} s with a warm cache ({first:.2f} s the first time)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40, help="runs of each contender; the shortest counts")
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        compare_kernels(c_library(folder), repeats)
    compare_fit_with_kernel(repeats)
    measure_memory()
    measure_fresh_process()


if __name__ == "__main__":
    main()
