// What the engine counts: a few additions for each operation, job and message, under the mutex that is held there
// anyhow.
#include "engine.h"

namespace cgx::collective {
namespace {

void addCall(Calls& calls, std::size_t bytes) {
  ++calls.operations;
  calls.inputBytes += bytes;
}

}  // namespace

std::uint64_t nanosecondsSince(transport::Clock::time_point start) noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(transport::Clock::now() - start).count());
}

void Engine::countPosted(const Request& operation) {
  const Shape& shape = operation.plan.shape();
  const std::size_t bytes = shape.count * shape.elementBytes();
  ++counters_.operations;
  counters_.inputBytes += bytes;
  switch (shape.kind) {
    case Kind::AllReduce:
      addCall(counters_.allReduces, bytes);
      ++counters_.sizes[operation.sizeClass].operations;
      counters_.sizes[operation.sizeClass].inputBytes += bytes;
      break;
    case Kind::AllGather:
      addCall(counters_.allGathers, bytes);
      break;
    case Kind::ReduceScatter:
      addCall(counters_.reduceScatters, bytes);
      break;
  }
}

// Once `exact` is decided.
void Engine::countSmall(const Request& operation) {
  const bool toBeCoded =
      operation.plan.shape().kind == Kind::AllReduce && options_.settings.bits != codec::kExactBits && ranks_ > 1;
  if (toBeCoded && operation.exact) ++counters_.smallOperations;
}

void Engine::countEncoded(const Request& operation, Range range, const codec::Encoded& encoded,
                          const Inspection& inspection) {
  counters_.zeroTiles += encoded.zeroTiles;
  counters_.rawTiles += encoded.rawTiles;
  if (operation.exact) {
    counters_.exactTiles += encoded.rawTiles;
    return;
  }
  const std::size_t tiles = (range.elements + codec::kTile - 1) / codec::kTile;
  const std::size_t codes = tiles - encoded.zeroTiles - encoded.rawTiles;
  (encoded.form == codec::Form::Raw ? counters_.wholeTiles : counters_.codedTiles) += codes;
  counters_.nonFiniteTiles += inspection.nonFiniteTiles;
  counters_.sampledTiles += inspection.error.tiles;
  counters_.errorSquares += inspection.error.errorSquares;
  counters_.valueSquares += inspection.error.valueSquares;
}

void Engine::countMessage(const Request& operation, std::size_t bytes) {
  counters_.wireBytes += bytes;
  ++counters_.messages;
  if (operation.plan.shape().kind == Kind::AllReduce) counters_.sizes[operation.sizeClass].wireBytes += bytes;
}

void Engine::countDone(const Request& operation) {
  if (operation.plan.shape().kind == Kind::AllReduce)
    counters_.sizes[operation.sizeClass].nanoseconds += nanosecondsSince(operation.posted);
}

}  // namespace cgx::collective
