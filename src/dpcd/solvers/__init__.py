"""How to spend a budget: solvers, and the private estimates they start from."""

from dpcd.solvers.cd import DPCD
from dpcd.solvers.problem import Problem, Solution, Solver
from dpcd.solvers.scales import GaussianSmoothness, LaplaceSmoothness
from dpcd.solvers.scd import DPSCD
from dpcd.solvers.sgd import DPSGD
from dpcd.solvers.svrg import DPSVRG

__all__ = [
    "DPCD",
    "DPSCD",
    "DPSGD",
    "DPSVRG",
    "GaussianSmoothness",
    "LaplaceSmoothness",
    "Problem",
    "Solution",
    "Solver",
]
