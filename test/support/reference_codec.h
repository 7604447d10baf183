// The tile format once more, to be checked by eye against wire_tiles.h and docs/codec.md: one element, one bit at a
// time, nothing shared with src/codec. Encodes to a vector, decodes to fp32 values; slow on purpose.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "cgx/codec.h"

namespace cgx::reference {

using codec::DType;
using codec::EncodeSpec;
using codec::Form;
using Bytes = std::vector<std::uint8_t>;

inline constexpr float kMaxFloat = std::numeric_limits<float>::max();

struct Message {
  Form form = Form::Zero;
  Bytes bytes;
  bool operator==(const Message&) const = default;
};

// ---- Elements: 16-bit floats by their definition, value = mantissa * 2^exponent
// -----------------------------------------------------

struct HalfFormat {
  int mantissaBits;
  int exponentBits;
  int bias() const { return (1 << (exponentBits - 1)) - 1; }
  int lowestExponent() const { return 1 - bias() - mantissaBits; }  // of the unit of denormals
  unsigned infinity() const { return ((1U << exponentBits) - 1) << mantissaBits; }
};
inline HalfFormat halfFormat(DType dtype) { return dtype == DType::F16 ? HalfFormat{10, 5} : HalfFormat{7, 8}; }

inline float fromHalf(DType dtype, unsigned half) {
  const HalfFormat f = halfFormat(dtype);
  const unsigned magnitude = half & 0x7FFFU;
  const unsigned exponent = magnitude >> f.mantissaBits;
  const unsigned mantissa = magnitude & ((1U << f.mantissaBits) - 1);
  double value = 0;
  if (magnitude > f.infinity()) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude == f.infinity()) {
    value = std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, f.lowestExponent());
  } else {
    value = std::ldexp(mantissa + (1U << f.mantissaBits), f.lowestExponent() + static_cast<int>(exponent) - 1);
  }
  return static_cast<float>((half & 0x8000U) != 0 ? -value : value);
}

/// To nearest even, overflow to infinity.
inline std::uint16_t toHalf(DType dtype, float value) {
  const HalfFormat f = halfFormat(dtype);
  if (std::isnan(value)) return dtype == DType::F16 ? 0x7E00 : 0x7FC0;
  const unsigned sign = std::signbit(value) ? 0x8000U : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | f.infinity());
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  const int unit = std::max(std::ilogb(magnitude) - f.mantissaBits, f.lowestExponent());
  const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, -unit)));  // ties to even
  // Denormals count from 0, each exponent above adds one row of 2^mantissaBits; a carry moves on to the next row by
  // itself.
  const unsigned bits = units + (static_cast<unsigned>(unit - f.lowestExponent()) << f.mantissaBits);
  return static_cast<std::uint16_t>(sign | std::min(bits, f.infinity()));
}

inline float load(DType dtype, const void* from, std::size_t i) {
  if (dtype == DType::F32) {
    float value = 0;
    std::memcpy(&value, static_cast<const char*>(from) + 4 * i, 4);
    return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, static_cast<const char*>(from) + 2 * i, 2);
  return fromHalf(dtype, half);
}

/// Bits of the element that `value` is rounded to.
inline std::uint32_t store(DType dtype, float value, bool saturate) {
  if (dtype == DType::F32)
    return std::bit_cast<std::uint32_t>(std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value);
  const std::uint32_t half = toHalf(dtype, value);
  const bool infinite = (half & 0x7FFFU) == halfFormat(dtype).infinity();
  return saturate && infinite ? half - 1 : half;
}

// ---- The tile format
// ----------------------------------------------------------------------------------------------------------------

/// Step relative to the tile's scale that bits 0-6 of a bucket byte stand for: going down from 1.0, sixteen values a
/// factor of two for four factors of two, then two values.
inline float ratioOf(unsigned code) {
  if (code == 0) return 0;
  const int below = 127 - static_cast<int>(code);
  const int perOctave = below <= 64 ? 16 : 2;
  const int steps = below <= 64 ? below : below - 64 + 8;  // 64 fine steps are as much as 8 coarse ones
  const int octaves = (steps + perOctave - 1) / perOctave;
  const int above = octaves * perOctave - steps;  // values above 2^-octaves
  return std::ldexp(1.0F + static_cast<float>(above) / static_cast<float>(perOctave), -octaves);
}

