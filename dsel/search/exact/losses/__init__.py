"""Proofs for losses other than the squared error: branch and bound on the perspective relaxation, in memory."""
