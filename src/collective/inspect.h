// What is found out about a rank's contributions beside coding them: samples of the error, and why tiles are raw. Reads
// only, so no result depends on it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cgx/codec.h"
#include "plan.h"

namespace cgx::collective {

/// Sums over the sampled tiles. Their quotient is the NMSE.
struct ErrorSample {
  std::uint64_t tiles = 0;
  double errorSquares = 0;  // of coded minus exact value, each in fp32
  double valueSquares = 0;  // of the exact value
};

/// One tile in so many is looked at: less than 1 % of the time that coding them takes (docs/performance.md).
inline constexpr std::uint64_t kSampleStride = 1024;

/// Which tiles of an operation these are: tile T with T % kSampleStride equal to this. Changes from operation to
/// operation, so that a training step's layers all have their turn; the same on every rank and in every run.
std::uint64_t sampledTile(std::uint64_t operation) noexcept;

/// Samples block `range` of an operation, whose first element is at `values`. `spec` is what the block is encoded by,
/// its noise included. Partial tiles, zero tiles and those that cannot be coded are passed over.
ErrorSample sampleError(const codec::Kernels& kernels, const codec::EncodeSpec& spec, codec::DType dtype,
                        std::uint64_t operation, Range range, const std::byte* values) noexcept;

/// What is said of one block.
struct Inspection {
  ErrorSample error;
  std::uint64_t nonFiniteTiles = 0;
};

/// Tiles of a block that hold an Inf or a NaN; these are raw.
std::uint64_t nonFiniteTiles(codec::DType dtype, const std::byte* values, std::size_t elements) noexcept;

}  // namespace cgx::collective