inline std::uint64_t scramble(std::uint64_t z) {
  z ^= z >> 30;
  z *= 0xBF58476D1CE4E5B9U;
  z ^= z >> 27;
  z *= 0x94D049BB133111EBU;
  z ^= z >> 31;
  return z;
}
inline int noise16(std::uint64_t key, std::uint64_t tile, unsigned element) {
  const unsigned row = element / 16;
  const unsigned lane = element % 16;
  const std::uint64_t h = scramble(key + (tile + 1) * 0x9E3779B97F4A7C15U);
  auto s = static_cast<std::uint32_t>(h + lane * std::uint64_t{0x9E3779B9});
  s ^= s >> 16;
  s *= 0x85EBCA6B;
  s ^= s >> 15;
  s += static_cast<std::uint32_t>(h >> 32);
  s *= 0xC2B2AE35;
  s ^= s >> 16;
  std::uint32_t w = s * (static_cast<std::uint32_t>(scramble((row / 2 + 1) * 0x9E3779B97F4A7C15U)) | 1);
  w ^= w >> 16;
  return static_cast<int>(row % 2 == 0 ? w % 65536 : w / 65536);
}

inline int levelToCode(int bits, const EncodeSpec& spec, float x, float inverse, int noise) {
  const bool nearest = spec.rounding == Rounding::Nearest;
  const int half = 1 << (bits - 1);
  const float level = x * inverse;
  if (bits > 1 && nearest) return static_cast<int>(std::nearbyint(level)) + half - 1;
  const int one = bits == 8 ? 1 << 14 : 1 << 16;
  const int fixed = static_cast<int>(std::nearbyint(level * static_cast<float>(one)));
  const int term = (noise % one) / 4 * 4 + 2;
  const auto floorDivide = [](int a, int b) { return static_cast<int>(std::floor(static_cast<double>(a) / b)); };
  if (bits == 1) return nearest ? fixed >= 0 : floorDivide(fixed + one + 2 * term, 2 * one);
  return floorDivide(fixed + term, one) + half - 1;
}

inline void append(Bytes& to, const void* from, std::size_t bytes) {
  const auto* first = static_cast<const std::uint8_t*>(from);
  to.insert(to.end(), first, first + bytes);
}
inline void pad(Bytes& bytes) { bytes.resize((bytes.size() + 15) / 16 * 16); }

/// The sections of a payload being made.
struct Sections {
  Bytes table, scales, buckets, codes, raw;
};

inline std::uint8_t kindOf(const EncodeSpec& spec, std::span<const float> x) {
  bool allBitsZero = true;
  float largest = 0;
  for (const float v : x) {
    allBitsZero = allBitsZero && std::bit_cast<std::uint32_t>(v) == 0;
    if (!std::isfinite(v)) return 255;
    largest = std::max(largest, std::fabs(v));
  }
  if (spec.bits == codec::kExactBits) return allBitsZero ? 0 : 255;
  if (largest == 0) return 0;
  return largest < std::ldexp(1.0F, -80) ? 255 : static_cast<std::uint8_t>(spec.bits);
}

