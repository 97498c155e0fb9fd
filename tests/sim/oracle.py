"""What an ordinary instruction gives, on one lane, by fractions and Python's integers: written from the ISA, apart from the simulator."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from ptxkit.grammar.operands import width

Number = Fraction | float  # a float is an infinity, a NaN or a zero with its sign

_FORMATS = {"f16": (10, 5), "bf16": (7, 8), "f32": (23, 8), "f64": (52, 11), "e4m3": (3, 4), "e5m2": (2, 5), "tf32": (10, 8)}
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F}


# ------------------------------------------------------------------------------------------------ formats


def number(bits: int, type: str) -> Number:
    fraction, exponents = _FORMATS["f32" if type == "tf32" else type]
    bias = (1 << exponents - 1) - 1
    mantissa, exponent = bits & (1 << fraction) - 1, bits >> fraction & (1 << exponents) - 1
    sign = -1 if bits >> fraction + exponents & 1 else 1
    if type == "e4m3":
        if bits & 0x7F == 0x7F:
            return math.nan
    elif exponent == (1 << exponents) - 1:
        return math.nan if mantissa else sign * math.inf
    if not exponent and not mantissa:
        return math.copysign(0.0, sign)
    whole = mantissa | 1 << fraction if exponent else mantissa
    return sign * whole * Fraction(2) ** (max(exponent, 1) - bias - fraction)


def bits_of(x: Number, type: str, mode: str = "rn", finite: bool = False) -> int:
    """The nearest number of the format, as bits; NaN as -1 for f64, else the canonical one."""
    fraction, exponents = _FORMATS[type]
    bias = (1 << exponents - 1) - 1
    shift = 13 if type == "tf32" else 0
    top = fraction + exponents
    largest = {"e4m3": 0x7E, "e5m2": 0x7B}.get(type, (((1 << exponents) - 1) << fraction) - 1)
    infinity = ((1 << exponents) - 1) << fraction
    if isinstance(x, float):
        if math.isnan(x):
            return _NAN.get(type, -1)
        sign = int(math.copysign(1.0, x) < 0) << top
        return (sign | (0 if not x else largest if finite else infinity)) << shift
    negative = x < 0
    magnitude = abs(x)
    exponent = max(_log2(magnitude), 1 - bias)
    scaled = magnitude / Fraction(2) ** (exponent - fraction)
    low = scaled.numerator // scaled.denominator
    rest = scaled - low
    half = Fraction(1, 2)
    up = {"rn": rest > half or (rest == half and low & 1), "rz": False, "rm": negative and rest, "rp": not negative and rest,
          "rna": rest >= half}[mode]
    code = low + bool(up) + ((exponent + bias - 1) << fraction)
    if code > largest:
        inward = mode == "rz" or mode == ("rp" if negative else "rm")
        code = largest if finite or inward else infinity
    return (code | int(negative) << top) << shift


def _log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if x >= Fraction(2) ** guess else guess - 1


# ------------------------------------------------------------------------------------------------ arithmetic


def _add(a: Number, b: Number, mode: str) -> Number:
    if isinstance(a, float) and isinstance(b, float):
        if not a and not b:
            return a if math.copysign(1, a) == math.copysign(1, b) else -0.0 if mode == "rm" else 0.0
        return a + b if math.isfinite(a) is False or math.isfinite(b) is False else a or b
    if isinstance(a, float):
        return a if a else b
    if isinstance(b, float):
        return b if b else a
    return a + b or (-0.0 if mode == "rm" else 0.0)


def _sign(x: Number) -> float:
    return math.copysign(1.0, x) if isinstance(x, float) else 1.0 if x > 0 else -1.0


def _mul(a: Number, b: Number, mode: str = "") -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    x, y = (v if isinstance(v, float) else _sign(v) for v in (a, b))
    return x * y


def _div(a: Number, b: Number, mode: str = "") -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    x, y = (v if isinstance(v, float) else _sign(v) for v in (a, b))
    if math.isnan(x) or math.isnan(y) or (not x and not y) or (math.isinf(x) and math.isinf(y)):
        return math.nan
    sign = math.copysign(1, x) * math.copysign(1, y)
    return sign * math.inf if not y or math.isinf(x) else sign * 0.0


def _sqrt(a: Number, mode: str = "") -> Number:
    if isinstance(a, float):
        return a if not a or a > 0 else math.nan
    if a < 0:
        return math.nan
    scale = 1 << 400
    found = math.isqrt(a.numerator * scale * scale * a.denominator)
    exact = found * found == a.numerator * scale * scale * a.denominator
    return Fraction(2 * found + (not exact), 2 * scale * a.denominator)


def flushed(bits: int, type: str) -> int:
    fraction, exponents = _FORMATS[type]
    return bits if bits >> fraction & (1 << exponents) - 1 else bits & 1 << fraction + exponents


def _float(tokens: Sequence[str], type: str, operands: Sequence[int]) -> int:
    """add, sub, mul, fma, div, rcp, sqrt in one type."""
    name, mode = tokens[0], next((t for t in tokens if t in ("rn", "rz", "rm", "rp")), "rn")
    if "ftz" in tokens:
        operands = [flushed(o, type) for o in operands]
    values = [number(o, type) for o in operands]
    if name == "sub":
        values[1] = -values[1]
    functions: dict[str, Callable[..., Number]] = {"add": _add, "sub": _add, "mul": _mul, "div": _div, "sqrt": _sqrt}
    if name in ("fma", "mad"):
        found = _add(_mul(values[0], values[1]), values[2], mode)
    elif name == "rcp":
        found = _div(Fraction(1), values[0])
    else:
        found = functions[name](*values, mode)
    return _finish(tokens, type, bits_of(found, type, mode))


def _is_nan(bits: int, type: str) -> bool:
    value = number(bits, type) if bits >= 0 else math.nan
    return isinstance(value, float) and math.isnan(value)


def _finish(tokens: Sequence[str], type: str, bits: int) -> int:
    if "ftz" in tokens:
        bits = flushed(bits, type)
    nan, negative = bits < 0 or _is_nan(bits, type), bits >> width(type) - 1 & 1
    if "sat" in tokens:
        one = bits_of(Fraction(1), type)
        return 0 if nan or negative else min(bits, one)
    return 0 if "relu" in tokens and negative and not nan else bits


def _extremum(tokens: Sequence[str], type: str, a: int, b: int) -> int:
    if "ftz" in tokens:
        a, b = flushed(a, type), flushed(b, type)
    top = 1 << width(type) - 1
    crossed = (a ^ b) & top
    if "xorsign" in tokens:
        a, b = a & ~top, b & ~top
    if _is_nan(a, type) or _is_nan(b, type):
        both = _is_nan(a, type) and _is_nan(b, type)
        found = _NAN.get(type, -1) if both or "NaN" in tokens else b if _is_nan(a, type) else a
    else:
        found = (min if tokens[0] == "min" else max)(a, b, key=lambda v: (number(v, type), -(v >> width(type) - 1)))
    return found | crossed if "xorsign" in tokens and not _is_nan(found, type) else found


# ------------------------------------------------------------------------------------------------ comparison


def _compare(tokens: Sequence[str], type: str, a: int, b: int) -> bool:
    name = tokens[1]
    operators: dict[str, Callable[[Any, Any], bool]] = {
        "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
        "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
    if type not in _FORMATS:
        return operators[name](*(signed(v, type) for v in (a, b)))
    if "ftz" in tokens:
        a, b = flushed(a, type), flushed(b, type)
    if _is_nan(a, type) or _is_nan(b, type):
        return name == "nan" or (len(name) == 3 and name != "num")
    return name == "num" or (name != "nan" and operators[name[:2]](number(a, type), number(b, type)))


def _combine(tokens: Sequence[str], found: bool, operands: Sequence[int]) -> bool:
    boolean = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}.get(tokens[2]) if len(tokens) > 2 else None
    return boolean(found, bool(operands[2] & 1)) if boolean else found


# ------------------------------------------------------------------------------------------------ conversion


def signed(value: int, type: str) -> int:
    bits = width(type)
    value &= (1 << bits) - 1
    return value - (1 << bits) if type[0] == "s" and value >> bits - 1 else value


def _range(type: str) -> tuple[int, int]:
    bits = width(type)
    return (-1 << bits - 1, (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)


def _integral(x: Number, mode: str) -> Number:
    if isinstance(x, float):
        return x
    low = math.floor(x)
    found = {"rni": round(x), "rzi": math.trunc(x), "rmi": low, "rpi": math.ceil(x)}[mode]
    return Fraction(found) if found else math.copysign(0.0, _sign(x))


def _convert(tokens: Sequence[str], to: str, source: str, bits: int) -> int:
    mode = next((t for t in tokens if t in ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")), "rn")
    if source not in _FORMATS:
        value = signed(bits, source)
        if to in _FORMATS:
            return _finish(tokens, to, bits_of(Fraction(value) if value else 0.0, to, mode))
        low, high = _range(to)
        return (min(max(value, low), high) if "sat" in tokens else value) & (1 << width(to)) - 1
    if "ftz" in tokens and source == "f32" and to != "f16":
        bits = flushed(bits, source)
    if "rna" in tokens and bits & 0x7FFFE000 == 0x7F800000:
        bits &= 0xFFFFE000
    x = number(bits, source)
    if _is_nan(bits, source) and (source, to) == ("bf16", "f32"):
        return bits << 16
    if tokens == ["cvt", "f32", "f32"]:
        return bits
    if mode[-1] == "i":
        x = _integral(x, mode)
    if to in _FORMATS:
        found = bits_of(x, to, mode if mode[-1] != "i" else "rn", "satfinite" in tokens)
        return _finish([t for t in tokens if t != "ftz" or to == "f32"], to, found) if to in ("f16", "bf16", "f32", "f64", "tf32") \
            else 0 if "relu" in tokens and found >> 7 else found
    low, high = _range(to)
    if isinstance(x, float):
        if math.isnan(x):
            return -1
        value = 0 if not x else high if x > 0 else low
    else:
        value = int(min(max(x, low), high))
    return value & (1 << width(to)) - 1


# ------------------------------------------------------------------------------------------------ integers


def _integer(tokens: Sequence[str], type: str, operands: Sequence[int]) -> int | None:
    bits = width(type)
    name = tokens[0]
    if not bits:
        return None
    u = [v & (1 << bits) - 1 for v in operands]
    a, b, c = ([*(signed(v, type) for v in operands), 0, 0])[:3]
    low, high = _range(type)

    def clamp(v: int) -> int:
        return min(max(v, low), high) if "sat" in tokens else v

    def shifted(v: int) -> int:
        return v >> bits if "hi" in tokens else v

    match name:
        case "add" | "sub":
            return clamp(a + b if name == "add" else a - b)
        case "mul" | "mad":
            return clamp(shifted(a * b) + c)
        case "mul24" | "mad24":
            x, y = (((v & 0xFFFFFF) ^ 0x800000) - 0x800000 if type[0] == "s" else v & 0xFFFFFF for v in operands[:2])
            product = x * y >> 16 if "hi" in tokens else x * y
            return clamp(signed(product, type) + c) if "sat" in tokens else product + c
        case "sad":
            return abs(a - b) + c
        case "div":
            return -1 if not b else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        case "rem":
            return -1 if not b else int(math.copysign(1, a)) * (abs(a) % abs(b))
        case "abs" | "neg":
            return abs(a) if name == "abs" else -a
        case "min" | "max":
            found = (min if name == "min" else max)(a, b)
            return max(found, 0) if "relu" in tokens else found
        case "popc":
            return bin(u[0]).count("1")
        case "clz":
            return len(f"{u[0]:0{bits}b}") - len(f"{u[0]:b}" if u[0] else "")
        case "brev":
            return sum((u[0] >> i & 1) << bits - 1 - i for i in range(bits))
        case "bfind":
            word = ~a if a < 0 else a
            places = [i for i in range(bits) if word >> i & 1]
            return -1 if not places else bits - 1 - places[-1] if "shiftamt" in tokens else places[-1]
        case "bfe":
            return _bfe(type, u[0], _place(operands[1], bits), _place(operands[2], bits))
        case "bfi":
            found = u[1]
            for i in range(_place(operands[3], bits)):
                place = i + _place(operands[2], bits)
                if place < bits:
                    found = found & ~(1 << place) | (u[0] >> i & 1) << place
            return found
        case "and" | "or" | "xor":
            return {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[name](u[0], u[1])
        case "not":
            return ~u[0]
        case "cnot":
            return int(not u[0])
        case "shl":
            return u[0] << min(operands[1] & 0xFFFFFFFF, bits)
        case "shr":
            return a >> min(operands[1] & 0xFFFFFFFF, bits)
    return None


def _place(value: int, bits: int) -> int:
    return value & 0xFF if bits == 32 else min(value & 0xFFFFFFFF, 64)


def _bfe(type: str, a: int, position: int, length: int) -> int:
    """The manual's loop over the bits."""
    last = width(type) - 1
    sign = 0 if type[0] == "u" or not length else a >> min(position + length - 1, last) & 1
    return sum((a >> position + i & 1 if i < length and position + i <= last else sign) << i for i in range(last + 1))


