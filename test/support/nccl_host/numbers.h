// Inputs, exact sums and error bounds: what an all-reduce should have given. Knows numbers and data types, no plugin
// and no ranks' memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plugin/nccl_types.h"

namespace cgx::host {

std::size_t bytesOf(ncclDataType_t dtype);
const char* nameOf(ncclDataType_t dtype);

/// Element `i` of memory of that type as a double, and back, rounded to nearest even. fp32, fp16 and bf16 only.
double load(ncclDataType_t dtype, const std::byte* memory, std::size_t i);
void store(ncclDataType_t dtype, std::byte* memory, std::size_t i, float value);

enum class Fill {
  Normal,      // N(0, 1), about
  Integers,    // -8 .. 8: every partial sum is exact in every type, so any order gives the same bits
  IndexCoded,  // says where it belongs: a misplaced element is a wrong one
  Spread,      // magnitudes from 1e-6 to 1e3 in runs of a few hundred
  Zeros,
  Constant,  // one value for each rank
  Large,     // N(0, 1) * 1000: what stale padding may hold
  NaNs,      // for stale padding: all NaN
  Huge,      // for stale padding: all 1e30 (65504 where that does not fit)
  Bits,      // for stale padding: random bits
};

/// Element values of `rank` in operation `operation`: a function of its arguments, so that every rank can compute all
/// of them.
void fillInput(ncclDataType_t dtype, Fill fill, std::uint64_t seed, int rank, std::uint64_t operation,
               std::span<std::byte> out);

/// What the ranks gave, and the two sums: exact, and fp32 in rank order rounded once (the bits of exact mode).
struct Sums {
  ncclDataType_t dtype{};
  std::vector<std::vector<std::byte>> inputs;  // by rank
  std::vector<double> exact;
  std::vector<std::byte> rankOrder;
};
Sums sumOf(ncclDataType_t dtype, Fill fill, std::uint64_t seed, const std::vector<int>& members,
           std::uint64_t operation, std::size_t count);

/// Largest error allowed for each element; an empty result means: exactly the bits of Sums::rankOrder.
using Bound = std::function<std::vector<double>(const Sums&)>;
Bound exactly();
/// A uniform quantiser of that width over the largest magnitude of each run of 512: one step for each contribution and
/// one for the sum.
Bound quantised(int bits);

/// The first element outside the bound, the last, and how many.
struct Misses {
  std::size_t count = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  std::string text;  // of the first
};
Misses compare(const Sums& sums, const Bound& bound, std::span<const std::byte> got);

}  // namespace cgx::host
