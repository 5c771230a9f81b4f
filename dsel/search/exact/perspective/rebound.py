"""Bound all nodes of a kept tree on other data, in one compiled loop.

The nodes come in the order of a walk from the root, so that a node knows which columns the nodes above it have fixed. A
node is bounded by its kept coefficients. If its relaxation may exclude it and the coefficients do not, a few rounds of
coordinate descent improve them, as in `dsel.search.exact.perspective.relaxation`. A node that is excluded takes its
subtree with it. Otherwise its reduced costs fix columns for the nodes below.

A node with n columns, s of them with coefficients, costs O(n s) and each round O(s^2) more.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Bools, Floats, Int, Ints
from dsel.search.exact.perspective.coordinate_descent import descend

#: What becomes of a node: it lies below one that is excluded, it is excluded, it was split before, or it is open.
GONE, CLOSED, INNER, OPEN = 0, 1, 2, 3
#: Most rounds of coordinate descent, sweeps of each, and columns that enter in each.
_ROUNDS, _SWEEPS, _ENTERING = 6, 25, 60
#: A sweep that changes no coefficient by more than this, over the level t, is the last one of a round.
_SETTLED = 1e-3
#: d log(sum of the weights) / d log t at first, and its limits. The most by which log t changes.
_SLOPE, _STEEPEST, _FLATTEST, _MOST_CHANGE = -2.0, -30.0, -1.0, 1.0


@compiled("f8(f8[:,::1], f8[:,::1], f8[::1], b1[::1], b1[::1], f8[:,::1], f8[:,::1], f8[::1])", nogil=True)
def _dual(
    K: Floats, c: Floats, d: Floats, fixed: Bools, out: Bools, b: Floats, r: Floats, g: Floats
) -> float:  # fmt: skip
    """Write r = c - (K - D) b (n, N) and g (n,), and return b'(K - D)b. b (n, N) is zero where columns are out."""
    n, N = c.shape
    for i in range(n):
        for a in range(N):
            r[i, a] = c[i, a]
    for j in range(n):
        for a in range(N):
            x = b[j, a]
            if x != 0.0:
                row = K[j]
                for i in range(n):
                    r[i, a] -= x * row[i]
                r[j, a] += x * d[j]
    fitted = 0.0
    for i in range(n):
        total = 0.0
        for a in range(N):
            total += r[i, a] * r[i, a]
            if b[i, a] != 0.0:
                fitted += b[i, a] * (c[i, a] - r[i, a])
        g[i] = total / d[i]
    return fitted


@compiled("i8(f8[::1], b1[::1], b1[::1], i8, i8[::1])", nogil=True)
def _first(g: Floats, fixed: Bools, out: Bools, count: Int, order: Ints) -> int:
    """Write the `count` free columns with the largest g, the first of equal ones first, and return how many there are.

    order has room for `count` columns.
    """
    found: Int = np.int64(0)
    for j in range(g.size):
        if fixed[j] or out[j] or (found == count and not g[j] > g[order[found - 1]]):
            continue
        place = found if found < count else count - 1
        while place > 0 and g[j] > g[order[place - 1]]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = j
        found = min(found + 1, count)
    return int(found)


@compiled("f8(f8[::1], i8, i8)", nogil=True, allocates=True)
def _level(a: Floats, size: Int, q: Int) -> float:
    """Return t with sum of min(1, a_j / t) = q over the first `size` elements of a > 0, or 0 if at most q are there."""
    if size <= q:
        return 0.0
    if q == 0:
        return np.inf
    found = np.sort(a[:size])  # the smallest first
    rest = found.sum()
    for whole in range(q):  # this many have weight 1, and the others share what is left
        t = rest / (q - whole)
        largest = found[size - whole - 1]
        if largest <= t:
            return float(t)
        rest -= largest
    return float(found[size - q])


@compiled("f8(f8[:,::1], f8[:,::1], f8[::1], b1[::1], b1[::1], i8, f8[:,::1], f8[:,::1], f8[::1])",
          nogil=True, allocates=True)  # fmt: skip
