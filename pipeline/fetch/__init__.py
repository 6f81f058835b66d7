"""Ways out to callers' URLs, and no way into our own house: recordings in, news of jobs out.

urls.py        which URLs are taken, what of them is shown, what their files are called
addresses.py   which addresses may be asked, and the connection to exactly those
fetcher.py     one recording over HTTP: redirects, limits, and what went wrong in a sentence
poster.py      one message to a webhook, through the same guard
"""
