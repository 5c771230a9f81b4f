"""Data in memory: arrays, data frames and xarray objects become matrices with labels."""