def expected(opcode: str, type: str, operands: Sequence[int]) -> list[int] | None:
    """The results' bits (-1: some NaN, or a value that the ISA leaves open); None where the oracle does not know the instruction."""
    tokens = opcode.split(".")
    name = tokens[0]
    of = type.removesuffix("x2")
    packed = type.endswith("x2")
    if name == "cvt":
        return _cvt(tokens, operands)
    if name in ("set", "setp"):
        return _comparison(tokens, operands)
    if name in ("mul", "mad") and tokens[1] == "wide":
        wide = tokens[2][0] + str(2 * width(type))
        return [signed(operands[0], type) * signed(operands[1], type) + (signed(operands[2], wide) if name == "mad" else 0)
                & (1 << width(wide)) - 1 & (1 << width(wide)) - 1]
    if "cc" in tokens or name in ("addc", "subc", "madc") or {"approx", "full", "oob"} & set(tokens):
        return None
    halves = [[o & 0xFFFF for o in operands], [o >> 16 & 0xFFFF for o in operands]] if packed else [
        [o & (1 << max(width(type), 1)) - 1 for o in operands]]
    if of in _FORMATS:
        if name in ("add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt"):
            found = [_float(tokens, of, half) for half in halves]
        elif name in ("min", "max"):
            found = [_extremum(tokens, of, *half) for half in halves]
        else:
            return None
        return [found[0] | found[1] << 16] if packed else found
    if packed:
        parts = [_integer(tokens, of, half) for half in halves]
        return None if None in parts else [sum((p & 0xFFFF) << 16 * i for i, p in enumerate(parts) if p is not None)]
    value = _integer(tokens, type, operands)
    bits = {"popc": 32, "clz": 32, "bfind": 32}.get(name, width(type))
    return None if value is None else [value & (1 << bits) - 1]


