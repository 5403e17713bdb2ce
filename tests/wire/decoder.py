"""A decoder for every payload and for frames, written from docs/wire-format.md alone.

Slow and plain: it is there to keep that document honest, and to be read beside it.
"""
import itertools
import math
import struct


class Corrupt(ValueError):
    """The bytes break a rule of the document."""


def require(condition: bool, why: str) -> None:
    if not condition:
        raise Corrupt(why)


class Reader:
    """Takes numbers off the front of bytes."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        require(self.at + size <= len(self.data), "too short")
        self.at += size
        return self.data[self.at - size:self.at]

    def get(self, form: str):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def done(self) -> bool:
        return self.at == len(self.data)


def bf16(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def read_value(reader: Reader, form: str) -> float:
    """One value in the format fp32, fp16 or bf16."""
    value = {"fp32": lambda: reader.get("f"), "fp16": lambda: reader.get("e"),
             "bf16": lambda: bf16(reader.get("H"))}[form]()
    require(math.isfinite(value), "value is not finite")
    return value


def decode_floats(form):
    def decode(reader, tensors, options):
        return [read_value(reader, form) for _ in range(sum(count for _, count in tensors))]
    return decode


def decode_adacomp(reader, tensors, options):
    out = []
    for kind, count in tensors:
        length = int(options["bin_convolution" if kind == "convolution" else "bin_linear"])
        values = [0.0] * count
        scale = reader.get("f") if count else 0.0
        require(math.isfinite(scale) and scale >= 0 and math.copysign(1, scale) > 0, "bad scale")
        form, offset_bits = ("B", 6) if length <= 63 else ("H", 14)
        for begin in range(0, count if scale > 0 else 0, length):
            size, previous, last = min(length, count - begin), -1, False
            while not last:
                code = reader.get(form)
                offset = code & ((1 << offset_bits) - 1)
                negative, last = code >> offset_bits & 1, code >> (offset_bits + 1) & 1
                if code == (1 << (offset_bits + 2)) - 1 - (1 << offset_bits) and previous < 0:
                    break  # an empty bin
                require(previous < offset < size, "offsets must grow and stay in their bin")
                values[begin + offset] = -scale if negative else scale
                previous = offset
        out += values
    return out


FORMATS = ["fp32", "fp16", "bf16", "int8", "sign", "mean", "int2"]
BLOCK = 512


def bits_of(data: bytes) -> list[int]:
    return [byte >> i & 1 for byte in data for i in range(8)]


def f32(value: float) -> float:
    """Rounded to binary32; infinite beyond its range."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def read_mean(reader: Reader, signed: bool) -> float:
    mean = read_value(reader, "fp32")
    require(signed or math.copysign(1, mean) > 0, "negative mean or scale")
    return mean


