"""A server that adds, and a client. Both are in this program; a client in another language gets the same answers."""

import thalweg


@thalweg.message
class Sum:
    left: thalweg.i64
    right: thalweg.i64


@thalweg.message
class Total:
    total: thalweg.i64


with thalweg.Node("calculator") as there, thalweg.Node("asker") as here:
    server = there.server("/add", Sum, Total, lambda sum: Total(sum.left + sum.right))
    print("2 + 3 =", here.client("/add", Sum, Total).call(Sum(2, 3), timeout=5).total)