def _cvt(tokens: Sequence[str], operands: Sequence[int]) -> list[int] | None:
    to, source = tokens[-2:]
    if tokens[1] == "pack":
        return None
    result, operand = to.removesuffix("x2"), source.removesuffix("x2")
    if not to.endswith("x2"):
        return [_convert(tokens, result, operand, operands[0] & (1 << width(operand)) - 1)]
    bits, half = width(to) // 2, width(source) // 2
    inputs = [operands[0] & (1 << half) - 1, operands[0] >> half & (1 << half) - 1] if source.endswith("x2") else [
        o & 0xFFFFFFFF for o in (operands[1], operands[0])]
    low, high = (_convert(tokens, result, operand, v) for v in inputs)
    return [low | high << bits]


def _comparison(tokens: Sequence[str], operands: Sequence[int]) -> list[int]:
    source = tokens[-1]
    of, bits = source.removesuffix("x2"), width(source.removesuffix("x2"))
    mask = (1 << bits) - 1
    pairs = [[o >> shift & mask for o in operands[:2]] for shift in ((0, 16) if source.endswith("x2") else (0,))]
    found = [_compare(tokens, of, *pair) for pair in pairs]
    if tokens[0] == "setp":
        both = found if len(found) == 2 else [found[0], not found[0]]
        return [int(_combine(tokens, f, operands)) for f in both]
    to = tokens[-2].removesuffix("x2")
    result = 16 if len(found) == 2 else width(to)
    one = bits_of(Fraction(1), to) if to in _FORMATS else (1 << result) - 1
    return [sum((one if _combine(tokens, f, operands) else 0) << result * i for i, f in enumerate(found))]


