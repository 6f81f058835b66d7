"""Everything that can go wrong, named for what happened.

    FairscribeError
     +- RecordingRefused           this file cannot become a transcript; trying again will not help
     |   +- EmptyRecording
     |   +- NotAudio
     |   +- NoAudioStream
     |   +- NoSamples
     |   +- DamagedAudio
     |   +- UnsupportedAudio
     |   +- TooLong
     |   +- TooLarge
     |   +- LimitExceeded
     |   +- ParserCrashed
     +- JobFailed                  the job ended without a transcript though the file may be sound
     |   +- EngineCrashedOnJob
     |   +- WindowHung
     |   +- JobStuck
     |   +- LanguageUnknown
     |   +- RecordingMissing
     |   +- RecordingUnreadable
     |   +- FetchFailed
     |   |   +- FetchInterrupted   it may go better later
     |   +- UnexpectedError
     +- LeaseLost                  somebody else holds the job, or it ended: write nothing
     +- EngineDead                 the speech engine died under a window
     |   +- EngineHung             it answers nothing any more
     |   +- EnginePoisoned         what it answers is not what it heard
     |   +- EngineFull             it needed more memory than there was
     +- WindowLate                 the engine gave this one window no answer in time
     +- WindowRefused              the engine cannot hear this one window
     +- PartDown                   Postgres, Redis or storage does not answer
     |   +- SoundUnreadable        storage does, but for this one file
     +- NoSuchJob
     +- NoSuchBatch
     +- NoSuchCall
     +- NoSuchModel
     +- NoSuchTrial
     +- NoSuchKey
     +- NoSuchWebhook
     +- NoSuchDelivery
     +- NoRecording                of this job, or none yet
     +- Erased                     it was there; its days were over, or somebody erased it
     +- TrialRunning               another trial of a policy has not ended
     +- TooFewJobs                 nothing can be foretold by so few recorded jobs
     +- TranscriptNotReady
     +- NotRetryable               a retry of a job that has not failed, or has nothing to try with
     +- RequestInProgress          the same Idempotency-Key is being carried out
     +- SignatureRefused           a webhook's message was not signed by us, or is an old one
     +- NotAllowed                 who asks may not
     |   +- KeyMissing
     |   +- KeyUnknown
     |   +- ScopeMissing
     +- ComeLater                  not now: says when to ask again
     |   +- TooManyRequests
     |   +- BacklogFull
     +- BadRequest                 the caller's mistake, told in a sentence
     |   +- KeyReused              the same Idempotency-Key with another request
     |   +- UploadTooSlow
     |   +- OutOfRange             bytes that a recording does not have
     +- BadSetting                 a setting is refused at start

`code` is stable and public: it is stored with the job and sent to callers. The docstring is the
default message, a sentence for the person who uploaded the file. `advice` is what that person can
do now; it ends every message of an error that has one.
"""

from __future__ import annotations


class FairscribeError(Exception):
    """Something went wrong."""

    code = "error"
    advice = ""

    def __init__(self, message: str | None = None) -> None:
        said = message or (type(self).__doc__ or "").strip()
        # a message that crossed a process boundary has it already
        advised = not self.advice or said.endswith(self.advice)
        self.message = said if advised else f"{said.rstrip('.')}. {self.advice}"
        self.fact = said.removesuffix(self.advice).rstrip()
        """What happened, without the advice: for who did not upload the file."""
        super().__init__(self.message)


class RecordingRefused(FairscribeError):
    """The file cannot be transcribed."""

    code = "recording_refused"
    advice = "Send another copy of the recording."


class EmptyRecording(RecordingRefused):
    """The file is empty (0 bytes)."""

    code = "empty"
    advice = "Send it again from where it was recorded."


class NotAudio(RecordingRefused):
    """The file is not audio in any format we read."""

    code = "not_audio"
    advice = (
        "Send a sound file, WAV or MP3 for example; of sound without a header say its raw_format."
    )


class NoAudioStream(RecordingRefused):
    """The file is a video or container without any sound track."""

    code = "no_audio_stream"
    advice = "Send a file that has sound."


