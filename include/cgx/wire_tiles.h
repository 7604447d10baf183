// Every byte that crosses a link, part 2: the payload of a collective message. How numbers become these bytes:
// docs/codec.md. Knows no header fields (wire.h) and no arithmetic on elements.
//
// A payload holds n elements of one dtype (fp32: 4 bytes, fp16 and bf16: 2) in one of three forms, which the header
// names:
//   Zero   no bytes; every element is +0.
//   Raw    n elements as they are, n * element size bytes, no padding.
//   Tiles  the sections below, in this order, each a multiple of 16 bytes, without gaps. Always smaller than Raw would
//   be.
//
// The elements are cut into T = ceil(n / 512) tiles of 512; the last may be partial. C of the tiles are coded.
//
//   section       bytes                            content
//   tile table    T, zero-padded to 16             one byte a tile: 0 zero (all +0), 1..8 coded with that many bits,
//   255 raw tile scales   4 * C, zero-padded to 16         fp32, finite and > 0, of the coded tiles in tile order
//   bucket bytes  16 * C                           for each coded tile, one byte for each of its 16 buckets of 32
//   elements:
//                                                  bit 7: 1 if the negative side of the bucket is the longer one
//                                                  bits 0-6: c; the step is scale * ratio(c); c = 0: step 0, a bucket
//                                                  of zeros; else ratio(c) is the fp32 with bits (c + 381) << 21: 1.0
//                                                  for c = 127, and four values a factor of two, down to 1.5 * 2^-32
//                                                  for c = 1
//   codes         64 * b for each coded tile       below
//   raw tiles     512 * element size for each      the elements as they are, in tile order; a partial last tile has
//   only its own
//                 raw tile                         n % 512 elements, zero-padded to 16
//
// Codes of a tile with b bits: view the tile as 32 rows of 16 elements, element i in row i / 16, lane i % 16; bucket k
// is rows 2k and 2k + 1. The 32 codes of a lane, row 0 first, fill b little-endian 32-bit words from the lowest bit up:
// the code of row r occupies bits r*b .. r*b + b-1 of the lane's 32*b bits. Word w of lane L is at byte 64 * w + 4 * L
// of the tile's codes. A partial last tile that is coded has all 512 codes; the elements past the end are coded as +0.
//
// Code to level, H = 2^(b-1): code - (H-1), with b = 1: code 1 is level +1 and code 0 level -1; the sign is turned if
// the negative side is the longer one. Element = level * step.
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
inline constexpr std::uint8_t kRatioOne = 127;    // ratio 1.0
inline constexpr std::uint32_t kRatioShift = 21;  // ratio(c) has the fp32 bits (c + kRatioBias) << kRatioShift
inline constexpr std::uint32_t kRatioBias = 381;

}  // namespace cgx::wire