def _explained(
    K: Floats, c: Floats, d: Floats, fixed: Bools, out: Bools, q: Int, b: Floats, r: Floats, a: Floats
) -> float:  # fmt: skip
    """Return E of coefficients: the relaxation excludes a node only if E is small enough. a (n,): room."""
    E, size = 0.0, 0
    for j in range(d.size):
        squared, product, quadratic = 0.0, 0.0, 0.0
        for x in range(c.shape[1]):
            squared += b[j, x] * b[j, x]
            product += b[j, x] * c[j, x]
            quadratic += b[j, x] * (c[j, x] - r[j, x])
        if squared == 0.0:
            continue
        E += 2.0 * product - quadratic
        if fixed[j]:
            E -= d[j] * squared
        else:
            a[size] = np.sqrt(d[j] * squared)
            size += 1
    t = _level(a, size, q)
    for i in range(size):
        E -= a[i] * max(a[i], t)
    return E


@compiled("f8(f8[:,::1], f8[:,::1], f8[::1], f8[::1], b1[::1], b1[::1], i8, f8, f8, f8[:,::1], f8[:,::1], f8[::1],"
          " i8[::1], f8[::1], f8[:,::1])", nogil=True, allocates=True)  # fmt: skip
def _improve(
    K: Floats, c: Floats, d: Floats, root: Floats, fixed: Bools, out: Bools, q: Int, bound: float, enough: float,
    b: Floats, r: Floats, g: Floats, order: Ints, room: Floats, best: Floats,
) -> float:  # fmt: skip
    """Improve coefficients b (n, 1) until they exclude a node, or cannot; return the least bound. best: those with it.

    r, g: of b, which change with it. order, room: of n elements.
    """
    n = d.size
    last_log, last_excess, settled = 0.0, 0.0, _SETTLED
    size = 0
    for j in range(n):
        if not fixed[j] and b[j, 0] != 0.0:
            room[size] = abs(b[j, 0]) * root[j]
            size += 1
    t = _level(room, size, q)
    if t == 0.0:
        found = _first(g, fixed, out, q + 1, order)
        t = np.sqrt(g[order[found - 1]]) if found == q + 1 else 0.0
    if not (0.0 < t < np.inf):
        return bound
    for round in range(_ROUNDS):
        used = np.empty(n, np.int64)
        count, entering = 0, 0
        for j in range(n):
            if fixed[j] or b[j, 0] != 0.0 or (not out[j] and g[j] > t * t and entering < _ENTERING):
                entering += 0 if fixed[j] or b[j, 0] != 0.0 else 1
                used[count] = j
                count += 1
        W = used[:count]
        part, own, left = np.empty((count, count)), np.empty(count), np.empty(count)
        own_d, own_root, own_fixed = np.empty(count), np.empty(count), np.empty(count, np.bool_)
        no_limit = np.full(count, np.inf)
        for x in range(count):
            j = W[x]
            own[x], left[x], own_d[x], own_root[x], own_fixed[x] = b[j, 0], r[j, 0], d[j], root[j], fixed[j]
            row = K[j]
            for y in range(count):
                part[x, y] = row[W[y]]
        sweeps = descend(part, own_d, own_root, no_limit, own_fixed, t, _SWEEPS, settled * t, own, left)
        sum_of_weights = 0.0
        for x in range(count):
            b[W[x], 0] = own[x]
            if not own_fixed[x]:
                sum_of_weights += min(abs(own[x]) * own_root[x] / t, 1.0)
        fitted = _dual(K, c, d, fixed, out, b, r, g)
        new = _bound(g, fixed, out, q, fitted, order)
        if new < bound:
            bound = new
            best[:] = b
        E = _explained(K, c, d, fixed, out, q, b, r, room)
        if bound <= enough or enough < E or new - E < 1e-7 * abs(new):
            return bound
        excess = np.log(max(sum_of_weights, 0.05 * q) / max(q, 1))
        if abs(excess) < 0.05 and sweeps < _SWEEPS:
            settled *= 0.1
        slope, log_t = _SLOPE, np.log(t)
        if round > 0 and abs(log_t - last_log) > 1e-9:
            slope = min(max((excess - last_excess) / (log_t - last_log), _STEEPEST), _FLATTEST)
        last_log, last_excess = log_t, excess
        t *= np.exp(min(max(-excess / slope, -_MOST_CHANGE), _MOST_CHANGE))
    return bound


