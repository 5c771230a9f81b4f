"""PPOSS, synchronous and asynchronous: tasks for workers, the archive in one place."""
