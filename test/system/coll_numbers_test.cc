// What the real library's all-reduce must give for special counts, sizes and values, from outside.
#include <gtest/gtest.h>

#include <random>

#include "system/plugin_under_test.h"

namespace cgx::host {
namespace {

void expectClean(const Verdict& verdict) { EXPECT_TRUE(verdict.clean()) << verdict.text(); }

// 6-06, 11-09, 9-16, 9-22: tails, one element, more than 65,535, around blocks.
std::vector<OpSpec> specialCounts(const Bound& large, std::size_t most) {
  std::vector<OpSpec> ops;
  std::size_t i = 0;
  const auto add = [&](std::size_t count) {
    static constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclFloat16, ncclBfloat16};
    static constexpr Buffers kBuffers[] = {Buffers::Staging, Buffers::Registered, Buffers::RegisteredInPlace};
    const ncclDataType_t dtype = kTypes[i % 3];
    const Buffers buffers = kBuffers[i / 3 % 3];
    ++i;
    if (count == 0 && buffers == Buffers::Staging) return;  // NCCL makes no such call
    ops.push_back({.dtype = dtype,
                   .count = count,
                   .buffers = buffers,
                   .bound = count * bytesOf(dtype) <= 32768 ? exactly() : large});
  };
  for (std::size_t count = 0; count <= 70; ++count) add(count);
  for (std::size_t k = 128; k <= most; k *= 2)
    for (const long d : {-3L, -1L, 0L, 1L, 3L}) add(static_cast<std::size_t>(static_cast<long>(k) + d));
  return ops;
}

TEST(SpecialCounts, AreRightToTheLastElement) {
  expectClean(run(realPlugin(2, exactMode()), collOperations({}, specialCounts(exactly(), 1 << 18))));
  expectClean(run(realPlugin(3, bits(4)), collOperations({}, specialCounts(quantised(4), 1 << 17))));
}

TEST(EveryElement, OfALargeMessageIsReduced) {
  for (const auto& [dtype, count] :
       {std::pair{ncclFloat16, (1UL << 20) + 1}, std::pair{ncclFloat32, (1UL << 22) + 3}}) {
    const OpSpec registered{.dtype = dtype, .count = count, .buffers = Buffers::Registered, .fill = Fill::IndexCoded};
    expectClean(run(realPlugin(2, exactMode()), collOperations({}, {registered})));
    OpSpec eight = registered;
    eight.bound = quantised(8);
    expectClean(run(realPlugin(2, bits(8)), collOperations({}, {eight})));
  }
}

// 9-09: 2,000 operations of changing counts and types on two communicators.
TEST(RandomSequence, OfOperationsOnTwoCommunicatorsIsRight) {
  std::mt19937_64 random(7);
  std::vector<OpSpec> ops;
  for (int i = 0; i < 700; ++i) {
    const auto dtype = std::array{ncclFloat32, ncclFloat16, ncclBfloat16}[random() % 3];
    const std::size_t count = random() % 8 == 0 ? random() % 60000 : random() % 3000;
    const auto buffers = std::array{Buffers::Staging, Buffers::Registered, Buffers::RegisteredInPlace}[random() % 3];
    ops.push_back({.dtype = dtype,
                   .count = count + 1,
                   .buffers = buffers,
                   .bound = (count + 1) * bytesOf(dtype) <= 32768 ? exactly() : quantised(4)});
  }
  expectClean(run(realPlugin(2), twoCommunicators({}, ops, {1, 0})));
}

// 9-12: equal bits on every rank for any width, count and type, with different instruction sets and thread counts on
// the ranks.
TEST(RankIdentity, HoldsForMixedInstructionSetsAndThreads) {
  std::mt19937_64 random(11);
  for (const int width : {1, 2, 4, 5, 8}) {
    std::vector<OpSpec> ops;
    for (int i = 0; i < 40; ++i)
      ops.push_back({.dtype = std::array{ncclFloat32, ncclFloat16, ncclBfloat16}[random() % 3],
                     .count = 10000 + random() % 50000,
                     .buffers = std::array{Buffers::Staging, Buffers::RegisteredInPlace}[random() % 2],
                     .fill = std::array{Fill::Normal, Fill::Spread, Fill::Bits}[random() % 3],
                     .verify = false});
    RunOptions o = realPlugin(4, bits(width, width % 2 ? "nearest" : "stochastic"));
    o.rankEnvironment = {
        {0, {{"CGX_SIMD", "scalar"}, {"CGX_THREADS", "1"}}}, {1, {{"CGX_THREADS", "3"}}}, {2, {{"CGX_SIMD", "sse4"}}}};
    expectClean(run(o, collOperations({}, ops)));
  }
}

// 9-13: the same bits in every run.
TEST(Reproducible, FromRunToRunWhateverTheTiming) {
  std::vector<OpSpec> ops;
  for (int i = 0; i < 20; ++i) ops.push_back({.count = 20000 + static_cast<std::size_t>(i) * 777, .verify = false});
  RunOptions o = realPlugin(3, bits(4));
  const Verdict first = run(o, collOperations({}, ops));
  o.environment.emplace_back("CGX_THREADS", "4");
  o.environment.emplace_back("CGX_STREAMS", "4");
  const Verdict second = run(o, collOperations({}, ops));
  expectClean(first);
  expectClean(second);
  EXPECT_EQ(describe(reproduced(first, second)), "");
}

// Promise 4 and 9-05.
TEST(Zeros, StayZeroAndConstantsAreExact) {
  std::vector<OpSpec> ops;
  for (const ncclDataType_t dtype : {ncclFloat32, ncclFloat16, ncclBfloat16}) {
    ops.push_back({.dtype = dtype, .count = 100000, .fill = Fill::Zeros});
    ops.push_back({.dtype = dtype, .count = 100000, .fill = Fill::Constant});
  }
  expectClean(run(realPlugin(2, bits(4)), collOperations({}, ops)));
}

// Promise 3: a NaN shows at its element on every rank; nothing else is claimed of memory that is all NaN.
TEST(NaNs, Survive) {
  std::vector<OpSpec> ops;
  for (const ncclDataType_t dtype : {ncclFloat32, ncclFloat16, ncclBfloat16})
    ops.push_back({.dtype = dtype, .count = 100000, .fill = Fill::NaNs, .bound = quantised(4)});
  expectClean(run(realPlugin(2, bits(4)), collOperations({}, ops)));
}

}  // namespace
}  // namespace cgx::host