@compiled("f8(f8[::1], b1[::1], b1[::1], i8, f8, i8[::1])", nogil=True)
def _bound(g: Floats, fixed: Bools, out: Bools, q: Int, fitted: float, order: Ints) -> float:
    """Return the bound of a node. Afterwards `order` begins with the q + 1 free columns with the largest g."""
    found = _first(g, fixed, out, q + 1, order)
    bound = fitted
    for j in range(g.size):
        if fixed[j]:
            bound += g[j]
    for x in range(min(q, found)):
        bound += g[order[x]]
    return bound


@compiled("void(f8[::1], b1[::1], b1[::1], i8, f8, f8, i8[::1])", nogil=True, allocates=True)
def _fix(g: Floats, fixed: Bools, out: Bools, q: Int, bound: float, enough: float, order: Ints) -> None:
    """Fix the columns whose other choice explains no more than `enough`. order: see `_bound`."""
    last, first_out = g[order[q - 1]], g[order[q]]
    inside = np.zeros(g.size, np.bool_)
    for x in range(q):
        inside[order[x]] = True
    for j in range(g.size):
        if fixed[j] or out[j]:
            continue
        if inside[j]:
            fixed[j] = bound - g[j] + first_out <= enough
        else:
            out[j] = bound - last + g[j] <= enough


@compiled("i8(f8[:,::1], f8[:,::1], f8[::1], i8, f8, i8[:,::1], i8[::1], f8[:,::1], b1[:,:,::1], f8[::1], i8[::1],"
          " i8[::1], f8[:,::1], i8[:,::1], b1[:,:,::1], f8[::1], i8)", nogil=True, allocates=True)  # fmt: skip
