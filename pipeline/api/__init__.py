"""The HTTP door: requests in, JSON out. It decides nothing; steps and questions of the store do.

app.py          puts it together: create()
given.py        what an endpoint is given: the parts, the id of a job
problems.py     the one table from errors to HTTP answers
bodies.py       what requests and answers look like
form.py         a multipart body to one file on disk, whatever its size
uploads.py      POST /v1/jobs
status.py       a job, its transcript, lists of jobs, cancel
transcripts.py  a transcript as an answer, in every format
openai.py       OpenAI's audio API; its form, bodies, errors and description are in openai_*.py
order.py        the queue and its policy
health.py       is it alive, can it work
described.py    what /openapi.json says; examples.py puts its examples together
"""
