"""The HTTP door: requests in, JSON out. It decides nothing; steps and questions of the store do.

app.py        puts it together: create()
given.py      what an endpoint is given: the parts, the id of a job or batch
problems.py   the one table from errors to HTTP answers
bodies.py     what requests and answers look like
form.py       a multipart body to one file on disk, whatever its size
submitted.py  a submission as it was sent, form or JSON; said.py reads its fields
uploads.py    POST /v1/jobs, carried out once for each key (idempotency.py)
status.py     a job, its transcript, lists of jobs; cancel, retry, erase
batches.py    a batch, lists of batches, cancel; its events as they come (events.py)
order.py      the queue and its policy
health.py     is it alive, can it work
"""
