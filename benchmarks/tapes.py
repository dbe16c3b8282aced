"""Tapes: everything that seeded fits ask of the data and are told, digested.

Run ``python benchmarks/tapes.py --out before.json`` before a change of the code that is to change nothing, and
``python benchmarks/tapes.py --against before.json`` after it. A tape lists every release of a fit: the mechanism's
type, each of its fields and the answer, then the coefficients. Fits cover every solver, losses, penalties, declared and
learnt ranges, and intercepts. Tapes hold for one machine and one set of libraries: the last bits of a matrix product
are the processor's business.
"""

import argparse
import hashlib
import json
import sys
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from dpcd import (
    DPElasticNet,
    DPGeneralizedLinearModel,
    DPHuberRegressor,
    DPLasso,
    DPLinearSVC,
    DPLogisticRegression,
    DPRidge,
    DPStandardScaler,
    PrivateSearch,
)
from dpcd.losses import Squared
from dpcd.penalties import Box, WeightedL1
from dpcd.privacy import Curator
from dpcd.solvers import (
    DPCD,
    DPGCD,
    DPSCD,
    DPSGD,
    DPSVRG,
    AdaSSP,
    BoostedAdaSSP,
    DPBlockCD,
    DPFrankWolfe,
    DPNewton,
    LaplaceSmoothness,
    ObjectivePerturbation,
    OutputPerturbation,
    Screened,
)


