"""What every layer uses: compilation, BLAS threads, random streams, array types, versions."""
