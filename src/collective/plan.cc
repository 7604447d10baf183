#include "plan.h"

#include <algorithm>

#include "cgx/collective.h"
#include "cgx/wire.h"

namespace cgx::collective {
namespace {

// Below this an owner more saves no time: its latency costs more than the transfer it takes over (DESIGN: bytes / 64
// KiB).
constexpr std::size_t kBytesPerOwner = 64 << 10;
// A piece is cut at least this often, so that encoding, sending and reducing overlap, unless blocks would fall below
// kLeastGrains.
constexpr std::size_t kBlocksPerPiece = 4;
constexpr std::size_t kLeastGrains = 32;  // 16 Ki elements: below it headers and calls cost more than the overlap wins
constexpr std::size_t kGatherGrain = codec::kTile * 4;

std::size_t divideUp(std::size_t a, std::size_t b) noexcept { return (a + b - 1) / b; }

/// Cuts `total` grains into `parts` as evenly as possible; part `index` as a range of grains.
Range evenPart(std::size_t total, std::size_t parts, std::size_t index) noexcept {
  const std::size_t base = total / parts;
  const std::size_t extra = total % parts;
  return {index * base + std::min(index, extra), base + (index < extra ? 1 : 0)};
}

/// Grains back to elements, cut at the end of the last, partial grain.
Range toElements(Range grains, std::size_t grain, std::size_t limit) noexcept {
  const std::size_t first = std::min(grains.first * grain, limit);
  return {first, std::min((grains.first + grains.elements) * grain, limit) - first};
}

/// The part of [0, count) that a window starting at `windowFirst` sees of rank `rank`.
Range windowPart(const Shape& shape, std::size_t rank) noexcept {
  const std::size_t begin = std::max(shape.windowFirst, rank * shape.perRank);
  const std::size_t end = std::min(shape.windowFirst + shape.count, (rank + 1) * shape.perRank);
  return begin < end ? Range{begin - shape.windowFirst, end - begin} : Range{};
}

}  // namespace

const char* name(Kind kind) noexcept {
  switch (kind) {
    case Kind::AllReduce:
      return "all-reduce";
    case Kind::AllGather:
      return "all-gather";
    case Kind::ReduceScatter:
      return "reduce-scatter";
  }
  return "unknown operation";
}

Plan::Plan(const Limits& limits, const Shape& shape) noexcept
    : shape_(shape),
      ranks_(static_cast<std::size_t>(limits.ranks)),
      grain_(shape.kind == Kind::AllGather ? kGatherGrain : codec::kTile),
      maxGrains_(std::max<std::size_t>(1, limits.blockElements / codec::kTile)) {
  if (shape.kind != Kind::AllReduce) return;
  const std::size_t bytes = shape.count * shape.elementBytes();
  // One phase moves N - 1 messages a rank instead of 2 (N - 1) / N, so its limit falls with the rank count.
  // And all its blocks must fit into the windows at once: a reduction in one phase waits until this rank has encoded
  // every block.
  onePhase_ = bytes <= 2 * limits.onePhaseBytes / ranks_ && shape.count <= kWindow * maxGrains_ * grain_;
  owners_ = std::clamp<std::size_t>(bytes / kBytesPerOwner, 1, ranks_);
}

Range Plan::piece(int rank) const noexcept {
  const auto r = static_cast<std::size_t>(rank);
  if (shape_.kind != Kind::AllReduce) return windowPart(shape_, r);
  if (onePhase_) return {0, shape_.count};
  // Owners are spread over the ranks: owner p is rank floor(p * ranks / owners).
  const std::size_t owner = divideUp(r * owners_, ranks_);
  if (owner >= owners_ || owner * ranks_ / owners_ != r) return {};
  return toElements(evenPart(divideUp(shape_.count, grain_), owners_, owner), grain_, shape_.count);
}

std::size_t Plan::blockGrains(std::size_t pieceGrains) const noexcept {
  return std::min(maxGrains_, std::max(kLeastGrains, divideUp(pieceGrains, kBlocksPerPiece)));
}

std::size_t Plan::blocks(int rank) const noexcept {
  const std::size_t grains = divideUp(piece(rank).elements, grain_);
  return grains == 0 ? 0 : divideUp(grains, blockGrains(grains));
}

Range Plan::block(int rank, std::size_t index) const noexcept {
  const Range whole = piece(rank);
  const std::size_t grains = divideUp(whole.elements, grain_);
  const Range part = toElements(evenPart(grains, blocks(rank), index), grain_, whole.elements);
  return {whole.first + part.first, part.elements};
}

std::size_t slotBytes(std::size_t blockElements) noexcept {
  constexpr std::size_t kPage = 4096;
  const std::size_t bytes = sizeof(wire::MessageHeader) + codec::payloadCapacity(codec::DType::F32, blockElements);
  return divideUp(bytes, kPage) * kPage;
}

std::size_t stagingFor(const Limits& limits) noexcept {
  const auto peers = static_cast<std::size_t>(limits.ranks - 1);
  // Each peer: a window of contributions out, one in, one of results in; and the window of own results, with scratch.
  return slotBytes(limits.blockElements) * kWindow * (3 * peers + 2);
}

std::size_t chooseBlockElements(const Settings& settings, int ranks) noexcept {
  constexpr std::size_t kLeast = 4 << 10;
  constexpr std::size_t kMost = 64 << 10;
  if (settings.blockElements != 0) {
    return std::clamp(divideUp(settings.blockElements, codec::kTile) * codec::kTile, codec::kTile,
                      std::size_t{1} << 22);
  }
  std::size_t elements = kMost;
  while (elements > kLeast && stagingFor({ranks, elements, 0}) > settings.staging) elements /= 2;
  return elements;
}

std::size_t stagingBytes(const Settings& settings, int ranks) noexcept {
  return stagingFor({ranks, chooseBlockElements(settings, ranks), 0});
}

}  // namespace cgx::collective
