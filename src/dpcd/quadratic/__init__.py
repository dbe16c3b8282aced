"""What is free after a fit: the quadratic model of the loss, and how well its minimum is known."""

from dpcd.quadratic.model import Quadratic

__all__ = ["Quadratic"]
