"""Draws the wallpaper, hills under an evening sky, as a PNG of 1920x1080: wallpaper.py FILE. Standard library only."""

import math
import struct
import sys
import zlib

WIDTH, HEIGHT = 1920, 1080
SKY_TOP, SKY_BOTTOM = (34, 74, 120), (186, 208, 220)
# Height of the ridge (part of the screen, from above), height of its waves, waves across the screen, shift, colour.
HILLS = [
    (0.62, 0.050, 1.3, 0.4, (120, 156, 176)),
    (0.72, 0.045, 1.9, 2.1, (82, 124, 146)),
    (0.82, 0.040, 1.5, 4.0, (52, 92, 114)),
    (0.92, 0.030, 2.3, 1.2, (32, 64, 84)),
]


def ridge(hill, x):
    level, wave, count, shift, _ = hill
    angle = 2 * math.pi * count * x / WIDTH + shift
    return HEIGHT * (level + wave * (math.sin(angle) + 0.3 * math.sin(2.7 * angle)))


def main():
    ridges = [[ridge(hill, x) for x in range(WIDTH)] for hill in HILLS]
    colours = [bytes(hill[4]) for hill in HILLS]
    rows = bytearray()
    for y in range(HEIGHT):
        part = min(1.0, y / (HEIGHT * 0.7))
        sky = bytes(round(top + (bottom - top) * part) for top, bottom in zip(SKY_TOP, SKY_BOTTOM))
        rows.append(2)  # each row as its difference to the one above: nearly nothing
        row = bytearray(sky * WIDTH)
        for heights, colour in zip(ridges, colours):
            for x in range(WIDTH):
                if y >= heights[x]:
                    row[3 * x : 3 * x + 3] = colour
        above = row if y == 0 else previous
        rows += row if y == 0 else bytes((a - b) & 255 for a, b in zip(row, above))
        previous = row
    rows[0] = 0

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    with open(sys.argv[1], "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
        file.write(chunk(b"IDAT", zlib.compress(bytes(rows), 9)) + chunk(b"IEND", b""))


main()