def read_kept(reader: Reader, form: str, kept: int) -> list[float]:
    """Values of a sparse payload."""
    if form in ("fp32", "fp16", "bf16"):
        return [read_value(reader, form) for _ in range(kept)]
    if kept == 0:
        return []
    if form == "int8":
        values = []
        for begin in range(0, kept, BLOCK):
            scale = read_mean(reader, False)
            require(127 * scale <= 3.4028234663852886e38, "scale too large")
            levels = [reader.get("b") for _ in range(min(BLOCK, kept - begin))]
            require(-128 not in levels, "level -128")
            values += [f32(level * scale) for level in levels]
        return values
    if form == "int2":
        values = []
        for begin in range(0, kept, BLOCK):
            low, high = read_mean(reader, False), read_mean(reader, False)
            require(low <= high, "low above high")
            size = min(BLOCK, kept - begin)
            bits = bits_of(reader.take(-(-size // 4)))
            require(not any(bits[2 * size:]), "padding is not 0")
            magnitudes = [high if bits[2 * i] else low for i in range(size)]
            values += [-magnitudes[i] if bits[2 * i + 1] else magnitudes[i] for i in range(size)]
        return values
    mean = read_mean(reader, form == "mean")
    if form == "mean":
        return [mean] * kept
    signs = bits_of(reader.take(-(-kept // 8)))
    require(not any(signs[kept:]), "padding is not 0")
    return [-mean if sign else mean for sign in signs[:kept]]


def decode_sparse(reader, tensors, options):
    count = sum(values for _, values in tensors)
    kept, form = reader.get("I"), reader.get("B")
    agreed = "mean" if options.get("quantized") == "true" else options.get("values", "fp32")
    require(kept <= count and FORMATS.index(agreed) == form, "bad header")
    require(reader.take(3) == bytes(3), "reserved bytes are not 0")
    out = [0.0] * count
    if kept == 0:
        return out
    values = read_kept(reader, FORMATS[form], kept)
    widths = list(reader.take(-(-kept // BLOCK)))
    low = []
    for j, width in enumerate(widths):
        require(width <= 31, "parameter above 31")
        size = min(BLOCK, kept - j * BLOCK)
        bits = bits_of(reader.take(-(-size * width // 8)))
        require(not any(bits[size * width:]), "padding is not 0")
        low += [sum(bits[i * width + b] << b for b in range(width)) for i in range(size)]
    high, at, position = bits_of(reader.take(len(reader.data) - reader.at)), 0, -1
    for i in range(kept):
        zeros = 0
        while at < len(high) and not high[at]:
            zeros, at = zeros + 1, at + 1
        require(at < len(high), "gaps end early")
        at += 1
        position += 1 + (zeros << widths[i // BLOCK]) + low[i]
        require(position < count, "position beyond the stream")
        out[position] = values[i]
    require(at > len(high) - 8 and not any(high[at:]), "bits after the last gap")
    return out


def philox_words(key: int, c2: int = 0, c3: int = 0):
    """The words of Philox4x32-10 under a 64-bit key, block after block."""
    low = 0xFFFFFFFF
    for block in itertools.count():
        c = [block & low, block >> 32, c2, c3]
        k = [key & low, key >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [b >> 32 ^ c[1] ^ k[0], b & low, a >> 32 ^ c[3] ^ k[1], a & low]
            k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
        yield from c


def random_positions(key: int, count: int, kept: int) -> list[int]:
    drawn, words = set(), philox_words(key ^ 5 << 56)
    while len(drawn) < (kept if kept <= count // 2 else count - kept):
        product = next(words) * count
        if product % 2**32 >= 2**32 % count:
            drawn.add(product >> 32)
    return sorted(drawn if kept <= count // 2 else set(range(count)) - drawn)


def target(options, count: int) -> int:
    return min(count, max(1, math.floor(float(options["density"]) * count + 0.5)))


def decode_randomk(reader, tensors, options):
    count = sum(values for _, values in tensors)
    kept = target(options, count)
    key = reader.get("Q")
    out = [0.0] * count
    values = read_kept(reader, options["values"], kept)
    for position, value in zip(random_positions(key, count, kept), values):
        out[position] = value
    return out


def read_codes(reader: Reader, count: int, bits: int) -> list[int]:
    """A bit string of `count` codes."""
    string = bits_of(reader.take(-(-count * bits // 8)))
    return [sum(string[i * bits + b] << b for b in range(bits)) for i in range(count)]


def blocks_of(tensors, options):
    """The lengths of a stream's blocks."""
    if options["block"] == "tensor":
        return [values for _, values in tensors if values > 0]
    count, block = sum(values for _, values in tensors), int(options["block"])
    return [min(block, count - begin) for begin in range(0, count, block)]


def signed(code: int, bits: int) -> int:
    return code - (1 << bits if code >> bits - 1 else 0)


def decode_int(bits):
    def decode(reader, tensors, options):
        out, most = [], (1 << bits - 1) - 1
        for size in blocks_of(tensors, options):
            scale = reader.get("f")
            require(math.copysign(1, scale) > 0 and math.isfinite(f32(scale * most)), "bad scale")
            for code in read_codes(reader, size, bits):
                require(signed(code, bits) >= -most, "code out of range")
                out.append(f32(signed(code, bits) * scale))
        return out
    return decode


def decode_uniform(reader, tensors, options):
    out, bits = [], int(options["bits"])
    for size in blocks_of(tensors, options):
        mid, step = reader.get("f"), reader.get("f")
        reach = f32(abs(mid) + f32((2 ** bits - 1) / 2 * step))
        require(math.copysign(1, step) > 0 and math.isfinite(reach), "bad step")
        out += [f32(mid + f32((signed(code, bits) + 0.5) * step))
                for code in read_codes(reader, size, bits)]
    return out


def decode_acsgd(reader, tensors, options):
    out, bits = [], int(options["bits"])
    for size in blocks_of(tensors, options):
        scale = read_value(reader, "fp16")
        require(math.copysign(1, scale) > 0, "bad scale")
        out += [signed(code, bits) * scale / 2 ** (bits - 1)
                for code in read_codes(reader, size, bits)]
    return out


class BitReader:
    """Bits from bit 0 of each byte up, off the front of a reader."""

    def __init__(self, reader: Reader):
        self.reader, self.left = reader, []

    def get(self) -> int:
        if not self.left:
            self.left = bits_of(self.reader.take(1))
        return self.left.pop(0)

    def gamma(self) -> int:
        n = 0
        while not self.get():
            n += 1
            require(n < 32, "number too large")
        return (1 << n) + sum(self.get() << i for i in range(n))


def read_elias(reader: Reader, count: int, most: int) -> list[int]:
    levels, bits, position = [0] * count, BitReader(reader), -1
    while True:
        position += bits.gamma()
        require(position <= count, "position beyond the block")
        if position == count:
            require(not any(bits.left), "bits after the end")
            return levels
        negative, magnitude = bits.get(), bits.gamma()
        require(magnitude <= most, "magnitude too large")
        levels[position] = -magnitude if negative else magnitude


def decode_qsgd(reader, tensors, options):
    out, levels = [], int(options["levels"])
    bits = levels.bit_length() + 1
    most = 2 ** (bits - 1) - 1
    for size in blocks_of(tensors, options):
        scale = reader.get("f")
        require(math.copysign(1, scale) > 0 and math.isfinite(f32(scale * most)), "bad scale")
        if options["coding"] == "elias":
            codes = read_elias(reader, size, levels)
        else:
            codes = [signed(code, bits) for code in read_codes(reader, size, bits)]
        require(all(code >= -most for code in codes), "code out of range")
        out += [f32(code * scale) for code in codes]
    return out


def decode_natural(reader, tensors, options):
    out, left = [], sum(count for _, count in tensors)
    while left > 0:
        size = min(8, left)
        exponents, signs = reader.take(size), reader.get("B")
        require(255 not in exponents, "not finite")
        out += [(-1) ** (signs >> i & 1) * 2.0 ** (e - 127) if e else 0.0
                for i, e in enumerate(exponents)]
        left -= size
    return out


def decode_levels(two):
    def decode(reader, tensors, options):
        out = []
        for size in blocks_of(tensors, options):
            high = reader.get("f")
            low = reader.get("f") if two else -high
            require(math.copysign(1, high) > 0 and low <= 0 and math.isfinite(high - low), "bad level")
            out += [low if bit else high for bit in read_codes(reader, size, 1)]
        return out
    return decode


def decode_signs(reader, tensors, options):
    return [-1.0 if bit else 1.0 for bit in read_codes(reader, sum(n for _, n in tensors), 1)]


def decode_powersgd(reader, tensors, options):
    out = []
    for shape in options["shapes"]:  # [count] of a tensor of one dimension
        count = math.prod(shape)
        rows = shape[0]
        columns = count // rows if rows else 0
        rank = min(int(options["rank"]), rows, columns)
        factors = len(shape) > 1 and count > 0
        if not factors or (rows + columns) * rank * float(options["min_compression"]) >= count:
            out += [read_value(reader, "fp32") for _ in range(count)]
            continue
        p = [[read_value(reader, "fp32") for _ in range(rows)] for _ in range(rank)]
        q = [[read_value(reader, "fp32") for _ in range(columns)] for _ in range(rank)]
        largest = sum(max(map(abs, pc)) * max(map(abs, qc)) for pc, qc in zip(p, q))
        require(largest <= 3.4028234663852886e38 / 2, "product too large")
        for i in range(rows):
            for j in range(columns):
                value = f32(p[0][i] * q[0][j])
                for c in range(1, rank):
                    value = f32(value + f32(p[c][i] * q[c][j]))
                out.append(value)
    return out


def dct_basis(n: int) -> list[list[float]]:
    def cosine(m: int) -> float:  # math.cos of a right angle is not 0
        return 0.0 if m % (2 * n) == n else math.cos(math.pi * (m % (4 * n)) / (2 * n))
    return [[f32(math.sqrt((1 if u == 0 else 2) / n) * cosine((2 * x + 1) * u)) for x in range(n)]
            for u in range(n)]


def decode_demo(reader, tensors, options):
    chunk, bases = int(options["chunk"]), {}
    coefficients = decode_sparse(reader, tensors, options)
    require(all(abs(c) <= 2.0 ** 87 for c in coefficients), "coefficient too large")
    left, out = iter(coefficients), []
    for shape in options["shapes"]:  # [count] of a tensor of one dimension
        count = math.prod(shape)
        rows = shape[0] if len(shape) > 1 else 1
        columns = count // rows if rows else 0
        values = [0.0] * count
        for top in range(0, rows if count else 0, chunk):
            for start in range(0, columns, chunk):
                height, width = min(chunk, rows - top), min(chunk, columns - start)
                down = bases.setdefault(height, dct_basis(height))
                across = bases.setdefault(width, dct_basis(width))
                half = []  # T[u][x], of those u that have a coefficient
                for u in range(height):
                    kept = [(v, c) for v in range(width) if (c := next(left)) != 0]
                    row = [0.0] * width
                    for v, c in kept:
                        row = [f32(t + f32(c * across[v][x])) for x, t in enumerate(row)]
                    if kept:
                        half.append((u, row))
                for y in range(height if half else 0):
                    row = [0.0] * width
                    for u, part in half:
                        row = [f32(t + f32(down[u][y] * part[x])) for x, t in enumerate(row)]
                    at = (top + y) * columns + start
                    values[at:at + width] = row
        out += values
    return out


MOST_SUM = 2.0 ** 87


def random_signs(key: int, row: int, count: int) -> list[int]:
    words = itertools.islice(philox_words(key ^ 5 << 56, 1, row << 16), -(-count // 32))
    return [-1 if word >> i & 1 else 1 for word in words for i in range(32)][:count]


def read_sums(reader, options, kept):
    sums = read_kept(reader, options["values"], kept)
    require(all(abs(one) <= MOST_SUM for one in sums), "sum too large")
    return sums


def walsh_hadamard(values: list[float]) -> list[float]:
    distance = 1
    while distance < len(values):
        for i in range(len(values)):
            if not i & distance:
                a, b = values[i], values[i + distance]
                values[i], values[i + distance] = f32(a + b), f32(a - b)
        distance *= 2
    return values


def decode_srht(reader, tensors, options):
    count, chunk = sum(values for _, values in tensors), int(options["chunk"])
    kept, key = target(options, count), reader.get("Q")
    coefficients = dict(zip(random_positions(key, count, kept), read_sums(reader, options, kept)))
    out, signs = [], random_signs(key, 0, count)
    while len(out) < count:
        at, size = len(out), min(chunk, 1 << (count - len(out)).bit_length() - 1)
        norm = f32(1 / math.sqrt(size))
        piece = [f32(coefficients.get(at + i, 0.0) * norm) for i in range(size)]
        out += [sign * value for sign, value in zip(signs[at:], walsh_hadamard(piece))]
    return out


def decode_countsketch(reader, tensors, options):
    count = sum(values for _, values in tensors)
    kept, key = target(options, count), reader.get("Q")
    if count == 0:
        return []
    rows = min(int(options["rows"]), kept - 1 + kept % 2)
    size = kept // rows
    sums = read_sums(reader, options, rows * size)
    estimates = []
    for row in range(rows):
        words = philox_words(key ^ 5 << 56, 2, row << 16)
        turns = [next(words) * size >> 32 for _ in range(0, count, size)]
        estimates.append([sign * sums[row * size + (i % size + turns[i // size]) % size]
                          for i, sign in enumerate(random_signs(key, row, count))])
    return [sorted(of_value)[rows // 2] for of_value in zip(*estimates)]


FRAME_HEADER = 48
NON_FINITE, ROUND, RESULT = 1, 2, 4


def read_frame(data: bytes) -> tuple[dict[str, int], bytes]:
    """The fields of a frame's header and its payload; raises Corrupt. Does not check the XXH3-64."""
    reader = Reader(data)
    require(reader.take(2) == b"TW", "foreign magic")
    require(reader.get("B") == 2, "another version")
    header = {name: reader.get(form) for name, form in
              [("codec", "B"), ("flags", "B"), ("round", "B"), ("sender", "H"), ("generation", "I"),
               ("stream", "I")]}
    for name in ("step", "place", "count", "payload_size"):
        header[name] = int.from_bytes(reader.take(6), "little")
    reader.take(8)
    require(header["flags"] & ~(NON_FINITE | ROUND | RESULT) == 0, "unknown flags")
    require(header["flags"] & ROUND or header["round"] == 0, "a round without its flag")
    payload = reader.take(header["payload_size"])
    require(not header["flags"] & NON_FINITE or not payload, "a payload behind bit 0")
    return header, payload


DECODERS = {
    "fp32": decode_floats("fp32"),
    "fp16": decode_floats("fp16"),
    "bf16": decode_floats("bf16"),
    "topk": decode_sparse,
    "adacomp": decode_adacomp,
    "sidco": decode_sparse,
    "scalecom": decode_sparse,
    "lgc": decode_sparse,
    "dgc": decode_sparse,
    "threshold": decode_sparse,
    "randomk": decode_randomk,
    "gaussiank": decode_sparse,
    "redsync": decode_sparse,
    "uniform": decode_uniform,
    "int8": decode_int(8),
    "int4": decode_int(4),
    "acsgd": decode_acsgd,
    "qsgd": decode_qsgd,
    "terngrad": decode_int(2),
    "natural": decode_natural,
    "sign": decode_levels(False),
    "onebit": decode_levels(True),
    "signum": decode_signs,
    "powersgd": decode_powersgd,
    "demo": decode_demo,
    "srht": decode_srht,
    "countsketch": decode_countsketch,
}


def decode(codec: str, options: dict[str, str], tensors: list[tuple[str, int]],
           payload: bytes) -> list[float]:
    """The values of a payload; tensors are (kind, count) pairs. Raises Corrupt."""
    reader = Reader(payload)
    values = DECODERS[codec](reader, tensors, options)
    require(reader.done(), "bytes are left over")
    return values
