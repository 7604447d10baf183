// What the engine says that it did, against what was asked of it and what the links carried.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "cgx/log.h"
#include "support/communicators.h"
#include "support/engine_ranks.h"

namespace cgx::collective {
namespace {

using test::Call;
using test::EngineRanks;

constexpr std::size_t kLarge = 65536;  // fp32: 256 KiB, two owners of 64 tiles each
constexpr std::size_t kSmall = 1000;
constexpr std::size_t kTilesToPeer = kLarge / 2 / codec::kTile;

Call allReduceOf(std::size_t ranks, std::size_t count, float (*value)(std::size_t rank, std::size_t i)) {
  Call call;
  call.shape.count = count;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value(r, i);
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    call.send.emplace_back(bytes, bytes + count * 4);
    call.recv.emplace_back(count * 4);
  }
  return call;
}

float wave(std::size_t rank, std::size_t i) {
  return std::sin(static_cast<float>(i + 1) * 0.37F + static_cast<float>(rank));
}

// In the piece that rank 1 owns: rank 0 contributes one tile of zeros and one with a NaN.
float waveWithHoles(std::size_t rank, std::size_t i) {
  if (rank == 0 && i >= kLarge / 2 && i < kLarge / 2 + codec::kTile) return 0;
  if (rank == 0 && i == kLarge - 1) return std::numeric_limits<float>::quiet_NaN();
  return wave(rank, i);
}

float shortContent(std::size_t rank, std::size_t i) { return i < 100 ? wave(rank, i) : 0; }

Call allGatherOf(std::size_t ranks, std::size_t perRank) {
  Call call;
  call.shape.kind = Kind::AllGather;
  call.shape.perRank = perRank;
  call.shape.count = perRank * ranks;
  for (std::size_t r = 0; r < ranks; ++r) {
    call.send.emplace_back(perRank, std::byte{7});
    call.recv.emplace_back(perRank * ranks);
  }
  return call;
}

std::vector<Call> tenCalls() {
  std::vector<Call> calls;
  for (int k = 0; k < 4; ++k) calls.push_back(allReduceOf(2, kLarge, wave));
  calls.push_back(allReduceOf(2, kLarge, waveWithHoles));
  for (int k = 0; k < 3; ++k) calls.push_back(allReduceOf(2, kSmall, wave));
  calls.push_back(allReduceOf(2, kLarge, shortContent));
  calls.push_back(allGatherOf(2, 1000));
  return calls;
}

TEST(EngineCounters, AfterTenOperationsAreTheTruth) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EngineRanks engines(seed, std::vector<Settings>(2));
    std::vector<Call> calls = tenCalls();
    ASSERT_EQ(engines.run(calls), "");
    engines.world().run();
    const Counters now = engines.engine(0).counters();
    EXPECT_EQ(now.operations, 10U);
    EXPECT_EQ(now.allReduces.operations, 9U);
    EXPECT_EQ(now.allReduces.inputBytes, 6 * kLarge * 4 + 3 * kSmall * 4);
    EXPECT_EQ(now.allGathers.operations, 1U);
    EXPECT_EQ(now.allGathers.inputBytes, 2000U);
    EXPECT_EQ(now.reduceScatters.operations, 0U);
    EXPECT_EQ(now.inputBytes, now.allReduces.inputBytes + now.allGathers.inputBytes);
    EXPECT_EQ(now.smallOperations, 4U);
    EXPECT_EQ(now.codedTiles, 5 * kTilesToPeer - 2);
    EXPECT_EQ(now.zeroTiles, 1 + kTilesToPeer);   // the hole; rank 1's piece of the short content
    EXPECT_EQ(now.exactTiles, 3 * 2U);            // each small operation has two tiles
    EXPECT_EQ(now.rawTiles, now.exactTiles + 1);  // and the NaN's
    EXPECT_EQ(now.wholeTiles, 0U);
    const Counters other = engines.engine(1).counters();
    EXPECT_EQ(other.codedTiles, 5 * kTilesToPeer);
    EXPECT_EQ(other.exactTiles, 3 * 2U + 1);
    EXPECT_EQ(other.zeroTiles, kTilesToPeer - 1);
    EXPECT_EQ(now.wireBytes + other.wireBytes, engines.world().bytes());
    EXPECT_EQ(now.messages + other.messages, engines.world().messages());
  }
}

