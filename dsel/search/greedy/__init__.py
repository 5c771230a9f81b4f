"""Greedy methods: forward, backward, exchange and their relatives."""