def rebound(
    K: Floats, c: Floats, d: Floats, k: Int, enough: float, nodes: Ints, support: Ints, values: Floats, masks: Bools,
    bounds: Floats, states: Ints, new_support: Ints, new_values: Floats, opened: Ints, opened_masks: Bools,
    opened_bounds: Floats, start: Int,
) -> int:  # fmt: skip
    """Bound nodes from number `start` on, until all are bounded or `opened` is full; return the number of the next one.

    K (n, n), c (n, N), d (n,): of the relaxation. k: the most columns. enough: a node that explains at most this is
    excluded. nodes (M, 6): depth, last step (j + 1 if column j is in, -(j + 1) if it is out), column that it was split
    at (-1: a leaf), which children are kept (1: that with the column, 2: that without), and first and last place of its
    coefficients in `support` and `values`. masks (2, depths, n): the columns that are in and out, by depth.

    Written are bounds (M,), states (M,), and, for improved coefficients, places in new_support, new_values and `nodes`
    (their number is the first element of new_support). opened (rows, 2): the number of an open node and 0, or
    the number of its parent and the step from there. Row 0 begins with the number of rows. opened_masks (2, rows, n),
    opened_bounds (rows,): their columns that are in and out, and their bounds.
    """
    n, N = c.shape
    root = np.sqrt(d)
    b, best, r, g = np.zeros((n, N)), np.zeros((n, N)), np.zeros((n, N)), np.zeros(n)
    order, room = np.zeros(n + 1, np.int64), np.zeros(n)
    opened[0, 0] = 1
    gone = np.int64(1 << 60)
    for i in range(start, nodes.shape[0]):
        if opened[0, 0] + 2 >= opened.shape[0]:
            return i
        depth, column = nodes[i, 0], nodes[i, 2]
        if depth > gone:
            states[i] = GONE
            continue
        gone = np.int64(1 << 60)
        contradiction = depth > 0 and _contradicts(masks, depth, nodes[i, 1])
        fixed, out = masks[0, depth], masks[1, depth]
        states[i] = CLOSED
        q, free = np.int64(k), np.int64(0)
        for j in range(n):
            q -= 1 if fixed[j] else 0
            free += 0 if fixed[j] or out[j] else 1
        if contradiction or q < 0:
            gone = depth
            continue
        b[:] = 0.0
        for x in range(nodes[i, 4], nodes[i, 5]):
            if not out[support[x]]:
                b[support[x]] = values[x]
        bounded = 0 < q < free
        fitted = _dual(K, c, d, fixed, out, b, r, g)
        bound = _bound(g, fixed, out, q, fitted, order)
        if bounded and N == 1 and bound > enough and not _explained(K, c, d, fixed, out, q, b, r, room) > enough:
            best[:] = b
            new = _improve(K, c, d, root, fixed, out, q, bound, enough, b, r, g, order, room, best)
            improved = new < bound
            b[:] = best
            fitted = _dual(K, c, d, fixed, out, b, r, g)
            bound = _bound(g, fixed, out, q, fitted, order)  # of g and order, from which columns are fixed
            if improved:
                _keep(nodes, i, b, new_support, new_values)
        bounds[i] = bound
        if bound <= enough:
            gone = depth
            continue
        if column < 0 or not bounded:
            states[i] = OPEN
            gone = depth
            _open(opened, opened_masks, opened_bounds, i, np.int64(0), fixed, out, bound)
            continue
        states[i] = INNER
        _fix(g, fixed, out, q, bound, enough, order)
        for side in range(2):
            if nodes[i, 3] & (1 << side) or (out[column] if side == 0 else fixed[column]):
                continue
            step = column + 1 if side == 0 else -column - 1
            _open(opened, opened_masks, opened_bounds, i, step, fixed, out, bound)
    return int(nodes.shape[0])


@compiled("b1(b1[:,:,::1], i8, i8)", inner=True)
def _contradicts(masks: Bools, depth: Int, step: Int) -> bool:
    """Write the columns that are in and out after a step from the depth above; return whether it contradicts them."""
    for side in range(2):
        for i in range(masks.shape[2]):
            masks[side, depth, i] = masks[side, depth - 1, i]
    j, way = max(step, -step) - 1, 0 if step > 0 else 1
    masks[way, depth, j] = True
    return bool(masks[1 - way, depth, j])


@compiled("void(i8[:,::1], b1[:,:,::1], f8[::1], i8, i8, b1[::1], b1[::1], f8)", inner=True)
def _open(
    opened: Ints, masks: Bools, bounds: Floats, i: Int, step: Int, fixed: Bools, out: Bools, bound: float
) -> None:  # fmt: skip
    """Add a row to the open nodes: node i, or its child after a step."""
    row = opened[0, 0]
    opened[row, 0], opened[row, 1], bounds[row] = i, step, bound
    for j in range(fixed.size):
        masks[0, row, j], masks[1, row, j] = fixed[j], out[j]
    if step != 0:
        masks[0 if step > 0 else 1, row, max(step, -step) - 1] = True
    opened[0, 0] = row + 1


@compiled("void(i8[:,::1], i8, f8[:,::1], i8[::1], f8[:,::1])", nogil=True)
def _keep(nodes: Ints, i: Int, b: Floats, support: Ints, values: Floats) -> None:
    """Write the coefficients of node i to new places, if there is room. Their numbers in `nodes` become negative."""
    first = support[0]
    place = first
    for j in range(b.shape[0]):
        if b[j, 0] != 0.0:
            if place == support.size:
                return
            support[place] = j
            values[place, 0] = b[j, 0]
            place += 1
    support[0] = place
    nodes[i, 4], nodes[i, 5] = -first, -place


#: What a kept tree needs.
REBOUND_KERNELS = (rebound,)