class NoSamples(RecordingRefused):
    """The file has an audio header but no sound in it."""

    code = "no_samples"
    advice = "Export it again from where it was recorded."


class DamagedAudio(RecordingRefused):
    """The file is damaged: none of its audio could be decoded."""

    code = "damaged"
    advice = "Send another copy of it."


class UnsupportedAudio(RecordingRefused):
    """The file is audio in a format we cannot decode."""

    code = "unsupported"
    advice = "Convert it, to WAV or FLAC for example, and send that."


class TooLong(RecordingRefused):
    """The recording is longer than this installation accepts."""

    code = "too_long"
    advice = "Cut it into parts, or ask the operator to raise FAIRSCRIBE_MAX_DURATION_H."


class TooLarge(RecordingRefused):
    """The file is larger than this installation accepts."""

    code = "too_large"
    advice = (
        "Send it compressed or in parts, or ask the operator to raise FAIRSCRIBE_MAX_UPLOAD_MB."
    )


class LimitExceeded(RecordingRefused):
    """Reading the file took more time or memory than any honest recording needs."""

    code = "limit_exceeded"
    advice = "Convert it, to WAV or FLAC for example, and send that."


class ParserCrashed(RecordingRefused):
    """The file made the audio reader crash; it was contained and nothing else was touched."""

    code = "parser_crashed"
    advice = "Convert it, to WAV or FLAC for example, and send that."


class JobFailed(FairscribeError):
    """The job ended without a transcript."""

    code = "failed"
    advice = "Retry it later; if it fails again, ask the operator."


class EngineCrashedOnJob(JobFailed):
    """The speech engine died each time it heard this recording, alone, so it was set aside."""

    code = "engine_crashed"
    advice = (
        "Ask the operator, for the worker's log tells more; retry it with another engine or model."
    )


class WindowHung(JobFailed):
    """The speech engine gave no answer to a part of this recording in time, several times."""

    code = "window_hung"
    advice = "Retry it later; if it fails again, ask the operator."


class JobStuck(JobFailed):
    """Work on this recording came to a standstill several times, while others went on."""

    code = "stuck"
    advice = "Retry it later; if it fails again, ask the operator."


class LanguageUnknown(JobFailed):
    """The model does not know the language that was asked for."""

    code = "language_unknown"
    advice = "Name another language, or ask the operator for a model that knows this one."


class RecordingMissing(JobFailed):
    """The stored recording is gone, so it cannot be transcribed any more."""

    code = "recording_missing"
    advice = "Send it again."


class RecordingUnreadable(JobFailed):
    """The stored sound of this recording could not be read, while that of others could."""

    code = "recording_unreadable"
    advice = "Ask the operator to see to storage, then retry it; if it fails again, send it again."


class FetchFailed(JobFailed):
    """The recording could not be fetched from its URL."""

    code = "fetch_failed"
    advice = "See that the URL can be opened without a password, and send it again."


class FetchInterrupted(FetchFailed):
    """The recording could not be fetched from its URL, several times."""

    advice = "Retry it later."


class UnexpectedError(JobFailed):
    """Something we did not foresee went wrong; the worker's log tells what."""

    code = "unexpected"
    advice = "Retry it; if it fails again, ask the operator."


class LeaseLost(FairscribeError):
    """The right to work on this job ran out or went to another worker."""

    code = "lease_lost"


class EngineDead(FairscribeError):
    """The speech engine died."""

    code = "engine_dead"


class EngineHung(EngineDead):
    """The speech engine gave no answer in time."""


class EnginePoisoned(EngineDead):
    """The speech engine is poisoned: its answers are not what it heard."""


class EngineFull(EngineDead):
    """The speech engine needed more memory than there was."""


class WindowLate(FairscribeError):
    """The speech engine gave this window no answer in time; it was given up."""

    code = "window_late"


class WindowRefused(FairscribeError):
    """The speech engine cannot hear this window."""

    code = "window_refused"
    advice = (
        "Ask the operator, for the worker's log tells more; retry it with another engine or model."
    )


