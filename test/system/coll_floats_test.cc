// Numbers that are hard on the real library, from outside: a caller with another floating-point environment, fp16 at
// its end.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cfenv>
#include <cmath>

#include "system/plain_reduce.h"

namespace cgx::host {
namespace {

void expectClean(const Verdict& verdict) { EXPECT_TRUE(verdict.clean()) << verdict.text(); }

/// What a framework may have set in its threads: denormals flushed, rounding upwards.
void setHostileFloats() {
  std::fesetround(FE_UPWARD);
#ifdef __SSE__
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
#endif
}

bool floatsAreHostile() {
#ifdef __SSE__
  if ((_mm_getcsr() & 0x8040) != 0x8040) return false;
#endif
  return std::fegetround() == FE_UPWARD;
}

TEST(FloatEnvironment, OfOneRanksThreadsChangesNoBit) {
  for (const Environment& mode : {exactMode(), bits(4, "nearest"), bits(3)}) {
    const Verdict verdict = run(realPlugin(3, mode), [](Rank& rank) {
      CollComm comm(rank, {});
      if (!comm.open()) return;
      // Threads inherit it: those that the library starts in connect do.
      if (rank.rank() == 1) {
        comm.service().run(setHostileFloats);
        comm.progress().run(setHostileFloats);
      }
      if (comm.connect() != Connected::Yes || !comm.registerStaging()) return;
      for (const std::size_t count : {3000UL, 15000UL, 100000UL}) {
        // Sums of denormals, and sums whose last bit depends on the rounding.
        for (const double scale : {1e-40, 1.0}) {
          const std::size_t n = static_cast<std::size_t>(rank.ranks());
          std::vector<std::vector<float>> in(n, std::vector<float>(count));
          for (std::size_t r = 0; r < n; ++r)
            for (std::size_t i = 0; i < count; ++i)
              in[r][i] = static_cast<float>(scale * std::sin(static_cast<double>(i * (r + 1))));
          PlainReduce reduce(comm, ncclFloat32, count);
          std::memcpy(reduce.send(), in[static_cast<std::size_t>(rank.rank())].data(), count * 4);
          const std::string key = std::to_string(count) + (scale < 1 ? " denormals" : " numbers");
          if (!reduce.run(key)) return;
          if (scale == 1.0 && rank.options().environment.back().second != "32") continue;
          // Denormals travel as they are in every mode; what travels exactly is the sum in rank order.
          for (std::size_t i = 0; i < count; ++i) {
            float want = in[0][i];
            for (std::size_t r = 1; r < n; ++r) want += in[r][i];
            if (std::memcmp(&want, reduce.recv() + i * 4, 4) == 0) continue;
            rank.report(Violation::WrongSum, key + ": element " + std::to_string(i));
            return;
          }
        }
      }
      if (rank.rank() == 1) {
        const auto check = [&] {
          if (!floatsAreHostile()) rank.report(Violation::HostFailed, "the caller's environment was changed");
        };
        comm.service().run(check);
        comm.progress().run(check);
      }
    });
    expectClean(verdict);
    EXPECT_GE(verdict.hashes.size(), 6U);
  }
}

/// Two-phase and large enough to be quantised; every tile has one value, so both quantisations are exact and the sum is
/// known to the last bit.
std::vector<std::string> sumsOfConstants(const RunOptions& options, const std::vector<std::vector<float>>& byRank) {
  constexpr std::size_t kTile = 512;
  const std::size_t count = 100 * kTile;
  std::vector<std::string> wrong;
  const Verdict verdict = run(options, [&](Rank& rank) {
    CollComm comm(rank, {});
    if (!comm.setUp()) return;
    PlainReduce reduce(comm, ncclFloat16, count);
    const std::size_t values = byRank.size();
    const auto at = [&](std::size_t i, int r) { return byRank[i / kTile % values][static_cast<std::size_t>(r)]; };
    for (std::size_t i = 0; i < count; ++i) store(ncclFloat16, reduce.send(), i, at(i, rank.rank()));
    std::vector<std::byte> want(count * 2);
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int r = 0; r < rank.ranks(); ++r) sum += load(ncclFloat16, sent(at(i, r)).data(), 0);
      store(ncclFloat16, want.data(), i, static_cast<float>(sum));
    }
    if (!reduce.run("sums")) return;
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(want.data() + i * 2, reduce.recv() + i * 2, 2) == 0) continue;
      rank.report(Violation::WrongSum, "element " + std::to_string(i) + ": " +
                                           std::to_string(load(ncclFloat16, reduce.recv(), i)) + " instead of " +
                                           std::to_string(load(ncclFloat16, want.data(), i)));
      return;
    }
  });
  if (!verdict.clean()) wrong.push_back(verdict.text());
  return wrong;
}

TEST(Halves, NearTheirLargestNumberStayFiniteUntilTheirSumIsNot) {
  std::vector<std::vector<float>> byRank;
  for (int step = -10; step <= 10; ++step) {
    const float sum = 65504.0F * (1 + static_cast<float>(step) * 1e-3F);
    byRank.push_back({sum / 2, sum / 2});
    byRank.push_back({-sum / 4, -sum * 3 / 4});
  }
  for (const int width : {2, 4, 8})
    for (const std::string& text : sumsOfConstants(realPlugin(2, bits(width)), byRank)) ADD_FAILURE() << text;
}

TEST(Halves, SumsOverflowToInfinityAndCancelExactly) {
  RunOptions o = realPlugin(8, bits(4));
  o.layout = Layout::Threads;
  const std::vector<std::vector<float>> byRank{{30000, 30000, 30000, 30000, 30000, 30000, 30000, 30000},
                                               {60000, -60000, 60000, -60000, 60000, -60000, 60000, -60000},
                                               {60000, 60000, 60000, 60000, -60000, -60000, -60000, -60000},
                                               {-60000, -60000, 60000, 100, 0, 0, 0, 0}};
  for (const std::string& text : sumsOfConstants(o, byRank)) ADD_FAILURE() << text;
}

// With noise on top the result may miss the sum by the codec's error, so near the end it may be either side of it;
// never NaN, the same on both ranks, and where the error cannot reach the end it is finite, or infinite.
TEST(Halves, WithNoiseNearTheirLargestNumberNeverBecomeNan) {
  constexpr std::size_t kCount = 100000;
  for (const int width : {2, 4, 8}) {
    const Verdict verdict = run(realPlugin(2, bits(width)), [](Rank& rank) {
      CollComm comm(rank, {});
      if (!comm.setUp()) return;
      PlainReduce reduce(comm, ncclFloat16, kCount);
      const auto at = [](std::size_t i, int r) {
        return 32752.0F *
               (0.99F + 0.02F * static_cast<float>((i * 7919 + static_cast<std::size_t>(r) * 104729) % 1000) / 1000.0F);
      };
      for (std::size_t i = 0; i < kCount; ++i) store(ncclFloat16, reduce.send(), i, at(i, rank.rank()));
      if (!reduce.run("noisy")) return;
      for (std::size_t i = 0; i < kCount; ++i) {
        const double got = load(ncclFloat16, reduce.recv(), i);
        if (!std::isnan(got) && got > 0) continue;
        rank.report(Violation::WrongSum, "element " + std::to_string(i) + " is " + std::to_string(got));
        return;
      }
    });
    expectClean(verdict);
  }
}

}  // namespace
}  // namespace cgx::host
