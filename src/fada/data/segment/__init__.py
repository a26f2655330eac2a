"""Lines on a page: where the text is, in which order it is read, and the outline and baseline of every line."""
