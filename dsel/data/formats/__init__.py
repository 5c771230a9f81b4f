"""File formats from which a store can be made, one module per format. See `base` to add one."""
