#!/usr/bin/env python3
"""A second implementation of the tile format, written from docs/codec.md and include/cgx/wire_tiles.h in plain Python.

  make.py            writes f32.golden, f16.golden and bf16.golden beside itself
  make.py --check    exit status 1 if they are not what it would write
  make.py --corpus   writes the seeds of test/fuzz/tile_fuzz.cc instead

A golden file is a list of byte strings, each a little-endian u32 length, then the bytes: six input buffers, then cases:
  spec      11 x u32: bits, 0 nearest / 1 stochastic, key low, key high, first low, first high,
            number of the input buffer, of the buffer that is rank 1's exact part of the reduction,
            form of the payload, of rank 2's part, of the reduced payload   (0 zero, 1 tiles, 2 raw)
  payload   what encode makes of the input; also rank 0's part of the reduction
  decoded   what decode makes of the payload
  other     rank 2's part
  reduced   what reduce (with the key xor 2) sends
  own       what it keeps
"""
import math
import pathlib
import random
import struct
import sys

TILE, BUCKET, LANES = 512, 32, 16
ZERO, TILES, RAW = 0, 1, 2
EXACT = 32
NEAREST, STOCHASTIC = 0, 1
M64, M32 = (1 << 64) - 1, (1 << 32) - 1
FLT_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


# ---- fp32, emulated: a double operation rounded to fp32 is the fp32 operation for + - * / ------------------------------

