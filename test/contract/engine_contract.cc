// What every all-reduce promises, over thousands of orders of events: same bits everywhere, right sums, nothing stuck.
#include <cmath>
#include <limits>

#include "support/engine_ranks.h"

namespace cgx::collective {
namespace {

using test::Call;
using test::EngineRanks;

Settings exactSettings() {
  Settings settings;
  settings.bits = codec::kExactBits;
  return settings;
}

std::vector<Settings> ranksOf(std::size_t ranks, const Settings& settings) {
  return std::vector<Settings>(ranks, settings);
}

Call floatCall(std::size_t ranks, std::size_t count,
               const std::function<float(std::size_t rank, std::size_t i)>& value) {
  Call call;
  call.shape.count = count;
  call.send.resize(ranks);
  call.recv.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    call.send[r].resize(count * 4);
    call.recv[r].assign(count * 4, std::byte{0x5a});
    for (std::size_t i = 0; i < count; ++i) {
      const float v = value(r, i);
      std::memcpy(call.send[r].data() + i * 4, &v, 4);
    }
  }
  return call;
}

float at(const std::vector<std::byte>& bytes, std::size_t i) {
  float v;
  std::memcpy(&v, bytes.data() + i * 4, 4);
  return v;
}

float noisy(std::size_t rank, std::size_t i) {
  const auto h = static_cast<std::uint32_t>((i * 2654435761u) ^ (rank * 40503u)) * 2246822519u;
  return (static_cast<float>(h >> 8) / 8388608.0f - 1.0f) * (1.0f + static_cast<float>(i % 7));
}

void expectIdentical(const Call& call) {
  for (std::size_t r = 1; r < call.recv.size(); ++r)
    ASSERT_EQ(call.recv[r], call.recv[0]) << "rank " << r << " differs";
}

// fp32 in rank order: what DESIGN promises an exact operation to be, bit for bit.
float sumInOrder(const Call& call, std::size_t i) {
  float sum = at(call.send[0], i);
  for (std::size_t r = 1; r < call.send.size(); ++r) sum += at(call.send[r], i);
  return sum;
}

TEST(Engine, ExactSumsAreTheFloatSumInRankOrder) {
  for (const std::size_t ranks : {1, 2, 3, 4, 5, 8, 16}) {
    for (const std::size_t count : {0, 1, 2, 511, 513, 4099, 20000, 70001}) {
      EngineRanks engines(ranks * 1000 + count, ranksOf(ranks, exactSettings()));
      std::vector<Call> calls;
      calls.push_back(floatCall(ranks, count, noisy));
      ASSERT_EQ(engines.run(calls), "") << ranks << " ranks, " << count;
      for (std::size_t r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(at(calls[0].recv[r], i), sumInOrder(calls[0], i)) << r << " " << i;
        EXPECT_EQ(calls[0].reported[r], count * 4);
      }
    }
  }
}

// Every tail of tiles, buckets and vectors: exact to the bit, quantised to the same bits everywhere.
TEST(Engine, EveryCountUpTo4099IsRightOnEveryRank) {
  Settings quantised;
  quantised.minBytes = 0;
  for (const Settings& settings : {exactSettings(), quantised}) {
    for (std::size_t first = 0; first <= 4099; first += 100) {
      EngineRanks engines(first, ranksOf(3, settings));
      std::vector<Call> calls;
      for (std::size_t count = first; count < first + 100 && count <= 4099; ++count) {
        calls.push_back(floatCall(3, count, noisy));
        if (count % 3 != 0) calls.back().shape.dtype = count % 3 == 1 ? codec::DType::F16 : codec::DType::BF16;
        for (auto* side : {&calls.back().send, &calls.back().recv})
          for (auto& bytes : *side) bytes.resize(count * calls.back().shape.elementBytes());
      }
      ASSERT_EQ(engines.run(calls), "") << "from " << first;
      for (const Call& call : calls) {
        expectIdentical(call);
        if (settings.bits != codec::kExactBits || call.shape.dtype != codec::DType::F32) continue;
        for (std::size_t i = 0; i < call.shape.count; ++i)
          ASSERT_EQ(at(call.recv[0], i), sumInOrder(call, i)) << call.shape.count << " " << i;
      }
    }
  }
}

TEST(Engine, CompressedSumsAreCloseAndTheSameOnEveryRankInEveryOrder) {
  std::vector<std::byte> first;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    EngineRanks engines(seed, ranksOf(4, Settings{}));
    std::vector<Call> calls;
    calls.push_back(floatCall(4, 70001, noisy));
    ASSERT_EQ(engines.run(calls), "") << "seed " << seed;
    expectIdentical(calls[0]);
    if (seed == 0) first = calls[0].recv[0];
    ASSERT_EQ(calls[0].recv[0], first) << "the order of events changed the bits, seed " << seed;
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i < 70001; ++i) {
      const double exact = sumInOrder(calls[0], i);
      error += std::pow(at(calls[0].recv[0], i) - exact, 2);
      energy += exact * exact;
    }
    EXPECT_LT(error / energy, 0.05);
    EXPECT_GT(error, 0) << "nothing was compressed";
  }
}