/// Codes a tile; false: some bucket's step is too small beside the largest.
inline bool codeTile(const EncodeSpec& spec, std::span<const float> x, std::uint64_t tile, Sections& to) {
  const int half = 1 << (spec.bits - 1);
  float steps[16];
  bool negativeLonger[16];
  bool zero[16];
  float scale = 0;
  for (int k = 0; k < 16; ++k) {
    float highest = 0;
    float lowest = 0;
    float smallest = kMaxFloat;
    for (int i = 0; i < 32; ++i) {
      highest = std::max(highest, x[static_cast<std::size_t>(32 * k + i)]);
      lowest = std::min(lowest, x[static_cast<std::size_t>(32 * k + i)]);
      smallest = std::min(smallest, std::fabs(x[static_cast<std::size_t>(32 * k + i)]));
    }
    const float longer = std::max(highest, -lowest);
    const float shorter = std::min(highest, -lowest);
    negativeLonger[k] = -lowest > highest;
    zero[k] = longer == 0;
    if (spec.bits > 1) {
      steps[k] = std::max(longer * (1.0F / static_cast<float>(half)), shorter * (1.0F / static_cast<float>(half - 1)));
    } else {
      steps[k] = spec.rounding == Rounding::Stochastic ? longer : 0.5F * longer + 0.5F * smallest;
    }
    scale = std::max(scale, steps[k]);
  }
  std::uint8_t bucketBytes[16];
  std::vector<bool> lanes[16];
  for (int k = 0; k < 16; ++k) {
    unsigned code = 0;
    if (!zero[k]) {
      const float ratio = steps[k] / scale;
      if (ratio <= std::ldexp(0.75F, -35)) return false;  // rounds up to less than code 1
      for (code = 1; ratioOf(code) < ratio;) ++code;
    }
    bucketBytes[k] = static_cast<std::uint8_t>(code + (negativeLonger[k] ? 128 : 0));
  }
  for (unsigned i = 0; i < 512; ++i) {
    const float step = ratioOf(bucketBytes[i / 32] % 128) * scale;
    const float inverse = step == 0 ? 0 : 1 / step;
    const int noise = noise16(spec.noise.key, spec.noise.first / 512 + tile, i);
    const int code = levelToCode(spec.bits, spec, negativeLonger[i / 32] ? -x[i] : x[i], inverse, noise);
    for (int bit = 0; bit < spec.bits; ++bit) lanes[i % 16].push_back((code >> bit & 1) != 0);
  }
  append(to.scales, &scale, 4);
  append(to.buckets, bucketBytes, 16);
  const std::size_t at = to.codes.size();
  to.codes.resize(at + static_cast<std::size_t>(64 * spec.bits));
  for (std::size_t lane = 0; lane < 16; ++lane) {
    for (std::size_t bit = 0; bit < lanes[lane].size(); ++bit) {
      if (lanes[lane][bit])
        to.codes[at + bit / 32 * 64 + lane * 4 + bit % 32 / 8] |= static_cast<std::uint8_t>(1 << bit % 8);
    }
  }
  return true;
}

inline Message encode(const EncodeSpec& spec, DType dtype, const void* in, std::size_t count) {
  Sections s;
  bool zero = true;
  for (std::size_t first = 0; first < count; first += 512) {
    const std::size_t elements = std::min<std::size_t>(512, count - first);
    std::vector<float> x(512, 0.0F);
    for (std::size_t i = 0; i < elements; ++i) x[i] = load(dtype, in, first + i);
    std::uint8_t kind = kindOf(spec, x);
    if (kind >= 1 && kind <= 8 && !codeTile(spec, x, first / 512, s)) kind = 255;
    if (kind == 255)
      append(s.raw, static_cast<const std::uint8_t*>(in) + first * bytesOf(dtype), elements * bytesOf(dtype));
    if (kind == 255) pad(s.raw);
    s.table.push_back(kind);
    zero = zero && kind == 0;
  }
  if (zero) return {};
  pad(s.table);
  pad(s.scales);
  Message m{Form::Tiles, {}};
  for (const Bytes* section : {&s.table, &s.scales, &s.buckets, &s.codes, &s.raw})
    append(m.bytes, section->data(), section->size());
  if (m.bytes.size() < count * bytesOf(dtype)) return m;
  m = {Form::Raw, {}};
  append(m.bytes, in, count * bytesOf(dtype));
  return m;
}

/// A decoded element; `coded` ones saturate when they are rounded to the dtype.
struct Value {
  float value = 0;
  bool coded = false;
};

