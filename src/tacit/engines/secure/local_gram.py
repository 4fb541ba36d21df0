"""Secure Gram matrix with all parties in this process: the server sees noisy products of columns alone."""

import secrets

import numpy as np

from tacit.aggregation.secure.products import ProductSession, secure_products
from tacit.learning.task import Updates
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.runtime.threads import one_thread


def multiply_locally(updates: Updates, mechanism: SecureGram) -> Updates:
    """Return the one row that a server sees: noisy sums of products, with all parties in this process.

    Args:
        updates: The output of `mechanism.at_site` for each party, in the order of `mechanism.widths`.
        mechanism: The layout of the parties' columns, and the conversion of integers to numbers.

    Returns:
        One row of `order * (order + 1) / 2` numbers: the upper triangle, row by row and with the diagonal, of
        W'W + E, where W has a column of ones, then all parties' columns. The first entry is the number of
        records, without noise; `secure_gram.from_upper_triangle` makes it a matrix again.
    """
    (names,) = mechanism.groups(updates.names)
    products = ProductSession(
        run=secrets.token_hex(8),
        round=updates.round,
        names=names,
        widths=mechanism.columns,
        records=mechanism.records,
        colluders=mechanism.colluders,
    )
    with one_thread():
        brought = {
            name: mechanism.secure_input(party, row)
            for party, (name, row) in enumerate(zip(names, updates.matrix, strict=True))
        }
        total = secure_products(
            {name: rows.astype(np.uint32) for name, (rows, _) in brought.items()},
            {name: own for name, (_, own) in brought.items()},
            products=products,
        )
    return Updates(("all parties",), mechanism.decode(total)[None], round=updates.round)
