"""Where workers come from and what is done on them: the only home of `distributed`."""
