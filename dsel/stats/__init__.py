"""Passes over the data, block by block, and the artefacts they leave."""