TEST(Engine, ManyOperationsInFlightOnRanksThatComeAtDifferentTimes) {
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    const std::size_t ranks = 2 + seed % 4;
    EngineRanks engines(seed, ranksOf(ranks, Settings{}));
    std::vector<Call> calls;
    for (std::size_t k = 0; k < 100; ++k) {
      const std::size_t count = engines.world().random()() % (k % 10 == 0 ? 60000 : 3000);
      calls.push_back(floatCall(ranks, count, [k](std::size_t r, std::size_t i) { return noisy(r + k, i); }));
    }
    const int late = seed % 3 == 0 ? static_cast<int>(seed % ranks) : -1;
    ASSERT_EQ(engines.run(calls, late), "") << "seed " << seed;
    for (const Call& call : calls) expectIdentical(call);
  }
}

// All tiles raw, the smallest window of work, one rank far behind: the case in which a careless flow control locks up.
TEST(Engine, ExactTrafficWithALateRankDoesNotLockUp) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EngineRanks engines(seed, ranksOf(3, exactSettings()), 512);
    std::vector<Call> calls;
    for (int k = 0; k < 12; ++k) calls.push_back(floatCall(3, 120000, noisy));
    ASSERT_EQ(engines.run(calls, static_cast<int>(seed % 3)), "") << "seed " << seed;
    for (const Call& call : calls) expectIdentical(call);
  }
}

// 5,000 elements: one phase, exact; 10,000: one phase, compressed; 90,000: two phases.
TEST(Engine, InPlaceIsTheSameAsOutOfPlaceInEveryOrder) {
  for (const std::size_t count : {5000, 10000, 90000}) {
    EngineRanks engines(count, ranksOf(3, Settings{}));
    std::vector<Call> calls;
    calls.push_back(floatCall(3, count, noisy));
    ASSERT_EQ(engines.run(calls), "");
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      EngineRanks again(seed, ranksOf(3, Settings{}));
      std::vector<Call> second{calls[0]};
      second[0].recv = second[0].send;
      second[0].inPlace = true;
      ASSERT_EQ(again.run(second), "");
      ASSERT_EQ(second[0].recv, calls[0].recv) << count << " elements, seed " << seed;
    }
  }
}

TEST(Engine, StagingIsZeroAfterUseAndUserMemoryIsUntouched) {
  for (const bool clear : {false, true}) {
    for (const std::size_t count : {100, 12000, 90000}) {
      EngineRanks engines(count, ranksOf(3, Settings{}));
      std::vector<Call> calls{floatCall(3, count, noisy)};
      calls[0].clearSend = clear;
      const Call before = calls[0];
      ASSERT_EQ(engines.run(calls), "");
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(calls[0].send[r], clear ? std::vector<std::byte>(count * 4) : before.send[r]) << "rank " << r;
      }
    }
  }
}

TEST(Engine, NanAndInfStandAtTheirElementOnEveryRankAndNowhereElse) {
  constexpr std::size_t kCount = 70001;
  EngineRanks engines(7, ranksOf(4, Settings{}));
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<Call> calls{floatCall(4, kCount, [](std::size_t r, std::size_t i) {
    if (r == 1 && i == 5) return std::numeric_limits<float>::quiet_NaN();
    if (r == 2 && i == 60000) return kInf;
    if (i == 30000) return r == 0 ? kInf : r == 3 ? -kInf : 1.0f;
    return noisy(r, i);
  })};
  ASSERT_EQ(engines.run(calls), "");
  expectIdentical(calls[0]);
  for (std::size_t i = 0; i < kCount; ++i) {
    const float v = at(calls[0].recv[0], i);
    if (i == 5 || i == 30000) {
      EXPECT_TRUE(std::isnan(v));
    } else if (i == 60000) {
      EXPECT_EQ(v, kInf);
    } else {
      ASSERT_TRUE(std::isfinite(v)) << i;
    }
  }
}

