"""How a pass runs: in waves of tasks, merged in a fixed order, saved on the way, and counted."""
