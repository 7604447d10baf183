// The scalar codec's view of one tile: fp32 copies of its elements, how it is coded, its codes. Knows no payload.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cgx/codec.h"
#include "codec/format.h"

namespace cgx::codec::scalar {

using TileValues = std::array<float, kTile>;

inline std::uint32_t bitsOf(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float floatOf(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline float canonical(float value) { return format::isNaN32(bitsOf(value)) ? floatOf(format::kNaN32) : value; }

/// Item `index` of an array of T that may be unaligned.
template <class T>
T loadAt(const void* memory, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(memory) + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void storeAt(void* memory, std::size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(memory) + index * sizeof(T), &value, sizeof(T));
}

/// Rounds to the dtype, nearest even; what is too large becomes Inf; NaNs canonical.
void storeElement(DType dtype, float value, void* to, std::size_t index);
/// Rounds a finite value to the dtype, nearest even; what is too large becomes the dtype's largest finite value.
void storeSaturated(DType dtype, float value, void* to, std::size_t index);
/// Tile `tile` of `count` elements at `in`, exact, NaNs canonical, +0 past the end of a partial one.
TileValues loadTile(DType dtype, const void* in, std::size_t count, std::size_t tile);

/// Table byte of a tile and, when it is coded, its scale and bucket bytes.
struct TilePlan {
  std::uint8_t kind = wire::kRawTile;
  float scale = 0;
  std::array<std::uint8_t, wire::kTileBuckets> bucketBytes{};
};
TilePlan planTile(const EncodeSpec& spec, const TileValues& x);

/// Writes the 64 * bits bytes of codes of a tile that `plan` says is coded.
void encodeTile(const TilePlan& plan, Rounding rounding, std::uint64_t tileNoise, const TileValues& x,
                std::byte* codes);
/// The reverse; values are finite for any codes.
void decodeTile(const TilePlan& plan, const std::byte* codes, TileValues& x);

}  // namespace cgx::codec::scalar
