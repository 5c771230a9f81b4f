"""Where work runs: threads or Dask. The only home of `distributed`."""