# ------------------------------------------------------------------------------------------------ the rest


def other(opcode: str, type: str, operands: Sequence[int], table: int) -> list[int] | None:
    """Selection, bytes and bits, chains with a carry; `table` is lop3's."""
    tokens, word = opcode.split("."), 0xFFFFFFFF
    name, bits = tokens[0], width(type)
    u = [v & (1 << (bits or 32)) - 1 for v in operands]
    if "cc" in tokens or name in ("addc", "subc", "madc"):
        return _chain(tokens, type, operands)
    if type.endswith("x2") and name in ("abs", "neg") and type[:-2] in _FORMATS:
        low, high = (_signs(tokens, type[:-2], [operands[0] >> shift & 0xFFFF])[0] for shift in (0, 16))
        return [low | high << 16]
    if type in _FORMATS and name in ("abs", "neg", "copysign", "testp"):
        return _signs(tokens, type, u)
    match name:
        case "selp":
            return [u[0] if operands[2] & 1 else u[1]]
        case "slct":
            bits_c = flushed(operands[2] & word, "f32") if "ftz" in tokens else operands[2] & word
            c = number(bits_c, "f32") if tokens[-1] == "f32" else signed(bits_c, "s32")
            return [u[0] if c >= 0 else u[1]]
        case "lop3":
            found = sum((table >> (u[0] >> i & 1) * 4 + (u[1] >> i & 1) * 2 + (u[2] >> i & 1) & 1) << i for i in range(32))
            truth = [int((found != 0) | (operands[3] & 1) if "or" in tokens else (found != 0) & operands[3] & 1)] if len(tokens) > 2 else []
            return [found, *truth]
        case "shf":
            count = u[2] & 31 if "wrap" in tokens else min(u[2], 32)
            pair = u[1] << 32 | u[0]
            return [(pair << count >> 32 if "l" in tokens else pair >> count) & word]
        case "szext" | "bmsk":
            a, b = (v & 31 if "wrap" in tokens else min(v, 32) for v in u[:2])
            if name == "bmsk":
                return [sum(1 << i for i in range(32) if a <= i < a + b)]
            field = u[0] % (1 << b)
            return [(field - (1 << b) if type == "s32" and b and field >> b - 1 else field) & word]
        case "dp4a" | "dp2a":
            half = name == "dp2a"
            left, right = tokens[-2][0] == "s", tokens[-1][0] == "s"
            x = _bytes(operands[0], 2 if half else 1, left)
            y = _bytes(operands[1], 1, right)
            y = y[2:] if "hi" in tokens else y[:2] if half else y
            return [sum(p * q for p, q in zip(x, y, strict=True)) + operands[2] & word]
        case "prmt" if len(tokens) == 2:
            octets = (operands[0] & word).to_bytes(4, "little") + (operands[1] & word).to_bytes(4, "little")
            chosen = [operands[2] >> 4 * i & 15 for i in range(4)]
            return [sum((0xFF * (octets[s & 7] >> 7) if s & 8 else octets[s & 7]) << 8 * i for i, s in enumerate(chosen))]
    return None


