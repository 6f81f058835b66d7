"""Rules of text: heard windows in, one transcript out, in any format. Pure functions."""