TEST(Engine, SmallContentIsExactThoughTheCallIsLarge) {
  constexpr std::size_t kCount = 262144;
  EngineRanks engines(3, ranksOf(2, Settings{}), 65536);
  // 30,000 bytes of content, rounded up by the caller with zeros: exact. The owner's sum of exact parts is exact.
  std::vector<Call> calls{
      floatCall(2, kCount, [](std::size_t r, std::size_t i) { return i < 7500 ? noisy(r, i) : 0.0f; })};
  ASSERT_EQ(engines.run(calls), "");
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(at(calls[0].recv[1], i), sumInOrder(calls[0], i)) << i;
  // And the zeros cost next to nothing: a byte for 512 elements.
  EXPECT_LT(engines.engine(0).counters().wireBytes, 7500 * 4 + kCount / 512 + 4096);
}

TEST(Engine, DifferentCallsAreReportedOnEveryRank) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    EngineRanks engines(seed, ranksOf(3, Settings{}));
    std::vector<Call> calls{floatCall(3, 1000, noisy)};
    std::vector<Call> other{floatCall(3, 1001, noisy)};
    std::vector<Request*> requests(3);
    for (std::size_t r = 0; r < 3; ++r) ASSERT_TRUE(engines.post(r == 1 ? other[0] : calls[0], r, &requests[r]).ok());
    engines.world().run();
    bool named = false;
    for (std::size_t r = 0; r < 3; ++r) {
      std::size_t bytes = 0;
      const Status s = engines.engine(r).test(requests[r], &bytes);
      EXPECT_TRUE(s.failed()) << "rank " << r << ", seed " << seed;
      named |= s.text().find("of 1001 fp32 elements") != std::string::npos;
    }
    EXPECT_TRUE(named);
  }
}

TEST(Engine, AllGatherMovesBytesExactlyWithAnyWindow) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EngineRanks engines(seed, ranksOf(3, Settings{}));
    std::vector<Call> calls;
    for (const std::size_t perRank : {1, 7, 5000, 40001}) {
      Call call;
      call.shape = {.kind = Kind::AllGather, .count = 3 * perRank - 2, .perRank = perRank, .windowFirst = 1};
      call.send.resize(3);
      call.recv.assign(3, std::vector<std::byte>(call.shape.count));
      for (std::size_t r = 0; r < 3; ++r) {
        call.send[r].resize(perRank);
        for (std::size_t i = 0; i < perRank; ++i) call.send[r][i] = static_cast<std::byte>(r * 91 + i * 7 + perRank);
      }
      // NCCL points at the first own byte inside the window.
      call.send[0].erase(call.send[0].begin());
      calls.push_back(call);
    }
    ASSERT_EQ(engines.run(calls, static_cast<int>(seed % 3)), "");
    for (const Call& call : calls) {
      for (std::size_t i = 0; i < call.shape.count; ++i) {
        const std::size_t whole = i + 1;
        const std::size_t r = whole / call.shape.perRank;
        const auto expected = static_cast<std::byte>(r * 91 + (whole % call.shape.perRank) * 7 + call.shape.perRank);
        for (std::size_t k = 0; k < 3; ++k) ASSERT_EQ(call.recv[k][i], expected);
      }
    }
  }
}

TEST(Engine, ReduceScatterIsExact) {
  constexpr std::size_t kPerRank = 20001;
  EngineRanks engines(11, ranksOf(3, Settings{}));
  std::vector<Call> calls{floatCall(3, 3 * kPerRank, noisy)};
  calls[0].shape = {.kind = Kind::ReduceScatter, .count = 3 * kPerRank, .perRank = kPerRank};
  ASSERT_EQ(engines.run(calls), "");
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t i = 0; i < kPerRank; ++i) {
      ASSERT_EQ(at(calls[0].recv[r], i), sumInOrder(calls[0], r * kPerRank + i)) << r << " " << i;
    }
  }
}

TEST(Engine, ATestedRequestMakesRoomAndAFullTableAsksToComeBack) {
  EngineRanks engines(1, ranksOf(2, Settings{}));
  Call call = floatCall(2, 100, noisy);
  std::vector<Request*> requests;
  for (;;) {
    Request* request = nullptr;
    ASSERT_TRUE(engines.post(call, 0, &request).ok());
    if (request == nullptr) break;
    requests.push_back(request);
  }
  EXPECT_EQ(requests.size(), kMaxOperations);
  std::vector<Call> rest;
  Request* request = nullptr;
  for (std::size_t k = 0; k < kMaxOperations; ++k) {
    ASSERT_TRUE(engines.post(call, 1, &request).ok());
    ASSERT_NE(request, nullptr);
  }
  engines.world().run();
  std::size_t bytes = 0;
  EXPECT_TRUE(engines.engine(0).test(requests.back(), &bytes).ok()) << "requests may be tested in any order";
  EXPECT_TRUE(engines.engine(0).test(requests.front(), &bytes).ok());
  ASSERT_TRUE(engines.post(call, 0, &request).ok());
  EXPECT_NE(request, nullptr);
}

}  // namespace
}  // namespace cgx::collective
