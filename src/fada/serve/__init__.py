"""The desk: a web page and its HTTP interface, on which a scholar reads a manuscript together with a recogniser."""
