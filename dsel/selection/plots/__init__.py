"""Pictures of a selection, drawn with matplotlib. Each module draws one picture and describes it in words."""
