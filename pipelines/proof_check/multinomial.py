"""Check proofs for three or more classes against all subsets, fitted by an independent Newton method.

The fits have the scores of all classes in extended precision, and not the coordinates that `dsel` has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsel.objective.losses.multinomial import Multinomial
from dsel.search.exact.losses.proof import LossProblem
from pipelines.proof_check.families import with_sums

Long = NDArray[np.longdouble]
_STEPS = 200


def random_classes(seed: int, index: int) -> tuple[str, LossProblem, int, tuple[int, ...], tuple[int, ...]]:
    """Return a name, a problem, the size of its subsets, and the columns in and out of all, by number."""
    rng = np.random.default_rng([seed, index, 13])
    m, n, q = int(rng.integers(8, 40)), int(rng.integers(3, 7)), int(rng.integers(3, 6))
    Z = rng.standard_normal((m, n))
    shape = str(rng.choice(["normal", "correlated", "copies", "binary", "scaled", "sums"]))
    if shape == "correlated":
        Z = 0.3 * Z + rng.standard_normal((m, 1))
    elif shape == "copies":
        Z[:, -1] = Z[:, 0] + 10.0 ** rng.uniform(-6, -1) * rng.standard_normal(m)
    elif shape == "binary":
        Z = (Z > 0.7).astype(np.float64)
    elif shape == "scaled":
        Z *= 10.0 ** rng.uniform(-2, 2, n)
    elif shape == "sums":
        Z = with_sums(Z, rng)
    signal = Z[:, :2] / np.maximum(Z[:, :2].std(axis=0), 1e-9) @ rng.standard_normal((2, q))
    y = (rng.choice([0.0, 1.0, 3.0]) * signal + rng.gumbel(size=(m, q))).argmax(axis=1).astype(np.float64)
    y[:q] = np.arange(q)
    w = np.ones(m) if rng.random() < 0.5 else 10.0 ** rng.uniform(-2, 2, m)
    penalty = str(rng.choice(["lam", "lam", "tiny", "none"]))
    size = float(np.median(np.einsum("i,ij,ij->j", w, Z, Z)))
    lam = max(size, 1e-6) * 10.0 ** float(rng.uniform(-3, 1) if penalty == "lam" else rng.uniform(-5, -3))
    lam = 0.0 if penalty == "none" else lam
    k = int(rng.integers(1, min(n, 4)))
    order = rng.permutation(n).tolist()
    include = tuple(order[: int(rng.integers(0, k + 1))]) if rng.random() < 0.3 else ()
    exclude = tuple(order[-1:]) if rng.random() < 0.3 and len(include) + 1 < n else ()
    loss = Multinomial().fitted_to(y)
    problem = LossProblem(Z, y, w, np.zeros(m), loss, lam, bool(rng.random() < 0.8))
    return f"multinomial {q} {shape} {penalty}", problem, k, include, exclude


def fitted_classes(problem: LossProblem, subsets: Sequence[tuple[int, ...]]) -> tuple[Long, Long]:
    """Return F of subsets of columns, and the longest vector of coefficients of each."""
    fits = [_newton(problem, np.asarray(S, np.int64)) for S in subsets]
    return np.array([f for f, _ in fits]), np.array([size for _, size in fits])


def _newton(problem: LossProblem, S: NDArray[np.int64]) -> tuple[np.longdouble, np.longdouble]:
    q, s = len(problem.loss.parameters()["classes"]), S.size
    w, y = np.asarray(problem.w, np.longdouble), np.eye(q)[problem.y.astype(int)].astype(np.longdouble)
    ones = np.full((y.shape[0], 1), 1.0 if problem.intercept else 0.0)
    X = np.concatenate([np.asarray(problem.Z[:, S], np.longdouble), ones], axis=1)
    lam = np.array([problem.lam] * s + [0.0], np.longdouble)[:, None]

    def at(B: Long) -> tuple[np.longdouble, Long]:
        scores = X @ B
        top = scores.max(axis=1, keepdims=True)
        p = np.exp(scores - top)
        total = p.sum(axis=1, keepdims=True)
        logs = np.log(total[:, 0]) + top[:, 0] - (scores * y).sum(axis=1)
        return 2 * (w * logs).sum() + (lam * B * B).sum(), p / total

    B = np.zeros((s + 1, q), np.longdouble)
    f, p = at(B)
    for _ in range(_STEPS):
        g = 2 * X.T @ (w[:, None] * (p - y)) + 2 * lam * B
        H = np.zeros((s + 1, q, s + 1, q), np.longdouble)
        for c in range(q):
            for d in range(q):
                curvature = 2 * w * p[:, c] * ((c == d) - p[:, d])
                H[:, c, :, d] = X.T @ (X * curvature[:, None])
        for i in range(s):
            H[i, range(q), i, range(q)] += 2 * problem.lam
        step = -_solve(H.reshape(B.size, B.size), g.ravel()).reshape(B.shape)
        share = np.longdouble(1.0)
        for _ in range(45):
            found, new = at(B + share * step)
            if found < f:
                break
            share /= 2
        else:
            break
        settled = f - found <= np.longdouble(1e-18) * abs(f)
        B, f, p = B + share * step, found, new
        if settled:
            break
    return f, np.sqrt((B[:s] ** 2).sum(axis=1)).max(initial=0)


def _solve(H: Long, g: Long) -> Long:
    """Return a solution of a positive semidefinite system, refined in extended precision."""
    scale = 1 / np.sqrt(np.maximum(np.diag(H), np.longdouble(1e-300)))
    A = H * scale[:, None] * scale
    inverse = np.linalg.pinv(A.astype(np.float64), rcond=1e-13, hermitian=True).astype(np.longdouble)
    x, b = np.zeros_like(g), g * scale
    for _ in range(4):
        x = x + inverse @ (b - A @ x)
    return np.asarray(x * scale)
