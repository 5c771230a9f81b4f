"""The base of every method's options."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Options of a method. An unknown option is an error.

    Each method has its own subclass. A method without options uses this class itself.
    """

    model_config = ConfigDict(extra="forbid")

    def conflict(self, criterion: bool) -> str:
        """Return which options do not go together, or an empty string.

        Parameters
        ----------
        criterion : bool
            Whether the user's criterion replaces the squared error.
        """
        return ""

    def conflict_with_groups(self) -> str:
        """Return which options cannot be used for groups of columns, or an empty string."""
        return ""