def fl(x):
    """The nearest fp32 number, ties to even."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def from_bits(b):
    return struct.unpack("<f", struct.pack("<I", b))[0]


def rne(x):
    return round(x)  # Python rounds ties to even


class DType:
    def __init__(self, name, size, mantissa, exponent):
        self.name, self.size, self.mantissa, self.exponent = name, size, mantissa, exponent

    def load(self, raw, i):
        word = int.from_bytes(raw[i * self.size:(i + 1) * self.size], "little")
        if self.size == 4:
            # By hand: packing a signalling NaN may change it.
            return math.nan if (word & 0x7FFFFFFF) > 0x7F800000 else from_bits(word)
        sign = -1.0 if word >> 15 else 1.0
        e, m = (word & 0x7FFF) >> self.mantissa, word & ((1 << self.mantissa) - 1)
        top = (1 << self.exponent) - 1
        bias = top // 2
        if e == top:
            return math.nan if m else sign * math.inf
        if e == 0:
            return sign * math.ldexp(m, 1 - bias - self.mantissa)
        return sign * math.ldexp(m + (1 << self.mantissa), e - bias - self.mantissa)

    def store(self, x, saturate):
        if math.isnan(x):
            return {"f32": b"\x00\x00\xc0\x7f", "f16": b"\x00\x7e", "bf16": b"\xc0\x7f"}[self.name]
        if self.size == 4:
            return struct.pack("<f", x)
        infinity = ((1 << self.exponent) - 1) << self.mantissa
        sign = 0x8000 if math.copysign(1, x) < 0 else 0
        if math.isinf(x):
            return struct.pack("<H", sign | infinity)
        bias = (1 << (self.exponent - 1)) - 1
        lowest = 1 - bias
        e = max(math.frexp(abs(x))[1] - 1, lowest) if x else lowest
        units = rne(math.ldexp(abs(x), self.mantissa - e))
        word = min(units + ((e - lowest) << self.mantissa), infinity)
        if saturate and word == infinity:
            word -= 1
        return struct.pack("<H", sign | word)


F32, F16, BF16 = DType("f32", 4, 23, 8), DType("f16", 2, 10, 5), DType("bf16", 2, 7, 8)


# ---- Noise -----------------------------------------------------------------------------------------------------------

def mix(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & M64
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def rounding_term(bits, key, tile, i):
    h = mix(key + (tile + 1) * 0x9E3779B97F4A7C15 & M64)
    s = (h & M32) + i % LANES * 0x9E3779B9 & M32
    s ^= s >> 16
    s = s * 0x85EBCA6B & M32
    s ^= s >> 15
    s = s + (h >> 32) & M32
    s = s * 0xC2B2AE35 & M32
    s ^= s >> 16
    k = i // 32
    w = s * (mix((k + 1) * 0x9E3779B97F4A7C15 & M64) & M32 | 1) & M32
    w ^= w >> 16
    n = w & 0xFFFF if i // LANES % 2 == 0 else w >> 16
    return n & (0x3FFC if bits == 8 else 0xFFFC) | 2


# ---- Tiles -----------------------------------------------------------------------------------------------------------

def ratio(c):
    return 0.0 if c == 0 else from_bits(min((c + 1905) << 19, (c + 183) << 22))


def plan(bits, mode, x):
    """(0, ..) zero, (255, ..) raw, or (bits, scale, bucket bytes)."""
    if any(math.isinf(v) or math.isnan(v) for v in x):
        return 255, None, None
    if bits == EXACT:
        return (0 if all(bits_of(v) == 0 for v in x) else 255), None, None
    largest = max(abs(v) for v in x)
    if largest == 0:
        return 0, None, None
    if largest < 2.0 ** -80:
        return 255, None, None
    half = 1 << (bits - 1)
    buckets = []
    for first in range(0, TILE, BUCKET):
        part = x[first:first + BUCKET]
        p, n = max(max(part), 0.0), max(-min(part), 0.0)
        e, o = max(p, n), min(p, n)
        if bits > 1:
            t = max(fl(e * (1.0 / half)), fl(o * fl(1.0 / (half - 1))))
        elif mode == STOCHASTIC:
            t = e
        else:
            t = fl(fl(0.5 * e) + fl(0.5 * min(abs(v) for v in part)))
        buckets.append((e, t, n > p))
    scale = max(t for _, t, _ in buckets)
    coded = bytearray()
    for e, t, negative in buckets:
        c = 0
        if e > 0:
            r = bits_of(fl(t / scale))
            c = max(((r + (1 << 19) - 1) >> 19) - 1905, ((r + (1 << 22) - 1) >> 22) - 183)
            if c < 1:
                return 255, None, None
        coded.append(c | (128 if negative else 0))
    return bits, scale, bytes(coded)


def encode_tile(bits, mode, key, tile, x, scale, buckets):
    half = 1 << (bits - 1)
    fraction = 14 if bits == 8 else 16
    lanes = [0] * LANES  # each a number of 32 * bits bits
    for i, v in enumerate(x):
        byte = buckets[i // BUCKET]
        d = fl(ratio(byte & 127) * scale)
        inverse = fl(1.0 / d) if byte & 127 else 0.0
        y = fl((-v if byte & 128 else v) * inverse)
        fixed = rne(fl(y * (1 << fraction)))
        term = rounding_term(bits, key, tile, i)
        if bits == 1:
            code = int(fixed >= 0) if mode == NEAREST else (fixed + (1 << 16) + 2 * term) >> 17
        elif mode == NEAREST:
            code = rne(y) + half - 1
        else:
            code = ((fixed + term) >> fraction) + half - 1
        assert 0 <= code < 2 * half
        lanes[i % LANES] |= code << (i // LANES * bits)
    return b"".join(struct.pack("<I", lane >> 32 * word & M32) for word in range(bits) for lane in lanes)


def decode_tile(bits, codes, scale, buckets):
    half = 1 << (bits - 1)
    lanes = [sum(int.from_bytes(codes[64 * w + 4 * lane:64 * w + 4 * lane + 4], "little") << 32 * w for w in range(bits))
             for lane in range(LANES)]
    x = []
    for i in range(TILE):
        code = lanes[i % LANES] >> (i // LANES * bits) & ((1 << bits) - 1)
        level = (1 if code else -1) if bits == 1 else code - (half - 1)
        byte = buckets[i // BUCKET]
        v = fl((-level if byte & 128 else level) * fl(ratio(byte & 127) * scale))
        if bits == 1:
            v = v + 0.0
        x.append(min(max(v, -FLT_MAX), FLT_MAX))
    return x


# ---- Payloads --------------------------------------------------------------------------------------------------------

def padded(data):
    return data + bytes(-len(data) % 16)


def encode(dtype, bits, mode, key, first, raw):
    count = len(raw) // dtype.size
    table, scales, buckets, codes, raws = b"", b"", b"", b"", b""
    for tile, at in enumerate(range(0, count, TILE)):
        size = min(TILE, count - at)
        x = [dtype.load(raw, at + i) for i in range(size)] + [0.0] * (TILE - size)
        kind, scale, bucket = plan(bits, mode, x)
        table += bytes([kind])
        if kind == 255:
            raws += padded(raw[at * dtype.size:(at + size) * dtype.size])
        elif kind:
            scales += struct.pack("<f", scale)
            buckets += bucket
            codes += encode_tile(bits, mode, key, first // TILE + tile, x, scale, bucket)
    if not any(table):
        return ZERO, b""
    payload = padded(table) + padded(scales) + buckets + codes + raws
    return (TILES, payload) if len(payload) < len(raw) else (RAW, raw)


def values(dtype, form, payload, count):
    """[(value, was it coded)]"""
    if form == ZERO:
        return [(0.0, False)] * count
    if form == RAW:
        return [(dtype.load(payload, i), False) for i in range(count)]
    tiles = -(-count // TILE)
    table = payload[:tiles]
    coded = [b for b in table if 1 <= b <= 8]
    scale_at = len(padded(table))
    bucket_at = scale_at + len(padded(bytes(4 * len(coded))))
    code_at = bucket_at + 16 * len(coded)
    raw_at = code_at + 64 * sum(coded)
    out = []
    for tile, kind in enumerate(table):
        size = min(TILE, count - tile * TILE)
        if kind == 0:
            out += [(0.0, False)] * size
        elif kind == 255:
            out += [(dtype.load(payload[raw_at:], i), False) for i in range(size)]
            raw_at += -(-size * dtype.size // 16) * 16
        else:
            scale = struct.unpack("<f", payload[scale_at:scale_at + 4])[0]
            x = decode_tile(kind, payload[code_at:code_at + 64 * kind], scale, payload[bucket_at:bucket_at + 16])
            out += [(v, True) for v in x[:size]]
            scale_at, bucket_at, code_at = scale_at + 4, bucket_at + 16, code_at + 64 * kind
    return out


def image(dtype, decoded):
    return b"".join(dtype.store(v, coded) for v, coded in decoded)


def reduce(dtype, bits, mode, key, first, parts, count):
    decoded = [values(dtype, form, payload, count) for form, payload in parts]
    total = [v for v, _ in decoded[0]]
    for part in decoded[1:]:
        total = [fl(a + v) for a, (v, _) in zip(total, part)]
    raw = b"".join(dtype.store(v, False) for v in total)
    form, payload = encode(dtype, bits, mode, key, first, raw)
    return form, payload, image(dtype, values(dtype, form, payload, count))


# ---- Cases -----------------------------------------------------------------------------------------------------------

COUNT = TILE + 177
BIG = {"f32": 3.4e38, "f16": 65504.0, "bf16": 3.38e38}


def inputs(dtype, rng):
    """Six buffers of a whole and a partial tile, hard in different ways."""
    def normal():
        return rng.gauss(0, 1)

    def make(whole, partial):
        numbers = [whole(i) for i in range(TILE)] + [partial(i) for i in range(COUNT - TILE)]
        return b"".join(dtype.store(fl(v), True) for v in numbers)

    special = bytearray(make(lambda i: normal(), lambda i: normal() * 2.0 ** -(i // 32)))
    for place, word in ((3, "inf"), (100, "-inf"), (511, "nan")):
        pattern = {"inf": dtype.store(math.inf, False), "-inf": dtype.store(-math.inf, False),
                   "nan": {4: b"\x45\x23\x81\xff", 2: b"\x81\xff"}[dtype.size]}[word]
        special[place * dtype.size:(place + 1) * dtype.size] = pattern
    late = bytearray(make(lambda i: normal() * 2.0 ** (-2.5 * (i // 32)), lambda i: normal()))
    late[-dtype.size:] = dtype.store(math.nan, False)
    return [
        make(lambda i: normal(), lambda i: normal()),
        make(lambda i: rng.choice((0.0, -0.0)), lambda i: rng.choice((0.0, -0.0, normal()))),
        bytes(special),
        bytes(late),
        make(lambda i: rng.choice((-1, 1)) * BIG[dtype.name] * rng.uniform(0.97, 1.0), lambda i: -0.3),
        make(lambda i: 1.7, lambda i: normal() * (2.0 ** -20 if dtype is F16 else 2.0 ** -90)),
    ]


def field(data):
    return struct.pack("<I", len(data)) + data


def case(dtype, buffers, number, bits, mode):
    rng = random.Random(number)
    key, first = rng.getrandbits(64), TILE * rng.getrandbits(20)
    raw = [buffers[(number + k) % len(buffers)] for k in range(3)]
    form, payload = encode(dtype, bits, mode, key, first, raw[0])
    decoded = image(dtype, values(dtype, form, payload, COUNT))
    other = encode(dtype, 1 + number % 8, 1 - mode, key ^ 1, 0, raw[2])
    parts = [(form, payload), (RAW, raw[1]), other]
    reduced_form, reduced, own = reduce(dtype, bits, mode, key ^ 2, first, parts, COUNT)
    spec = struct.pack("<11I", bits, mode, key & M32, key >> 32, first & M32, first >> 32, number % len(buffers),
                       (number + 1) % len(buffers), form, other[0], reduced_form)
    return b"".join(map(field, (spec, payload, decoded, other[1], reduced, own)))


def golden(dtype):
    buffers = inputs(dtype, random.Random(dtype.name))
    out, number = b"".join(map(field, buffers)), 0
    for bits in (1, 2, 3, 4, 5, 6, 7, 8, EXACT):
        for mode in (NEAREST, STOCHASTIC):
            out += case(dtype, buffers, number, bits, mode)
            number += 1
    return out


def corpus(folder):
    """One small payload of every dtype and form with different tiles; tile_fuzz.cc says what precedes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for code, dtype in enumerate((F32, F16, BF16)):
        raw = inputs(dtype, random.Random(dtype.name))
        for bits in (1, 3, 4, 8):
            form, payload = encode(dtype, bits, NEAREST, 0, 0, raw[bits % 2])
            (folder / f"{dtype.name}-{bits}").write_bytes(struct.pack("<BBH", code, form, COUNT) + payload)
        size = 3 * TILE * dtype.size
        mixed = (raw[0][:size // 3] + bytes(size // 3) + raw[2][:size // 3]) * 2
        form, payload = encode(dtype, 4, NEAREST, 0, 0, mixed + raw[0][:20])
        (folder / f"{dtype.name}-mixed").write_bytes(
            struct.pack("<BBH", code, form, len(mixed + raw[0][:20]) // dtype.size) + payload)
        (folder / f"{dtype.name}-raw").write_bytes(struct.pack("<BBH", code, RAW, 9) + raw[2][:9 * dtype.size])
        (folder / f"{dtype.name}-zero").write_bytes(struct.pack("<BBH", code, ZERO, 600))


def main():
    if sys.argv[1:] == ["--corpus"]:
        return corpus(pathlib.Path(__file__).resolve().parent.parent / "fuzz/corpus/tile_fuzz")
    stale = False
    for dtype in (F32, F16, BF16):
        path = pathlib.Path(__file__).with_name(dtype.name + ".golden")
        data = golden(dtype)
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_bytes() != data:
                print(path.name, "is not what make.py makes")
                stale = True
        else:
            path.write_bytes(data)
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
