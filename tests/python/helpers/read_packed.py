"""The packed chunks of a log file by doc/epr-log.rst, without eventprof's code."""

from __future__ import annotations

import struct

from read_archive import U32, U64, Bytes, class_of, decompress, h1, h2

(TIMES, LONG_TIMES, TOKENS, SYMBOLS, SIZES, PLACES, VALUES) = range(7)
CALL, ALLOC, FREE, POINT = 0, 1, 2, 3
ADDRESS = (1 << 47) - 1


def unpack(packed, ticks, count, kinds):
    """Return the words of a chunk.

    packed: the bytes after the header; ticks: of `opened`; kinds: (words, form, pairing, domain) by kind.
    """
    head = Bytes(packed)
    codec, coding, zero = head.unpack("BBH")
    assert zero == 0 and coding in (0, 1)
    lengths = [head.unpack("II") for _ in range(7 if coding else 1)]
    streams = [
        Bytes(body if raw == stored else decompress(codec, body, raw))
        for raw, stored in lengths
        for body in (head.take(stored),)
    ]
    assert head.is_empty()
    if coding == 0:
        return list(struct.unpack(f"<{count}Q", streams[0].data))
    found = Records(streams, ticks & U32, kinds).read(count)
    assert all(stream.is_empty() for stream in streams)
    return found


class Records:
    def __init__(self, streams, ticks, kinds):
        self.streams, self.ticks, self.kinds = streams, ticks, kinds
        self.after_two, self.after_one = {}, {}
        self.size, self.ago, self.value, self.callee = {}, {}, {}, {}
        self.open = []
        self.last, self.freed = {}, {}
        self.freed_last = 0
        self.made = [None]

    def read(self, count):
        words = []
        before = before_that = 0
        while len(words) < count:
            self.time()
            two, one = h2(before, before_that, 14), h1(before, 12)
            token = self.streams[TOKENS].byte()
            symbol = (
                self.after_two.get(two, 0),
                self.after_one.get(one, 0),
                None,
            )[token]
            if symbol is None:
                (symbol,) = self.streams[SYMBOLS].unpack("I")
            kind, payload = symbol >> 25, symbol & 0x1FFFFFF
            _, form, pairing, _ = self.kinds[kind]
            low, more = symbol, []
            if form == CALL and pairing == 1:
                if len(self.open) == 1024:
                    self.open.clear()
                self.open.append(payload)
            elif form == CALL and pairing == 2:
                low = symbol ^ (self.callee.get(h1(self.open[-1], 14), 0) if self.open else 0)
                self.close(low & 0x1FFFFFF)
            elif form == ALLOC:
                size, address = self.allocation(symbol)
                low = symbol >> 25 << 25 | size
                more = [(address >> 3 << 20 | payload & 0xFFFFF) & U64]
            elif form == FREE:
                more = [self.free(symbol)]
            elif form != POINT and form != CALL:
                more = [self.difference(self.value.get(h1(symbol, 12), 0))]
                self.value[h1(symbol, 12)] = more[0]
            words += [self.ticks << 32 | low, *more]
            self.after_two[two] = self.after_one[one] = symbol
            before, before_that = (symbol if form == ALLOC else low), before
        assert len(words) == count
        return words

    def time(self):
        token = self.streams[TIMES].byte()
        if 192 <= token < 255:
            token = 192 + (token - 192 << 8) + self.streams[LONG_TIMES].byte()
        elif token == 255:
            token = 192 + (63 << 8) + self.streams[LONG_TIMES].varint()
        self.ticks = self.ticks + token & U32

    def close(self, name):
        if not self.open:
            return
        place = next(
            (
                place
                for place in range(len(self.open) - 1, max(len(self.open) - 9, -1), -1)
                if self.callee.get(h1(self.open[place], 14), 0) == name
            ),
            len(self.open) - 1,
        )
        self.callee[h1(self.open[place], 14)] = name
        del self.open[place:]

    def difference(self, before):
        return before + self.streams[VALUES].zigzag() & U64

    def allocation(self, symbol):
        code = self.streams[SIZES].varint()
        size = self.size[h1(symbol, 12)] = code - 1 if code else self.size.get(h1(symbol, 12), 0)
        number, stride = class_of(self.kinds[symbol >> 25][3], size)
        freed = self.freed.setdefault(number, [])
        place = self.streams[PLACES].byte()
        if place < 32:
            address = freed.pop(len(freed) - 1 - place)
        else:
            last = self.last.get(number, 0)
            address = (
                lambda: last + stride,
                lambda: self.freed_last,
                lambda: self.difference(last >> 3) << 3 & U64,
            )[place - 32]()
        self.last[number] = address
        self.made.append((number, address))
        return size, address

    def free(self, symbol):
        code = self.streams[PLACES].varint()
        if code == 1:
            self.freed_last = self.difference(self.freed_last)
            return self.freed_last
        ago = self.ago.get(h1(symbol, 12), 0) if code == 0 else code - 1
        self.ago[h1(symbol, 12)] = ago
        number, self.freed_last = self.made[-ago]
        freed = self.freed.setdefault(number, [])
        if len(freed) == 32:
            del freed[0]
        freed.append(self.freed_last)
        return self.freed_last
