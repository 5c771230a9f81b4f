"""The functions of `dsel`: `select.py`, `proofs.py` and `sums.py` say what they do, and import it when called."""
