"""How long the default fit takes beside scikit-learn's, and how much memory.

Run ``python benchmarks/fits.py``. For tables of 45,312 × 8 and 1,000,000 × 50 it prints seconds of a seeded fit by
``solver="auto"`` with nothing declared, of the same model by scikit-learn without privacy, their ratio, and the most
memory a fit took as a part of the table. The two take turns, and the best of each counts, so that a busy machine slows
both.
"""

import time
import tracemalloc

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

from dpcd import DPLogisticRegression, DPRidge


def seconds(model, X, y):
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start


def main():
    rng = np.random.default_rng(0)
    print("records x columns   model                  private   scikit-learn   ratio   memory / table")
    for n_records, n_features in ((45_312, 8), (1_000_000, 50)):
        X = rng.normal(size=(n_records, n_features))
        y = X @ rng.normal(size=n_features) + rng.normal(size=n_records)
        pairs = [
            (DPRidge(random_state=0), Ridge(), y),
            (DPLogisticRegression(random_state=0, classes=[False, True]), LogisticRegression(), y > 0.0),
        ]
        for private, plain, target in pairs:
            private.fit(X[:2000], target[:2000])
            times = np.array([(seconds(private, X, target), seconds(plain, X, target)) for _ in range(3)]).min(axis=0)
            tracemalloc.start()
            private.fit(X, target)
            memory = tracemalloc.get_traced_memory()[1] / X.nbytes
            tracemalloc.stop()
            print(
                f"{n_records:>9} x {n_features:<7} {type(private).__name__:<22} {times[0]:>7.3f} s {times[1]:>10.3f} s "
                f"{times[0] / times[1]:>8.2f} {memory:>12.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
