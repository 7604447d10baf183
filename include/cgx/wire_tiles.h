// Every byte that crosses a link, part 2: the payload of a collective message. How numbers become these bytes:
// docs/codec.md. Knows no header fields (wire.h) and no arithmetic on elements.
//
// A payload holds n elements of one dtype (fp32: 4 bytes, fp16 and bf16: 2) in one of three forms, named by the header:
//   Zero   no bytes; every element is +0.
//   Raw    n elements as they are, n * element size bytes, no padding.
//   Tiles  the sections below, in this order, each a multiple of 16 bytes, without gaps; always smaller than Raw.
//
// The elements are cut into T = ceil(n / 512) tiles of 512; the last may be partial. C of the tiles are coded.
//
// clang-format off
//   section           bytes                     content
//   tile table        T, zero-padded to 16      a byte for each tile: 0 zero (all +0), 1..8 coded in so many bits,
//                                               255 raw
//   tile scales       4 * C, zero-padded to 16  fp32, finite and > 0, of the coded tiles in tile order
//   bucket bytes      16 * C                    for each coded tile a byte for each of its 16 buckets of 32 elements:
//                                               bit 7     1 if the negative side of the bucket is the longer one
//                                               bits 0-6  c, 0 in a bucket of zeros; the step is scale * ratio(c)
//   codes             64 * b for each coded tile  below
//   raw tiles         512 * element size each   the elements as they are, in tile order; a partial last tile has only
//                                               its own n % 512 elements, zero-padded to 16
// clang-format on
//
// ratio(c): 0 for c = 0; else the fp32 with the smaller one of the bit patterns (c + 1905) << 19 and (c + 183) << 22.
// That is 1.0 for c = 127, sixteen values a factor of two down to 2^-4 for c = 63, then two, down to 2^-35 for c = 1.
//
// Codes of a tile with b bits: view the tile as 32 rows of 16 elements, element i in row i / 16, lane i % 16; bucket k
// is rows 2k and 2k + 1. The 32 codes of a lane, row 0 first, fill b little-endian 32-bit words from the lowest bit up:
// the code of row r occupies bits r*b .. r*b + b-1 of the lane's 32*b bits. Word w of lane L is at byte 64 * w + 4 * L
// of the tile's codes. A partial last tile that is coded has all 512 codes; the elements past the end are coded as +0.
//
// Code to level, H = 2^(b-1): code - (H-1); with b = 1: code 1 is level +1, code 0 level -1. The sign is turned if the
// negative side is the longer one. Element = level * step.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace cgx::wire {

static_assert(std::endian::native == std::endian::little, "payload fields are read and written in place");

inline constexpr std::size_t kTileElements = 512;
inline constexpr std::size_t kBucketElements = 32;
inline constexpr std::size_t kTileBuckets = kTileElements / kBucketElements;
inline constexpr std::size_t kTileLanes = 16;
inline constexpr std::size_t kTileRows = kTileElements / kTileLanes;
inline constexpr std::size_t kCodeBytesPerBit = kTileElements / 8;  // codes of a tile with b bits: b times this
inline constexpr std::size_t kSectionAlign = 16;

// Tile table.
inline constexpr std::uint8_t kZeroTile = 0;
inline constexpr int kMinTileBits = 1;
inline constexpr int kMaxTileBits = 8;
inline constexpr std::uint8_t kRawTile = 255;

// Bucket byte.
inline constexpr std::uint8_t kNegativeLonger = 0x80;
inline constexpr std::uint8_t kRatioMask = 0x7F;
inline constexpr std::uint32_t kFineShift = 19;   // ratio(c): min((c + kFineBias) << kFineShift,
inline constexpr std::uint32_t kFineBias = 1905;  //               (c + kCoarseBias) << kCoarseShift) as fp32 bits
inline constexpr std::uint32_t kCoarseShift = 22;
inline constexpr std::uint32_t kCoarseBias = 183;

}  // namespace cgx::wire
