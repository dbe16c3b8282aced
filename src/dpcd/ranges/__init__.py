"""What a fit learns first: where columns and the target lie, and how steep the loss is in each column."""

from dpcd.ranges.scales import GaussianSmoothness, LaplaceSmoothness

__all__ = ["GaussianSmoothness", "LaplaceSmoothness"]