def _bytes(value: int, size: int, is_signed: bool) -> list[int]:
    raw = (value & 0xFFFFFFFF).to_bytes(4, "little")
    return [int.from_bytes(raw[i:i + size], "little", signed=is_signed) for i in range(0, 4, size)]


def _signs(tokens: Sequence[str], type: str, u: Sequence[int]) -> list[int]:
    top = 1 << width(type) - 1
    if tokens[0] == "copysign":
        return [u[1] & ~top | u[0] & top]
    a, value = u[0], number(u[0], type)
    if tokens[0] == "testp":
        subnormal = bool(value) and not flushed(a, type) & ~top
        special = isinstance(value, float) and not math.isfinite(value)
        return [int({"finite": not special, "infinite": special and value == value, "number": value == value, "notanumber": value != value,
                     "normal": not special and not subnormal, "subnormal": subnormal}[tokens[1]])]
    if value != value:
        return [_NAN.get(type, -1)]
    a = flushed(a, type) if "ftz" in tokens else a
    return [a ^ top if tokens[0] == "neg" else a & ~top]


def _chain(tokens: Sequence[str], type: str, operands: Sequence[int]) -> list[int]:
    """The last two operands make the carry; a second result, of `.cc`, is the carry."""
    bits, name = width(type), tokens[0]
    size = 1 << bits
    u = [v % size for v in operands]
    reads = name in ("addc", "subc", "madc")
    carry = (u[-2] + u[-1]) // size if reads else 0
    if name[:3] == "mad":
        product = signed(u[0], type) * signed(u[1], type)
        total = (product >> bits if "hi" in tokens else product) % size + u[2] + carry
    elif name[:3] == "sub":
        total = u[0] - u[1] - (1 - carry if reads else 0) + size
    else:
        total = u[0] + u[1] + carry
    return [total % size, total // size][:1 + ("cc" in tokens)]