def table(n_records, n_features, labels, seed):
    """A table of correlated columns, one of them skewed and one far from zero, and a target with a few odd values."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_records, n_features)) @ (np.eye(n_features) + 0.4 * rng.normal(size=(n_features,) * 2))
    X[:, 0] = np.exp(X[:, 0])
    X[:, -1] = 300.0 + 5.0 * X[:, -1]
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=n_features)
    if labels:
        return X, rng.random(n_records) < 1.0 / (1.0 + np.exp(-z))
    y = 40.0 + 10.0 * z + 3.0 * rng.standard_t(3, size=n_records)
    return X, y


def estimators():
    """Names of fits, estimators without a seed, and the tables that they are fitted to."""
    wide, narrow, long = (2000, 14), (1500, 4), (6000, 6)
    found = []

    def add(name, model, shape, labels=False, bounds=False):
        X, y = table(*shape, labels, len(found))
        if bounds:
            model.set_params(feature_bounds=(X.min(axis=0), X.max(axis=0)))
            if not labels:
                model.set_params(target_bounds=(y.min(), y.max()))
        found.append((name, model, X, y))

    for label, shape in (("narrow", narrow), ("wide", wide), ("long", long)):
        for bounds in (False, True):
            declared = "declared" if bounds else "undeclared"
            for intercept in (True, False):
                name = f"{label}, {declared}, {'with' if intercept else 'without'} intercept"
                add(f"ridge, {name}", DPRidge(fit_intercept=intercept), shape, bounds=bounds)
                add(f"logistic, {name}", DPLogisticRegression(fit_intercept=intercept), shape, True, bounds)
            add(f"lasso, {label}, {declared}", DPLasso(alpha=0.1), shape, bounds=bounds)
            add(f"svc, {label}, {declared}", DPLinearSVC(), shape, True, bounds)
    add("elastic net", DPElasticNet(alpha=0.1, epsilon=3.0), wide)
    add("huber", DPHuberRegressor(epsilon=3.0), long)
    add("huber, far", DPHuberRegressor(threshold=0.1, epsilon=10.0), narrow, bounds=True)
    box = DPGeneralizedLinearModel(loss=Squared(), penalty=Box(-1.0, 1.0))
    add("box", box, narrow)
    weighted = WeightedL1(0.1, np.linspace(0.0, 2.0, 14))
    add("weighted l1", DPGeneralizedLinearModel(loss=Squared(), penalty=weighted), wide)
    add("smoothness declared", DPRidge(smoothness=np.full(6, 25.0)), long)
    add("laplace", DPRidge(smoothness=LaplaceSmoothness(0.2), epsilon=3.0), narrow, bounds=True)
    add("small budget", DPRidge(epsilon=0.05), long)
    add("no privacy", DPRidge(epsilon=np.inf), narrow)
    add("no privacy, labels", DPLogisticRegression(epsilon=np.inf, solver=DPCD(n_passes=3)), narrow, True)
    add("many columns", DPLasso(alpha=0.1), (1000, 120))
    for solver in (
        DPNewton(n_steps=4),
        DPBlockCD(n_steps=6),
        DPCD(n_passes=4),
        DPCD(n_passes=3, clip=1.0, order="random", average="last"),
        DPSGD(n_passes=2, batch_size=50),
        DPSVRG(n_loops=2, n_steps=5, batch_size=50),
        DPGCD(n_updates=4),
        Screened(DPCD(n_passes=2), n_kept=2),
        Screened(n_kept=3),
    ):
        add(repr(solver), DPRidge(solver=solver), narrow)
        add(f"logistic, {solver!r}", DPLogisticRegression(solver=solver), narrow, True)
    add("frank-wolfe", DPLasso(alpha=0.1, solver=DPFrankWolfe(n_steps=4), fit_intercept=False), narrow)
    add(
        "scd",
        DPRidge(alpha=0.1, solver=DPSCD(row_norm=5.0, n_passes=1, lot_size=20), fit_intercept=False),
        narrow,
        bounds=True,
    )
    add("adassp", DPRidge(solver=AdaSSP()), narrow)
    add("boosted adassp", DPRidge(solver=BoostedAdaSSP()), narrow)
    add("output perturbation", DPLogisticRegression(solver=OutputPerturbation(strength=0.3)), narrow, True)
    add("objective perturbation", DPLogisticRegression(solver=ObjectivePerturbation(strength=0.3)), narrow, True)
    add("objective perturbation, huber", DPHuberRegressor(solver=ObjectivePerturbation(strength=0.3)), narrow)
    three = table(3000, 5, True, 99)
    classes = three[1] + (three[0][:, 1] > 0.5).astype(int)
    found.append(("three classes", DPLogisticRegression(epsilon=3.0), three[0], classes))
    found.append(("scaler", DPStandardScaler(epsilon=1.0), *table(*long, False, 98)))
    search = PrivateSearch(DPRidge(), {"alpha": [0.01, 1.0]}, epsilon=3.0)
    found.append(("search", search, *table(*long, False, 97)))
    return found


def digested(value, into):
    """Feed a value to a digest: numbers and arrays bit by bit, named tuples and dataclasses field by field."""
    if isinstance(value, (np.ndarray, np.generic)):
        into.update(f"{value.dtype.str}{value.shape}".encode())
        into.update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        into.update(type(value).__name__.encode())
        for field in sorted(fields(value), key=lambda field: field.name):
            into.update(field.name.encode())
            digested(getattr(value, field.name), into)
    elif isinstance(value, (tuple, list)):
        into.update(f"{type(value).__name__}{len(value)}".encode())
        for entry in value:
            digested(entry, into)
    elif value is None or isinstance(value, (bool, int, float, str)):
        into.update(repr(value).encode())
    else:
        # Functions, and objects that hold no more than what was digested before.
        into.update(type(value).__name__.encode())
    return into


def tape(model, X, y):
    """What a seeded fit releases, line by line, and the digest of its coefficients."""
    lines = []
    release = Curator.release

    def recorded(curator, mechanism):
        answer = release(curator, mechanism)
        # Rehearsals on two records of zeros are no releases.
        if curator.n_records > 2:
            lines.append(
                f"{type(mechanism).__name__} {digested((mechanism, answer), hashlib.sha256()).hexdigest()[:16]}"
            )
        return answer

    Curator.release = recorded
    try:
        model.set_params(random_state=7).fit(X, y)
    finally:
        Curator.release = release
    learnt = [getattr(model, name) for name in ("coef_", "intercept_", "scale_", "mean_") if hasattr(model, name)]
    lines.append(f"model {digested(learnt, hashlib.sha256()).hexdigest()[:16]}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the tapes here")
    parser.add_argument("--against", type=Path, help="compare with the tapes of another version")
    arguments = parser.parse_args()
    tapes = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, X, y in estimators():
            tapes[name] = tape(model, X, y)
    releases = sum(len(lines) - 1 for lines in tapes.values())
    kinds = {line.split()[0] for lines in tapes.values() for line in lines} - {"model"}
    print(f"{len(tapes)} fits, {releases} releases of {len(kinds)} kinds: {', '.join(sorted(kinds))}")
    if arguments.out:
        arguments.out.write_text(json.dumps(tapes, indent=1) + "\n")
    if arguments.against:
        before = json.loads(arguments.against.read_text())
        different = [name for name in before if before[name] != tapes.get(name)]
        for name in different:
            ours, theirs = before[name], tapes.get(name, [])
            same = next((k for k, pair in enumerate(zip(ours, theirs, strict=False)) if len(set(pair)) > 1), len(ours))
            print(f"{name}: {ours[same : same + 1]} is {theirs[same : same + 1]} after {same} equal lines")
        print(f"{len(before) - len(different)} of {len(before)} fits identical")
        sys.exit(bool(different))


if __name__ == "__main__":
    main()
