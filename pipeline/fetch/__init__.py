"""Recordings from where a caller says they are: URLs in, bytes out, and no way into our own house.

urls.py        which URLs are taken, what of them is shown, what their files are called
addresses.py   which addresses may be asked, and the connection to exactly those
fetcher.py     one recording over HTTP: redirects, limits, and what went wrong in a sentence
"""
