"""Tables of columns with names: text, Parquet, Arrow, and data frames in memory. All are read as Arrow record batches.

A table is read twice. The first time it is examined: how many rows, of what type is each column, which values cannot be
used. All problems are reported together, before anything is written. The second time its values are written (`source`).
To add another kind of table, write a `Table` (`base`).
"""