TEST(EngineCounters, BySizeAddUpToTheAllReduces) {
  EngineRanks engines(1, std::vector<Settings>(2));
  std::vector<Call> calls = tenCalls();
  ASSERT_EQ(engines.run(calls), "");
  const Counters now = engines.engine(0).counters();
  EXPECT_EQ(now.sizes[8].operations, 6U);  // 256 KiB
  EXPECT_EQ(now.sizes[8].inputBytes, 6 * kLarge * 4);
  EXPECT_EQ(now.sizes[2].operations, 3U);  // up to 4 KiB
  EXPECT_GT(now.sizes[2].nanoseconds, 0U);
  // The all-gather's one message is the rest: a header and this rank's bytes.
  EXPECT_EQ(now.sizes[8].wireBytes + now.sizes[2].wireBytes + sizeof(wire::MessageHeader) + 1000, now.wireBytes);
}

TEST(EngineCounters, CallTilesRawThatCannotBeCoded) {
  Settings settings;
  settings.bits = 8;
  EngineRanks engines(1, std::vector<Settings>(2, settings));
  std::vector<Call> calls{allReduceOf(2, kLarge, [](std::size_t, std::size_t i) {
    return i % codec::kTile == 0 ? std::numeric_limits<float>::infinity() : 1.0F;
  })};
  ASSERT_EQ(engines.run(calls), "");
  const Counters now = engines.engine(0).counters();
  EXPECT_EQ(now.rawTiles, kTilesToPeer);
  EXPECT_EQ(now.exactTiles, 0U);
  EXPECT_EQ(now.codedTiles + now.wholeTiles + now.zeroTiles, 0U);
}

// CGX_MIN_BYTES far above a call: user memory is a whole all-reduce, staging may hold a piece of a large one.
TEST(EngineCounters, APieceInStagingIsNotTakenForASmallAllReduce) {
  Settings settings;
  settings.minBytes = 64 << 20;
  for (const bool staged : {false, true}) {
    EngineRanks engines(1, std::vector<Settings>(2, settings));
    std::vector<Call> calls{allReduceOf(2, kLarge, wave), allReduceOf(2, kSmall, wave)};
    for (Call& call : calls) call.clearSend = staged;
    ASSERT_EQ(engines.run(calls), "");
    EXPECT_EQ(engines.engine(0).counters().smallOperations, staged ? 1U : 2U);
  }
}

TEST(EngineCounters, ExactByChoiceIsNotSmall) {
  Settings settings;
  settings.bits = codec::kExactBits;
  EngineRanks engines(1, std::vector<Settings>(2, settings));
  std::vector<Call> calls{allReduceOf(2, kLarge, wave), allReduceOf(2, kSmall, wave)};
  ASSERT_EQ(engines.run(calls), "");
  const Counters now = engines.engine(0).counters();
  EXPECT_EQ(now.smallOperations, 0U);
  EXPECT_EQ(now.exactTiles, kTilesToPeer + 2);
  EXPECT_EQ(now.rawTiles, now.exactTiles);
}

TEST(EngineCounters, SizeClassesArePowersOfTwoOfAKibibyte) {
  EXPECT_EQ(sizeClassOf(0), 0U);
  EXPECT_EQ(sizeClassOf(1024), 0U);
  EXPECT_EQ(sizeClassOf(1025), 1U);
  EXPECT_EQ(sizeClassOf(std::uint64_t{1} << 20), 10U);
  EXPECT_EQ(sizeClassOf((std::uint64_t{1} << 20) + 1), 11U);
  EXPECT_EQ(sizeClassOf(~std::uint64_t{0}), kSizeClasses - 1);
}

std::mutex linesMutex;
std::vector<std::string> lines;

TEST(StartLine, IsOneForEachCommunicatorAndSaysWhatItWillDo) {
  Settings settings = test::loopback();
  settings.bits = 3;
  settings.rounding = Rounding::Nearest;
  settings.simd = "scalar";
  settings.threads = 2;
  settings.worldRanks = 4;
  lines.clear();
  log::setSink(
      [](log::Level, log::Subsys, const char*, int, const char* message) noexcept {
        const std::lock_guard lock(linesMutex);
        if (std::string(message).starts_with("communicator ")) lines.emplace_back(message);
      },
      log::Level::Info);
  const auto exact = [](std::size_t rank, ConnectSpec& spec, auto&) {
    spec.ordinal = 7;
    spec.exact = rank == 1;
  };
  { const test::Communicators comms(std::vector<Settings>(2, settings), exact); }
  log::setSink(nullptr, log::Level::None);
  std::sort(lines.begin(), lines.end());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0],
            "communicator 7: rank 0 of 2 collnet ranks (job of 4), 3 bits, nearest rounding, 65536 elements a block, "
            "scalar codec, 2 codec threads, host memory, device lo");
  EXPECT_EQ(
      lines[1],
      "communicator 7: rank 1 of 2 collnet ranks (job of 4), exact, 65536 elements a block, scalar codec, 2 codec "
      "threads, host memory, device lo");
}

}  // namespace
}  // namespace cgx::collective
