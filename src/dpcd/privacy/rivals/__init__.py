"""Mechanisms that only comparisons need: the methods that the paper compares DP-CD with.

`sampling` and `batches` serve DP-SGD, DP-SVRG and DP-SCD, whose batches are secret: they assume that the generator
which draws those is unpredictable. `minima` releases a whole minimum, whose sensitivity rests on the loss being convex:
no clamp enforces that, so it takes the library's own losses only. `laplace` has moments with Laplace noise. A fit by
default uses none of them.
"""
