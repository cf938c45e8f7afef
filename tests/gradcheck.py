"""Gradients by finite differences, and their tolerance."""

import numpy as np

STEP = 1e-6  # central differences in float64: truncation and rounding errors meet near 1e-9


def central_differences(function, x, entries=None, step=STEP):
    """d function / d x at the flat indices `entries` (all by default), [len(entries)]; function: array -> number."""
    x = np.asarray(x, np.float64)
    quotients = []
    for entry in range(x.size) if entries is None else entries:
        moved = [x.copy(), x.copy()]
        moved[0].reshape(-1)[entry] -= step
        moved[1].reshape(-1)[entry] += step
        quotients.append((function(moved[1]) - function(moved[0])) / (2.0 * step))
    return np.array(quotients, np.float64)


def some_entries(array, count, seed=0):
    """Up to `count` different flat indices of an array, ascending: enough of a large one to notice a wrong formula."""
    size = np.size(array)
    return np.sort(np.random.default_rng(seed).choice(size, min(count, size), replace=False))


def assert_grad_close(actual, expected, rtol=1e-3, atol=1e-6, min_cosine=0.9999, name="gradient"):
    """Every entry within atol + rtol max|expected|, and the direction right where there is one.

    The tolerance is of the largest entry: rounding errors of a float32 sum are as large in its small entries. The
    cosine notices errors that all have one sign or follow one pattern, below the tolerance of single entries.
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, expected {expected.shape}"
    assert np.isfinite(actual).all(), f"{name}: not finite: {actual}"
    assert np.isfinite(expected).all(), f"{name}: the expected gradient is not finite: {expected}"
    allowed = atol + rtol * np.abs(expected).max(initial=0.0)
    worst = np.abs(actual - expected).max(initial=0.0)
    assert worst <= allowed, f"{name}: off by {worst:.3e}, allowed {allowed:.3e}\n{actual}\n{expected}"
    size = np.linalg.norm(actual) * np.linalg.norm(expected)
    if np.linalg.norm(expected) > atol * np.sqrt(expected.size):
        cosine = float((actual * expected).sum() / size) if size > 0.0 else 0.0
        assert cosine >= min_cosine, f"{name}: cosine {cosine:.6f}, expected at least {min_cosine}"
