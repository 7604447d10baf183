// Element types by their command line names, and conversions to and from fp32 in plain integer code. The checker's own:
// it shares nothing with the codec that it judges.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cgx/codec.h"

namespace cgx::tool {

using codec::DType;

constexpr const char* nameOf(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return "fp32";
    case DType::F16:
      return "fp16";
    case DType::BF16:
      return "bf16";
  }
  return "?";
}

/// Largest finite value.
constexpr double largestOf(DType dtype) {
  if (dtype == DType::F16) return 65504.0;
  if (dtype == DType::BF16) return 0x1.fep127;
  return std::numeric_limits<float>::max();
}

inline float halfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero and denormals: exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Nearest even; NaN stays NaN.
inline std::uint16_t floatToHalf(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 puts the denormal's last bit at the end of the mantissa
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float bfloatToFloat(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

/// Nearest even; NaN stays NaN.
inline std::uint16_t floatToBfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | 0x7fc0u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float elementToFloat(DType dtype, const std::byte* data, std::size_t index) {
  if (dtype == DType::F32) {
    float value;
    std::memcpy(&value, data + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, data + 2 * index, 2);
  return dtype == DType::F16 ? halfToFloat(bits) : bfloatToFloat(bits);
}

inline void floatToElement(DType dtype, float value, std::byte* data, std::size_t index) {
  if (dtype == DType::F32) {
    std::memcpy(data + 4 * index, &value, 4);
    return;
  }
  const std::uint16_t bits = dtype == DType::F16 ? floatToHalf(value) : floatToBfloat(value);
  std::memcpy(data + 2 * index, &bits, 2);
}

}  // namespace cgx::tool
