"""How to spend a budget: solvers, and the private estimates they start from."""

from dpcd.solvers.cd import DPCD
from dpcd.solvers.problem import Problem, Solution, Solver
from dpcd.solvers.scales import GaussianSmoothness, LaplaceSmoothness
from dpcd.solvers.scd import DPSCD
from dpcd.solvers.sgd import DPSGD

__all__ = ["DPCD", "DPSCD", "DPSGD", "GaussianSmoothness", "LaplaceSmoothness", "Problem", "Solution", "Solver"]
