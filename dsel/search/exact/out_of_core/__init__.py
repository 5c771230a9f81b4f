"""Proofs about columns whose Gram matrix does not fit into memory."""
