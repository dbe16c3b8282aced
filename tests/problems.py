"""Losses and penalties that every generic test runs over: adding one here adds its tests."""

import numpy as np

from dpcd import losses, penalties

LOSSES = [
    losses.Squared(),
    losses.Logistic(),
    losses.Huber(1.35),
    losses.Huber(0.1),
    losses.SmoothedHinge(1.0),
    losses.SmoothedHinge(0.25),
]
PENALTIES = [
    penalties.Zero(),
    penalties.L1(0.3),
    penalties.WeightedL1(0.3, np.array([0.0, 0.5, 2.0])),
    penalties.L2(0.7),
    penalties.ElasticNet(0.4, 0.25),
    penalties.Box(-0.5, 0.25),
    penalties.non_negative(),
]
CLASSIFICATION = (losses.Logistic, losses.SmoothedHinge)


def name(value):
    return type(value).__name__


def simulate(loss, n_records, n_features, rng):
    """A small table with columns of different scale, and a target that fits the loss."""
    X = rng.normal(size=(n_records, n_features)) * np.geomspace(0.1, 10.0, n_features)
    y = X @ (rng.normal(size=n_features) / np.geomspace(0.1, 10.0, n_features)) + 0.5 * rng.normal(size=n_records)
    return X, (np.where(y > 0, 1.0, -1.0) if isinstance(loss, CLASSIFICATION) else y)
