"""Speaks the demo's recordings: call-centre sentences, in the formats recorders really write.

    python -m bench.make_recordings FOLDER

Needs flite and ffmpeg. The result is shipped in bench/recordings, so that nobody else needs them;
manifest.json there holds the words of each file. The speech is synthetic, by flite's free voices.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

AGENT, CUSTOMER = "slt", "rms"

GREETING = "Thank you for calling. How can I help you today?"
PROBLEM = "My internet connection stopped working this morning, and the red light is blinking."
QUESTION = "Have you tried to turn the box off and on again?"
ANSWER = "Yes, I did that two times, but nothing has changed."
PROMISE = "I will send an engineer to your house tomorrow between eight and ten."
THANKS = "Thank you very much for your help."
GOODBYE = "You are welcome. Have a nice day."

LINES = [
    "Good morning. I would like to change the address on my account.",
    "We moved to a new house last week, and the old one is sold.",
    "Could you please send the next letter to the new address?",
    "The price of the large package is twenty pounds a month.",
    "I ordered a black table, but a white one was delivered.",
    "Please keep the box, because the driver will collect it on Friday.",
    "The money will be back in your bank account after three days.",
    "I have been waiting for an answer since the beginning of May.",
    "My daughter lost her phone at the station yesterday evening.",
    "We can block the card now and send you a new one.",
    "The train to the city leaves every thirty minutes.",
    "There is a problem with the water in our kitchen.",
    "The doctor can see you on Monday morning or on Thursday afternoon.",
    "Please bring your passport and a letter from your bank.",
    "The office is open from nine in the morning until five in the afternoon.",
    "I would like to speak with someone about my last bill.",
    "It is much higher than the bill of the month before.",
    "I can see that the meter was read two times.",
    "We are sorry for the trouble, and we will correct the bill today.",
    "You will receive a message when everything is done.",
    "The garden behind the hotel is closed during the winter.",
    "Breakfast is served on the second floor until ten in the morning.",
    "My flight was late, so I missed the last bus to the village.",
    "The insurance covers the damage to the car and the garage door.",
    "Please write down the number that I am going to give you now.",
    "The software needs to be updated before it can be used again.",
]


@dataclass(frozen=True)
class Recording:
    """One file to make."""

    name: str
    lines: tuple[str, ...]
    encode: str
    """ffmpeg's output options."""
    voices: tuple[str, ...] = (AGENT,)
    """Taken in turn, one a line."""
    pause_s: float = 0.6
    two_sided: bool = False
    """The first voice on the left channel, the second on the right."""


CALL = (GREETING, PROBLEM, QUESTION, ANSWER, PROMISE, THANKS, GOODBYE)
BOTH = (AGENT, CUSTOMER)

RECORDINGS = [
    Recording("greeting_mulaw_8k.wav", (GREETING,), "-ar 8000 -c:a pcm_mulaw"),
    Recording("bill_gsm_8k.wav", tuple(LINES[15:19]), "-ar 8000 -c:a libgsm_ms", (CUSTOMER,)),
    Recording("two_sided_call.wav", CALL, "-ar 8000 -c:a pcm_mulaw", BOTH, two_sided=True),
    Recording("new_address.mp3", tuple(LINES[0:3]), "-ar 16000 -b:a 32k", (CUSTOMER,)),
    Recording("wrong_table.m4a", tuple(LINES[4:7]), "-ar 16000 -b:a 32k", BOTH),
    Recording("lost_phone.opus", tuple(LINES[8:10]), "-ar 16000 -c:a libopus -b:a 20k", BOTH),
    Recording("hotel.flac", (LINES[20],), "-ar 16000"),
    Recording("voicemail_alaw_8k.wav", (LINES[7],), "-ar 8000 -c:a pcm_alaw", (CUSTOMER,)),
    Recording("browser.webm", tuple(LINES[12:15]), "-ar 48000 -c:a libopus -b:a 20k"),
    Recording("switchboard.aac", tuple(LINES[10:12]), "-ar 16000 -b:a 32k", (CUSTOMER,)),
    Recording("late_flight.ogg", tuple(LINES[22:24]), "-ar 16000 -c:a libvorbis -q:a 2", BOTH),
    Recording("trunk.ulaw", (LINES[24], LINES[25]), "-ar 8000 -c:a pcm_mulaw -f mulaw"),
    Recording("mono_call_adpcm.wav", CALL, "-ar 8000 -c:a adpcm_ima_wav", BOTH, pause_s=1.5),
    Recording("long_call.mp3", tuple(LINES + LINES[:20]), "-ar 16000 -b:a 24k", BOTH, 0.9),
]


def main(folder: Path) -> None:
    """Make every recording and the manifest of their words."""
    folder.mkdir(parents=True, exist_ok=True)
    for recording in RECORDINGS:
        with tempfile.TemporaryDirectory() as scratch:
            make(recording, folder / recording.name, Path(scratch))
    manifest = {recording.name: " ".join(recording.lines) for recording in RECORDINGS}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def make(recording: Recording, target: Path, scratch: Path) -> None:
    """Speak the lines, join them with pauses, encode."""
    inputs, labels = [], []
    for number, (line, voice) in enumerate(
        zip(recording.lines, cycle(recording.voices), strict=False)
    ):
        spoken = scratch / f"{number}.wav"
        run("flite", "-voice", voice, "-t", line, "-o", str(spoken))
        inputs += ["-i", str(spoken)]
        side = number % 2 if recording.two_sided else 0
        pan = "stereo|c0=c0|c1=0*c0" if side == 0 else "stereo|c0=0*c0|c1=c0"
        pan = pan if recording.two_sided else "mono|c0=c0"
        labels.append(
            f"[{number}]aresample=16000,pan={pan},apad=pad_dur={recording.pause_s}[s{number}]"
        )
    joined = "".join(f"[s{n}]" for n in range(len(labels)))
    graph = ";".join([*labels, f"{joined}concat=n={len(labels)}:v=0:a=1[all]"])
    run(
        *("ffmpeg", "-v", "error", "-y", *inputs, "-filter_complex", graph, "-map", "[all]"),
        *("-bitexact", *recording.encode.split(), str(target)),
    )


def run(*command: str) -> None:
    """Run a program; its failure ends this one."""
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
