// Samples of the error against the reference codec, which shares nothing with the fast ones, and the reasons of raw
// tiles.
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "collective/inspect.h"
#include "support/engine_ranks.h"
#include "support/reference_codec.h"

namespace cgx::collective {
namespace {

using codec::DType;
using codec::EncodeSpec;
using codec::kTile;
using test::Call;
using test::EngineRanks;

constexpr DType kDTypes[] = {DType::F32, DType::F16, DType::BF16};

/// Numbers whose size changes from bucket to bucket.
std::vector<std::byte> randomElements(DType dtype, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(count * codec::bytesOf(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = reference::store(dtype, normal(random) * static_cast<float>(1 + i / 32 % 7), false);
    std::memcpy(&bytes[i * codec::bytesOf(dtype)], &bits, codec::bytesOf(dtype));
  }
  return bytes;
}

/// Sums over the tiles of [range) that are due, all of the range coded by the reference.
ErrorSample expected(const EncodeSpec& spec, DType dtype, std::uint64_t operation, Range range,
                     const std::byte* values) {
  const auto coded = reference::decode(reference::encode(spec, dtype, values, range.elements), dtype, range.elements);
  ErrorSample sample;
  for (std::size_t i = 0; i < range.elements; ++i) {
    const std::size_t tile = (range.first + i) / kTile;
    const bool full = range.first + range.elements >= (tile + 1) * kTile;
    if (!full || tile % kSampleStride != sampledTile(operation)) continue;
    const double exact = static_cast<double>(reference::load(dtype, values, i));
    sample.tiles += i % kTile == 0;
    sample.errorSquares += std::pow(static_cast<double>(coded[i].value) - exact, 2);
    sample.valueSquares += exact * exact;
  }
  return sample;
}

void expectNear(const ErrorSample& a, const ErrorSample& b) {
  EXPECT_EQ(a.tiles, b.tiles);
  EXPECT_NEAR(a.errorSquares, b.errorSquares, 1e-12 * b.errorSquares);
  EXPECT_NEAR(a.valueSquares, b.valueSquares, 1e-12 * b.valueSquares);
}

TEST(ErrorSample, IsTheErrorOfTheReferenceOnTheTilesThatAreDue) {
  const std::size_t count = 1500 * kTile + 7;
  for (const DType dtype : kDTypes) {
    const std::vector<std::byte> values = randomElements(dtype, count, 1);
    const EncodeSpec specs[] = {{1, Rounding::Stochastic, {77, 0}},
                                {4, Rounding::Nearest, {78, 300 * kTile}},
                                {4, Rounding::Stochastic, {79, 0}},
                                {8, Rounding::Stochastic, {80, 300 * kTile}}};
    for (const EncodeSpec& spec : specs) {
      const Range range{spec.noise.first, count};
      const ErrorSample truth = expected(spec, dtype, 5, range, values.data());
      EXPECT_GE(truth.tiles, 1U);
      EXPECT_GT(truth.errorSquares, 0);
      for (const codec::Kernels* kernels : codec::targets())
        expectNear(sampleError(*kernels, spec, dtype, 5, range, values.data()), truth);
    }
  }
}

TEST(ErrorSample, TakesEachTileOnceHoweverAnOperationIsCut) {
  const std::size_t tiles = 3 * kSampleStride;
  const std::vector<std::byte> values = randomElements(DType::F32, tiles * kTile, 2);
  const codec::Kernels& kernels = *codec::targets().front();
  const auto sample = [&](std::uint64_t operation, std::size_t first, std::size_t count) {
    const EncodeSpec spec{4, Rounding::Stochastic, {9, first * kTile}};
    return sampleError(kernels, spec, DType::F32, operation, {first * kTile, count * kTile},
                       &values[first * kTile * 4]);
  };
  for (std::uint64_t operation = 0; operation < 20; ++operation) {
    for (const std::size_t block : {1, 7, 128, 1000}) {
      ErrorSample sum;
      for (std::size_t first = 0; first < tiles; first += block) {
        const ErrorSample part = sample(operation, first, std::min(block, tiles - first));
        sum.tiles += part.tiles;
        sum.errorSquares += part.errorSquares;
        sum.valueSquares += part.valueSquares;
      }
      EXPECT_EQ(sum.tiles, 3U);
      expectNear(sum, sample(operation, 0, tiles));
    }
  }
}

// A training step repeats its operations, so a layer must not be left out for ever.
TEST(ErrorSample, EveryTileHasItsTurn) {
  for (const std::uint64_t step : {1, 2, 10, 1000, 1024}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t k = 0; k < 8 * kSampleStride; ++k) seen.insert(sampledTile(k * step));
    EXPECT_EQ(seen.size(), kSampleStride) << step;
    EXPECT_LT(*seen.rbegin(), kSampleStride);
  }
}

TEST(ErrorSample, PassesOverWhatIsNotCoded) {
  const codec::Kernels& kernels = *codec::targets().front();
  const Range tile{sampledTile(3) * kTile, kTile};
  const auto tiles = [&](const std::vector<float>& values) {
    return sampleError(kernels, {4, Rounding::Nearest, {1, tile.first}}, DType::F32, 3, {tile.first, values.size()},
                       reinterpret_cast<const std::byte*>(values.data()))
        .tiles;
  };
  EXPECT_EQ(tiles(std::vector<float>(kTile, 1)), 1U);
  EXPECT_EQ(tiles(std::vector<float>(kTile - 1, 1)), 0U);
  EXPECT_EQ(tiles(std::vector<float>(kTile, 0)), 0U);
  EXPECT_EQ(tiles(std::vector<float>(kTile, 1e-30F)), 0U);
  std::vector<float> values(kTile, 1);
  values[100] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(tiles(values), 0U);
}

TEST(NonFiniteTiles, AreThoseWithAnInfOrANaN) {
  for (const DType dtype : kDTypes) {
    const std::size_t count = 10 * kTile + 3;
    std::vector<std::byte> values = randomElements(dtype, count, 3);
    EXPECT_EQ(nonFiniteTiles(dtype, values.data(), count), 0U);
    const auto put = [&](std::size_t i, float value) {
      const std::uint32_t bits = reference::store(dtype, value, false);
      std::memcpy(&values[i * codec::bytesOf(dtype)], &bits, codec::bytesOf(dtype));
    };
    put(0, std::numeric_limits<float>::infinity());
    put(1, -std::numeric_limits<float>::infinity());
    put(5 * kTile - 1, std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(nonFiniteTiles(dtype, values.data(), count), 2U);
    put(count - 1, -std::numeric_limits<float>::infinity());
    EXPECT_EQ(nonFiniteTiles(dtype, values.data(), count), 3U);
    EXPECT_EQ(nonFiniteTiles(dtype, values.data(), count - 1), 2U);
  }
}

// Through the engine: what the counters say is the error of what this rank sends to the other one, and raw tiles have
// their reason. Jobs find any floating-point environment.
TEST(EngineSamples, AreTheErrorOfTheOwnContribution) {
  const std::size_t count = 2200 * kTile;
  const Range sent{count / 2, count / 2};  // rank 0 keeps the first half
  Settings settings;
  settings.rounding = Rounding::Stochastic;
  settings.seed = 4;
  EngineRanks engines(1, std::vector<Settings>(2, settings), 65536, true);
  std::vector<Call> calls(4);
  for (std::size_t k = 0; k < calls.size(); ++k) {
    calls[k].shape.count = count;
    calls[k].clearSend = k % 2 == 0;
    calls[k].recv.assign(2, std::vector<std::byte>(count * 4));
    for (std::size_t r = 0; r < 2; ++r) calls[k].send.push_back(randomElements(DType::F32, count, 10 * k + r));
  }
  // Two raw tiles, one of each kind, where no sample is taken.
  std::vector<float> odd(2 * kTile, 1e-30F);
  odd[3] = std::numeric_limits<float>::infinity();
  const std::size_t place = 2 * kSampleStride + sampledTile(0) + 1;  // after the one that is due
  std::memcpy(&calls[0].send[0][place * kTile * 4], odd.data(), odd.size() * 4);
  ErrorSample truth;
  for (std::size_t k = 0; k < calls.size(); ++k) {
    const EncodeSpec spec{settings.bits, settings.rounding, {codec::noiseKey(settings.seed, 0, k, 0, 1), sent.first}};
    const ErrorSample one = expected(spec, DType::F32, k, sent, &calls[k].send[0][sent.first * 4]);
    truth.tiles += one.tiles;
    truth.errorSquares += one.errorSquares;
    truth.valueSquares += one.valueSquares;
  }
  ASSERT_EQ(engines.run(calls), "");
  const Counters now = engines.engine(0).counters();
  EXPECT_GE(truth.tiles, 4U);
  expectNear({now.sampledTiles, now.errorSquares, now.valueSquares}, truth);
  EXPECT_EQ(now.rawTiles, 2U);
  EXPECT_EQ(now.nonFiniteTiles, 1U);
  EXPECT_EQ(engines.engine(1).counters().nonFiniteTiles, 0U);
}

TEST(EngineSamples, AreNotTakenOfWhatTravelsExact) {
  Settings settings;
  settings.bits = codec::kExactBits;
  EngineRanks engines(1, std::vector<Settings>(2, settings));
  std::vector<Call> calls(1);
  calls[0].shape.count = 1200 * kTile;
  calls[0].recv.assign(2, std::vector<std::byte>(1200 * kTile * 4));
  calls[0].send.assign(2, randomElements(DType::F32, 1200 * kTile, 1));
  ASSERT_EQ(engines.run(calls), "");
  EXPECT_EQ(engines.engine(0).counters().sampledTiles, 0U);
  EXPECT_EQ(engines.engine(0).counters().valueSquares, 0);
}

}  // namespace
}  // namespace cgx::collective