inline Value decodeCoded(const Bytes& b, int bits, std::size_t scaleAt, std::size_t bucketsAt, std::size_t codesAt,
                         std::size_t i) {
  float scale = 0;
  std::memcpy(&scale, &b[scaleAt], 4);
  const unsigned bucket = b[bucketsAt + i / 32];
  int code = 0;
  for (std::size_t bit = 0; bit < static_cast<std::size_t>(bits); ++bit) {
    const std::size_t place = i / 16 * static_cast<std::size_t>(bits) + bit;  // in the lane's bits
    const int byte = b[codesAt + place / 32 * 64 + i % 16 * 4 + place % 32 / 8];
    code |= (byte >> place % 8 & 1) << bit;
  }
  const int half = 1 << (bits - 1);
  int level = bits == 1 ? 2 * code - 1 : code - (half - 1);
  if (bucket >= 128) level = -level;
  float value = static_cast<float>(level) * (ratioOf(bucket % 128) * scale);
  if (bits == 1) value += 0.0F;
  return {std::min(std::max(value, -kMaxFloat), kMaxFloat), true};
}

/// Values of a well-formed message.
inline std::vector<Value> decode(const Message& m, DType dtype, std::size_t count) {
  std::vector<Value> out(count);
  const std::size_t tiles = (count + 511) / 512;
  if (m.form == Form::Raw) {
    for (std::size_t i = 0; i < count; ++i) out[i].value = load(dtype, m.bytes.data(), i);
  }
  if (m.form != Form::Tiles) return out;
  std::size_t coded = 0;
  std::size_t codeBytes = 0;
  for (std::size_t t = 0; t < tiles; ++t) {
    if (m.bytes[t] >= 1 && m.bytes[t] <= 8) ++coded, codeBytes += 64U * m.bytes[t];
  }
  std::size_t scaleAt = (tiles + 15) / 16 * 16;
  std::size_t bucketsAt = scaleAt + (4 * coded + 15) / 16 * 16;
  std::size_t codesAt = bucketsAt + 16 * coded;
  std::size_t rawAt = codesAt + codeBytes;
  for (std::size_t t = 0; t < tiles; ++t) {
    const std::size_t elements = std::min<std::size_t>(512, count - 512 * t);
    const int bits = m.bytes[t];
    for (std::size_t i = 0; i < elements; ++i) {
      Value& v = out[512 * t + i];
      if (bits == 255) v.value = load(dtype, &m.bytes[rawAt], i);
      if (bits >= 1 && bits <= 8) v = decodeCoded(m.bytes, bits, scaleAt, bucketsAt, codesAt, i);
    }
    if (bits == 255) rawAt += (elements * bytesOf(dtype) + 15) / 16 * 16;
    if (bits >= 1 && bits <= 8) scaleAt += 4, bucketsAt += 16, codesAt += 64U * static_cast<unsigned>(bits);
  }
  return out;
}

/// Memory image of decoded values, as Kernels::decode writes it.
inline Bytes image(const std::vector<Value>& values, DType dtype) {
  Bytes out;
  for (const Value& v : values) {
    const std::uint32_t bits = store(dtype, v.value, v.coded);
    append(out, &bits, bytesOf(dtype));
  }
  return out;
}

/// What Kernels::reduce sends and keeps for contributions with these values.
struct Reduced {
  Message message;
  Bytes own;
};
inline Reduced reduce(const EncodeSpec& spec, DType dtype, const std::vector<std::vector<Value>>& parts,
                      std::size_t count) {
  Bytes sum;
  for (std::size_t i = 0; i < count; ++i) {
    float total = parts[0][i].value;
    for (std::size_t k = 1; k < parts.size(); ++k) total += parts[k][i].value;
    const std::uint32_t bits = store(dtype, total, false);
    append(sum, &bits, bytesOf(dtype));
  }
  Reduced r;
  r.message = encode(spec, dtype, sum.data(), count);
  r.own = image(decode(r.message, dtype, count), dtype);
  return r;
}

}  // namespace cgx::reference
