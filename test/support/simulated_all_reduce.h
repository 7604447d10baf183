// An all-reduce without messages, for tests of the codec: every piece quantised once by every rank but its owner, the
// sum once more.
#pragma once

#include <memory>
#include <vector>

#include "support/codec_inputs.h"

namespace cgx::test {

/// What every rank ends up with; `owner(tile)` is implied: pieces of whole tiles, one rank after the other.
inline reference::Bytes simulatedAllReduce(const codec::Kernels& kernels, const codec::EncodeSpec& spec, DType dtype,
                                           const std::vector<std::vector<std::uint8_t>>& ranks) {
  const std::size_t size = codec::bytesOf(dtype);
  const std::size_t count = ranks[0].size() / size;
  const std::size_t tiles = (count + codec::kTile - 1) / codec::kTile;
  const std::size_t piece = (tiles + ranks.size() - 1) / ranks.size() * codec::kTile;
  reference::Bytes result;
  for (std::size_t owner = 0; owner * piece < count; ++owner) {
    const std::size_t first = owner * piece;
    const std::size_t elements = std::min(piece, count - first);
    std::vector<std::unique_ptr<GuardedPayload>> payloads;
    std::vector<codec::Contribution> parts(ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::uint8_t* mine = ranks[rank].data() + first * size;
      if (rank == owner) {
        parts[rank].exact = mine;
        continue;
      }
      codec::EncodeSpec phase1 = spec;
      phase1.noise = {codec::noiseKey(spec.noise.key, 0, 0, static_cast<std::uint32_t>(rank), 1), first};
      payloads.push_back(
          std::make_unique<GuardedPayload>(encodeWith(kernels, phase1, dtype, {mine, mine + elements * size})));
      parts[rank].payload = payloads.back()->payload();
    }
    codec::EncodeSpec phase2 = spec;
    phase2.noise = {codec::noiseKey(spec.noise.key, 0, 0, static_cast<std::uint32_t>(owner), 2), first};
    const GuardedMemory out(codec::payloadCapacity(dtype, elements), 64);
    const GuardedMemory own(elements * size, size);
    kernels.reduce(phase2, dtype, parts, elements, out.data(), own.data());
    reference::append(result, own.data(), own.size());
  }
  return result;
}

inline std::vector<float> floatsOf(DType dtype, const std::vector<std::uint8_t>& elements) {
  std::vector<float> values(elements.size() / codec::bytesOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = reference::load(dtype, elements.data(), i);
  return values;
}

}  // namespace cgx::test
