"""Methods: combinations of estimator, fields, background, losses and schedules; Gaussians; their interface
(protocol).
"""