class PartDown(FairscribeError):
    """A part this needs does not answer; try again shortly."""

    code = "part_down"


class SoundUnreadable(PartDown):
    """The stored file cannot be read, though storage answers; try again shortly."""


class NoSuchJob(FairscribeError):
    """There is no job with this id."""

    code = "no_such_job"


class NoSuchBatch(FairscribeError):
    """There is no batch with this id."""

    code = "no_such_batch"


class NoSuchCall(FairscribeError):
    """No recording names a call with this id."""

    code = "no_such_call"


class NoSuchModel(FairscribeError):
    """There is no such model here."""

    code = "no_such_model"


class NoSuchTrial(FairscribeError):
    """There is no trial with this id."""

    code = "no_such_trial"


class NoSuchKey(FairscribeError):
    """There is no API key with this id."""

    code = "no_such_key"


class NoSuchWebhook(FairscribeError):
    """There is no webhook with this id."""

    code = "no_such_webhook"


class NoSuchDelivery(FairscribeError):
    """There is no delivery with this id."""

    code = "no_such_delivery"


class NoRecording(FairscribeError):
    """There is no recording of this job: it was refused, or is not fetched yet."""

    code = "no_recording"


class Erased(FairscribeError):
    """It was erased: its days were over."""

    code = "erased"


class TrialRunning(FairscribeError):
    """Another trial of a policy runs; stop it, or wait for its end."""

    code = "trial_running"


class TooFewJobs(FairscribeError):
    """Too few recordings were transcribed lately to foretell anything by them."""

    code = "too_few_jobs"


class TranscriptNotReady(FairscribeError):
    """The job has no transcript yet."""

    code = "transcript_not_ready"


class NotRetryable(FairscribeError):
    """Only a job that failed or was cancelled can be tried again."""

    code = "not_retryable"


class RequestInProgress(FairscribeError):
    """A request with this Idempotency-Key is being carried out; ask again shortly."""

    code = "request_in_progress"


class SignatureRefused(FairscribeError):
    """The message was not signed with this secret, or was changed."""

    code = "signature_refused"


class NotAllowed(FairscribeError):
    """Not allowed."""

    code = "not_allowed"


class KeyMissing(NotAllowed):
    """An API key is needed: send it as `Authorization: Bearer KEY`."""

    code = "key_missing"


class KeyUnknown(NotAllowed):
    """The API key is not known here, has expired or was revoked."""

    code = "key_unknown"


class ScopeMissing(NotAllowed):
    """The API key does not allow this."""

    code = "scope_missing"


class ComeLater(FairscribeError):
    """Not now; ask again later."""

    code = "come_later"

    def __init__(self, retry_after_s: float, message: str | None = None) -> None:
        self.retry_after_s = retry_after_s
        """When to ask again, seconds from now."""
        super().__init__(message)


class TooManyRequests(ComeLater):
    """Too many requests with this API key; ask again later."""

    code = "rate_limited"


class BacklogFull(ComeLater):
    """More audio waits than this installation takes in; send it again later."""

    code = "backlog_full"


class BadRequest(FairscribeError):
    """The request cannot be understood."""

    code = "bad_request"


class KeyReused(BadRequest):
    """The Idempotency-Key was used before, for another request."""

    code = "idempotency_key_reused"


class UploadTooSlow(BadRequest):
    """The upload stood still, or came too slowly; send it again."""

    code = "upload_too_slow"


class OutOfRange(BadRequest):
    """The recording does not have the bytes that were asked for."""

    code = "range_not_satisfiable"

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        """What it has."""
        super().__init__()


class BadSetting(FairscribeError):
    """A setting has a value that cannot be used."""

    code = "bad_setting"


def refusal(code: str, message: str) -> RecordingRefused:
    """Rebuild a `RecordingRefused` that crossed a process boundary as (code, message)."""
    for kind in RecordingRefused.__subclasses__():
        if kind.code == code:
            return kind(message)
    return RecordingRefused(message)
