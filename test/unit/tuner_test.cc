// The cost model by itself: NCCL's estimate against what NCCL was seen to reckon, the link's speed read back, choices
// by table, and what must hold for any arguments.
#include "cgx/tuner.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace cgx::tuner {
namespace {

constexpr std::size_t kKi = 1 << 10;
constexpr std::size_t kMi = 1 << 20;
constexpr std::size_t kGi = 1 << 30;

struct Estimate {
  Estimate(const Group& group, std::size_t bytes, double linkGBps, bool collnet = true) {
    estimateNccl(group, bytes, 1, linkGBps, collnet, costs);
  }
  float least(Algorithm a) const {
    float best = -1;
    for (const float cost : costs[static_cast<int>(a)])
      if (cost >= 0 && (best < 0 || cost < best)) best = cost;
    return best;
  }
  float costs[kAlgorithms][kProtocols];
  Table table{&costs[0][0], kAlgorithms, kProtocols};
};

Settings world(int ranks) {
  Settings settings;
  settings.worldRanks = ranks;
  return settings;
}

std::optional<Algorithm> choice(const Settings& settings, const Group& group, std::size_t bytes, double linkGBps,
                                bool collnet = true) {
  Estimate estimate(group, bytes, linkGBps, collnet);
  steer(settings, group, {.bytes = bytes}, estimate.table);
  const auto best = cheapest(estimate.table);
  return best ? std::optional(best->algorithm) : std::nullopt;
}

bool goesToCollnet(const Settings& settings, const Group& group, std::size_t bytes, double linkGBps) {
  const auto found = choice(settings, group, bytes, linkGBps);
  return found && isCollnet(*found);
}

// Measured on NCCL 2.28.9's own host code: 2 nodes of one GPU, a NIC of 100 Gb/s.
TEST(NcclEstimate, IsWhatNcclWasSeenToReckon) {
  const struct {
    std::size_t bytes;
    float tree, ring, chain;
  } seen[] = {{kKi, 17, 17, 14}, {256 * kKi, 92, 60, 36}, {16 * kMi, 2590, 1449, 1412}};
  for (const auto& row : seen) {
    const Estimate estimate({2, 2}, row.bytes, 12.5);
    EXPECT_NEAR(estimate.least(Algorithm::Tree), row.tree, 0.03 * row.tree + 0.5) << row.bytes;
    EXPECT_NEAR(estimate.least(Algorithm::Ring), row.ring, 0.03 * row.ring + 0.5) << row.bytes;
    EXPECT_NEAR(estimate.least(Algorithm::CollnetChain), row.chain, 0.03 * row.chain + 0.5) << row.bytes;
  }
}

TEST(NcclEstimate, OffersNoChainWithoutCollnetOrAboveEightGpusANode) {
  EXPECT_LT(Estimate({4, 4}, kMi, 1.2, false).least(Algorithm::CollnetChain), 0);
  EXPECT_LT(Estimate({32, 2}, kMi, 1.2, true).least(Algorithm::CollnetChain), 0);
  EXPECT_GT(Estimate({16, 2}, kMi, 1.2, true).least(Algorithm::CollnetChain), 0);
}

TEST(LinkSpeed, IsReadBackOutOfTheRing) {
  for (const Group& group : {Group{2, 2}, Group{4, 4}, Group{8, 8}, Group{16, 2}, Group{64, 8}, Group{1024, 128}}) {
    for (const double speed : {0.12, 0.24, 1.2, 3.0, 12.0}) {
      for (const std::size_t bytes : {kMi, 16 * kMi, 256 * kMi, 4 * kGi}) {
        if (group.ranks == 1024 && bytes < 16 * kMi) continue;  // latency, but for a hundredth
        const Estimate estimate(group, bytes, speed);
        EXPECT_NEAR(linkGBpsOf(estimate.table, group, {.bytes = bytes}), speed, 0.02 * speed)
            << group.ranks << " ranks, " << bytes << " bytes";
      }
    }
  }
}

// Other versions and other NICs have other latencies; where these count for little the speed must come out all the
// same.
TEST(LinkSpeed, BearsOtherLatenciesThanTheRestatedOnes) {
  const Group group{4, 4};
  for (const float factor : {0.5F, 1.9F / 1.4F, 2.0F}) {
    Estimate estimate(group, 16 * kMi, 1.2);
    Estimate empty(group, 0, 1.2);
    float& cost = estimate.table.at(Algorithm::Ring, Protocol::Simple);
    cost += (factor - 1) * empty.table.at(Algorithm::Ring, Protocol::Simple);
    EXPECT_NEAR(linkGBpsOf(estimate.table, group, {.bytes = 16 * kMi}), 1.2, 0.02) << factor;
  }
}

TEST(LinkSpeed, IsUnknownWithoutARing) {
  Estimate estimate({4, 4}, kMi, 1.2);
  for (float& cost : estimate.costs[static_cast<int>(Algorithm::Ring)]) cost = -1;
  EXPECT_EQ(linkGBpsOf(estimate.table, {4, 4}, {.bytes = kMi}), 0);
}

TEST(Steer, TableOfChoices) {
  const Settings defaults = world(0);
  Settings always = defaults;
  always.mode = Mode::Always;
  Settings exact = defaults;
  exact.bits = 32;
  Settings off = defaults;
  off.mode = Mode::Off;
  const struct {
    const char* what;
    Settings settings;
    Group group;
    std::size_t bytes;
    double linkGBps;
    bool collnet;
  } rows[] = {
      {"1 Gb/s, large", defaults, {2, 2}, 16 * kMi, 0.12, true},
      {"1 Gb/s, large, 8 ranks", defaults, {8, 8}, 16 * kMi, 0.12, true},
      {"1 Gb/s, large, 2 nodes of 8", defaults, {16, 2}, 64 * kMi, 0.12, true},
      {"10 Gb/s, large", defaults, {4, 4}, 64 * kMi, 1.2, true},
      {"10 Gb/s, large, 8 nodes of 8", defaults, {64, 8}, 256 * kMi, 1.2, true},
      {"1 Gb/s, 1 MiB", defaults, {4, 4}, kMi, 0.12, true},
      {"1 Gb/s, at the limit of exact messages", defaults, {4, 4}, 32 * kKi, 0.12, false},
      {"1 Gb/s, small", defaults, {4, 4}, kKi, 0.12, false},
      {"400 Gb/s, large", defaults, {4, 4}, kGi, 48, false},
      {"200 Gb/s, large", defaults, {2, 2}, kGi, 24, false},
      {"1 Gb/s, large, exact mode", exact, {4, 4}, 64 * kMi, 0.12, false},
      {"1 Gb/s, large, off", off, {4, 4}, 64 * kMi, 0.12, false},
      {"400 Gb/s, always", always, {4, 4}, 64 * kKi, 48, true},
      {"400 Gb/s, always, small", always, {4, 4}, 16 * kKi, 48, false},
  };
  for (auto row : rows) {
    row.settings.worldRanks = static_cast<int>(row.group.ranks);
    EXPECT_EQ(goesToCollnet(row.settings, row.group, row.bytes, row.linkGBps), row.collnet) << row.what;
  }
}

// Large all-reduces on slow links do not fall back and forth as they grow, and the slower the link the earlier they
// gain.
TEST(Steer, OneCrossoverForEachLinkAndGroup) {
  for (const std::size_t nodes : {2, 3, 4, 8, 16, 64, 128}) {
    for (const std::size_t perNode : {1, 4, 8}) {
      const Group group{nodes * perNode, nodes};
      const Settings settings = world(static_cast<int>(group.ranks));
      std::size_t earlier = 0;
      for (const double link : {0.12, 0.24, 1.2}) {
        std::size_t crossover = 0;
        for (std::size_t bytes = kKi; bytes <= 4 * kGi; bytes *= 2) {
          const bool ours = goesToCollnet(settings, group, bytes, link);
          if (ours && crossover == 0) crossover = bytes;
          EXPECT_EQ(ours, crossover != 0) << nodes << " x " << perNode << ", " << link << " GB/s, " << bytes;
        }
        EXPECT_NE(crossover, 0U) << nodes << " x " << perNode << ", " << link << " GB/s";
        EXPECT_GE(crossover, earlier) << nodes << " x " << perNode << ", " << link << " GB/s";
        earlier = crossover;
      }
    }
  }
}

TEST(Model, CostsGrowWithSizeRanksAndBitsAndFallWithTheLink) {
  const auto cost = [](int bits, std::size_t nodes, std::size_t bytes, double link) {
    Settings settings;
    settings.bits = bits;
    return collnetUs(settings, {nodes, nodes}, bytes, 4, link);
  };
  for (const std::size_t nodes : {2, 4, 16, 256, 1024}) {
    for (std::size_t bytes = 256 * kKi; bytes <= kGi; bytes *= 4) {
      EXPECT_LT(cost(4, nodes, bytes, 1.2), cost(4, nodes, bytes * 2, 1.2));
      EXPECT_LT(cost(4, nodes, bytes, 0.12), cost(8, nodes, bytes, 0.12));
      EXPECT_LT(cost(8, nodes, bytes, 0.12), cost(32, nodes, bytes, 0.12));
      EXPECT_LT(cost(4, nodes, bytes, 1.2), cost(4, nodes, bytes, 0.12));
      EXPECT_LT(cost(4, nodes, bytes, 1.2), cost(4, nodes * 2, bytes, 1.2));
      EXPECT_TRUE(std::isfinite(cost(4, nodes, bytes, 0)));
    }
  }
}

TEST(Model, SixteenBitElementsGainHalf) {
  const double wide = collnetUs({}, {4, 4}, 256 * kMi, 4, 0.12);
  const double narrow = collnetUs({}, {4, 4}, 256 * kMi, 2, 0.12);
  EXPECT_NEAR(narrow / wide, 2, 0.1);
}

TEST(Standing, IsTheJobsOwnCommunicatorOrAskedFor) {
  Settings all;
  all.comms = Comms::All;
  EXPECT_EQ(standingOf(world(8), {8, 2}), Standing::Named);
  EXPECT_EQ(standingOf(world(16), {8, 2}), Standing::NotNamed);
  EXPECT_EQ(standingOf(world(0), {8, 2}), Standing::Unknown);
  EXPECT_EQ(standingOf(world(2), {8, 2}), Standing::Unknown) << "two processes with four GPUs each";
  EXPECT_EQ(standingOf(all, {8, 2}), Standing::Named);
  EXPECT_EQ(standingOf(all, {8, 1}), Standing::NotNamed) << "one node";
  EXPECT_EQ(standingOf(world(8), {8, 1}), Standing::NotNamed);
}

TEST(Standing, CollnetDoubtsOnlyWhatItKnows) {
  const auto sure = [](int worldRanks, int localRanks, int nodes) {
    Settings settings = world(worldRanks);
    settings.localRanks = localRanks;
    settings.localRanksKnown = true;
    return surelyNotTheWorld(settings, nodes);
  };
  EXPECT_FALSE(sure(16, 8, 2)) << "the job: 2 nodes of 8";
  EXPECT_FALSE(sure(4, 1, 4)) << "the job: 4 nodes of 1";
  EXPECT_FALSE(sure(4, 4, 4)) << "the job: each rank a node";
  EXPECT_TRUE(sure(16, 4, 2));
  EXPECT_TRUE(sure(128, 8, 2));
  EXPECT_FALSE(sure(20, 8, 3)) << "nodes of 8, 8 and 4";
  EXPECT_FALSE(sure(0, 8, 2)) << "unknown";
  EXPECT_FALSE(sure(1, 1, 4)) << "no word on this job";
  EXPECT_FALSE(surelyNotTheWorld(world(64), 2)) << "local ranks are a guess";
  Settings all = world(128);
  all.localRanks = 8;
  all.localRanksKnown = true;
  all.comms = Comms::All;
  EXPECT_FALSE(surelyNotTheWorld(all, 2));
}

TEST(Chunk, MakesCallsOfAnEighthWithinBounds) {
  for (std::size_t bytes = 1; bytes <= 4 * kGi; bytes *= 3) {
    for (const int channels : {1, 2, 3, 4, 7, 8, 16, 32}) {
      const std::size_t chunk = chunkBytesFor({4, 4}, bytes, channels, 64 * kKi);
      const std::size_t call = chunk * static_cast<std::size_t>(channels);
      EXPECT_TRUE(std::has_single_bit(chunk)) << chunk;
      EXPECT_GE(chunk, 32 * kKi);
      // Half of what is wanted at least, as chunks are powers of two; more only where the smallest chunks make more.
      EXPECT_GT(call, 64 * kKi - 1);
      EXPECT_LE(call, std::max(512 * kKi, static_cast<std::size_t>(channels) * 32 * kKi));
      if (chunk > 32 * kKi && call > 128 * kKi) {
        EXPECT_LE(8 * call, bytes);
      }
    }
  }
  EXPECT_EQ(chunkBytesFor({4, 4}, 64 * kMi, 2, 128 * kKi), 256 * kKi);
  EXPECT_EQ(chunkBytesFor({4, 4}, 1 * kMi, 2, 128 * kKi), 64 * kKi);
  EXPECT_EQ(chunkBytesFor({4, 4}, 64 * kMi, 0, 128 * kKi), 128 * kKi);
}

}  // namespace
}  // namespace cgx::tuner
