"""A selection as HTML: one page with pictures, and the short form that notebooks show."""
