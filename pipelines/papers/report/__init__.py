"""One report of all papers: its parts, and how they are saved and written."""
