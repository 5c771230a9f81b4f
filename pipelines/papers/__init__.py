"""The papers' tables, computed again."""
