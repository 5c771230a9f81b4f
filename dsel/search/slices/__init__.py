"""POSS and PPOSS by slices: iterations on snapshots of the archive that any worker runs, with the same bits."""
