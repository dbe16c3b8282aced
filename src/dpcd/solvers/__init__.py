"""How to spend a budget: solvers, and the private estimates they start from."""

from dpcd.solvers.cd import DPCD
from dpcd.solvers.problem import Problem, Solution, Solver
from dpcd.solvers.scales import GaussianSmoothness, LaplaceSmoothness

__all__ = ["DPCD", "GaussianSmoothness", "LaplaceSmoothness", "Problem", "Solution", "Solver"]
