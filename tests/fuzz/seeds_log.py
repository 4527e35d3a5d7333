"""Makes inputs of fuzz_file.c from log files: python seeds_log.py FOLDER FILE..."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

SLOT = 1 << 20


def seed(data: bytes) -> bytes:
    out = bytearray([1, 8])
    # The clock of the file: birth, start, stop, and the phase with the flags beside it.
    for offset in (64, 72, 80, 88, 96, 104, 160, 168):
        out += struct.pack("<H", offset) + data[offset : offset + 8]
    out += bytes([0, 0])
    for offset in range(SLOT, min(len(data), 7 * SLOT), SLOT):
        magic, state, sequence, thread = struct.unpack_from("<IIQQ", data, offset)
        if magic == 0:
            continue
        texts = magic == 0x4E505645
        out += bytes([int(texts) | (2 if state == 2 else 0), sequence & 255, thread & 255, 1])
        out += data[offset + 24 : offset + 40] + data[offset + 72 : offset + 80]
        out += struct.pack("<Q", thread)
        if texts:
            # Strings, names, sites with small ids, as the script has them.
            for i in range(1, 6):
                out += bytes([1, i, 5, i, 2, i, i, i, i, i, 0, 3, i, i, i, i, i])
        else:
            for place in range(offset + 128, offset + 128 + 8 * 60, 8):
                if data[place : place + 8] == bytes(8):
                    break
                out += b"\xff" + data[place : place + 8]
        out += b"\0"
    return bytes(out)


def main(folder: str, *paths: str) -> None:
    for path in paths:
        (Path(folder) / Path(path).stem).write_bytes(seed(Path(path).read_bytes()))


if __name__ == "__main__":
    main(*sys.argv[1:])
