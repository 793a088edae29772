"""Makes the golden cases of recordings.

Usage: python make_sound_cases.py OUT OLD NEW, as make_cases.py, whose versions it shares, with soundfile, soxr and `ffmpeg` in PATH. Writes
sound_cases.json and files with the prefix "sound_".

desktop-env 0.1.22 ends with 1 / (1 + distance), ARPO's OSWorld with exp(-distance), of the same distance: scores of the ARPO era are converted.
"""

import math
import subprocess

import make_cases as base
import numpy as np
import soundfile
from make_cases import ABSENT, FILES, case, put

RATE = 22050
SECONDS = 0.3


def tone(hz, seconds=SECONDS, rate=RATE):
    time = np.arange(int(seconds * rate)) / rate
    return np.sin(2 * np.pi * hz * time) + 0.3 * np.sin(4 * np.pi * hz * time)


def tune(notes, rate=RATE, seconds=SECONDS):
    return 0.5 * np.concatenate([tone(hz, seconds / len(notes), rate) for hz in notes])


def sound(name, samples, rate=RATE, ending="flac", kind="PCM_16"):
    soundfile.write(FILES / f"sound_{name}.{ending}", samples, rate, subtype=kind)
    return {"file": f"files/sound_{name}.{ending}"}


def encoded(name, ending, *options):
    """The first tune, by ffmpeg."""
    command = ["ffmpeg", "-loglevel", "error", "-y", "-i", str(FILES / "sound_up.wav"), *options, "-map_metadata", "-1", "-bitexact"]
    subprocess.run([*command, str(FILES / f"sound_{name}.{ending}")], check=True, timeout=60)
    return {"file": f"files/sound_{name}.{ending}"}


def cases():
    random = np.random.default_rng(5)
    up, down = [262, 330, 392, 523], [523, 392, 330, 262]
    samples = tune(up)
    files = {
        "up": sound("up", samples, ending="wav"), "again": sound("again", samples), "down": sound("down", tune(down)), "quiet": sound("quiet", samples * 0.05), "noisy": sound("noisy", samples + random.normal(0, 0.02, len(samples))), "noise": sound("noise", random.normal(0, 0.1, len(samples))), "shorter": sound("shorter", samples[: len(samples) // 2]),
        "longer": sound("longer", np.concatenate([samples, tune(down)])), "late": sound("late", np.concatenate([np.zeros(2000), samples])), "slow": sound("slow", tune(up, seconds=0.4)), "short": sound("short", samples[:700]), "stereo": sound("stereo", np.stack([samples, np.zeros_like(samples)], 1)),
        "deep": sound("deep", samples[:2500], kind="PCM_24"), "real": sound("real", samples[:2000].astype(np.float32), ending="wav", kind="FLOAT"), "bytes": sound("bytes", samples, ending="wav", kind="PCM_U8"), "vorbis": sound("vorbis", samples, ending="ogg", kind="VORBIS"), "mp3": encoded("mp3", "mp3", "-b:a", "64k"),
        "cd": sound("cd", tune(up, 44100), 44100), "studio": sound("studio", tune(up, 48000), 48000), "phone": sound("phone", tune(up, 8000), 8000), "half": sound("half", tune(up, 11025), 11025), "radio": sound("radio", tune(up, 32000), 32000),
        # what cannot be read, whole or at all
        "cut": put("sound_cut.wav", (FILES / "sound_up.wav").read_bytes()[:3000]), "cut_header": put("sound_cut_header.wav", (FILES / "sound_up.wav").read_bytes()[:20]), "empty": put("sound_empty.wav", ""), "text": put("sound_text.wav", "no recording\n" * 20), "zeros": put("sound_zeros.mp3", bytes(600)), "absent": ABSENT,
    }
    for one, file in files.items():
        for other in dict.fromkeys(["up", "down", "mp3", "cd", "empty", one]):
            case(f"{one} {other}", "compare_audios", file, files[other])
    case("none up", "compare_audios", None, files["up"])
    # Nothing but themselves: of silence the original's coefficients are rounding errors, which it then scales up.
    silent = {"silence": sound("silence", np.zeros(len(samples))), "one": sound("one", samples[:1], ending="wav"), "header": sound("header", samples[:0], ending="wav")}
    for one, file in silent.items():
        for other in [one, "empty"]:
            case(f"{one} {other}", "compare_audios", file, (silent | files)[other])
            case(f"{other} {one}", "compare_audios", (silent | files)[other], file)


def converted(score):
    """From 1 / (1 + distance) to exp(-distance)."""
    return round(math.exp(1 - 1 / score), 9) if isinstance(score, float) and score > 0 else score


def main():
    FILES.mkdir(parents=True, exist_ok=True)
    cases()
    original = base.score

    def score(metrics, one):
        found = original(metrics, one)
        return converted(found) if metrics.__file__.startswith(str(base.OLD)) else found

    base.score = score
    base.write_scored("sound_cases.json")


main()
