// The real library's net half, driven from outside as NCCL drives it.
#include <gtest/gtest.h>
#include <signal.h>

#include "system/plugin_under_test.h"

namespace cgx::host {
namespace {

class NetVersions : public testing::TestWithParam<std::tuple<int, int, Layout>> {};

TEST_P(NetVersions, CarriesEveryMessageBitExact) {
  const auto [abi, ranks, layout] = GetParam();
  RunOptions o = realPlugin(ranks);
  o.abi = abi;
  o.layout = layout;
  const Verdict verdict = run(o, netRing({.messages = 300}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

std::string shapeName(const testing::TestParamInfo<std::tuple<int, int, Layout>>& shape) {
  const auto [abi, ranks, layout] = shape.param;
  return "v" + std::to_string(abi) + "_" + std::to_string(ranks) +
         (layout == Layout::Threads ? "_threads" : "_processes");
}

INSTANTIATE_TEST_SUITE_P(AllVersions, NetVersions,
                         testing::Combine(testing::Range(6, 13), testing::Values(1, 2, 3),
                                          testing::Values(Layout::Processes, Layout::Threads)),
                         shapeName);

TEST(NetHost, GroupedReceivesAreMatchedByTag) {
  const Verdict verdict = run(realPlugin(2), netRing({.messages = 2000, .maxBytes = 200000, .group = 8}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

TEST(NetHost, LargeMessagesArriveWhole) {
  const Verdict verdict =
      run(realPlugin(2), netRing({.messages = 12, .outstanding = 4, .sizes = {32 << 20, 1, (16 << 20) + 3}}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

TEST(NetHost, EightRanksInOneProcess) {
  RunOptions o = realPlugin(8);
  o.layout = Layout::Threads;
  const Verdict verdict = run(o, netRing({.messages = 200}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

TEST(NetHost, FiftyReloadsLeaveNothingBehind) {
  const Verdict verdict = run(realPlugin(2), netRing({.messages = 4, .sizes = {1 << 20}}, 50));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

// 8-03, 8-05, 8-06: a killed peer is a remote error, soon, and stays one; close is quick.
TEST(NetHost, AKilledPeerIsARemoteErrorOnItsNeighbours) {
  RunOptions o = realPlugin(2);
  o.mayDie = {1};
  const Verdict verdict = run(o, netRing({.messages = 100000, .dyingRank = 1, .dieAfter = 200}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
  ASSERT_TRUE(verdict.notes.contains("loss error")) << verdict.text();
  EXPECT_EQ(verdict.notes.at("loss error").at(0), std::to_string(ncclRemoteError));
}

std::function<void(Rank&)> abandonRing(bool unmap) {
  return [unmap](Rank& rank) {
    NetPeer peer(rank);
    if (!peer.open() || !peer.connectRing()) return;
    peer.abandon({.messages = 64, .sizes = {1 << 20}}, unmap);
  };
}

// NCCL frees its buffers between deregMr and close, with requests in flight after an abort.
TEST(NetHost, AnAbortLeavesDeregisteredBuffersAlone) {
  for (const bool unmap : {false, true}) {
    for (int i = 0; i < 5; ++i) {
      const Verdict verdict = run(realPlugin(2), abandonRing(unmap));
      ASSERT_TRUE(verdict.clean()) << verdict.text();
    }
  }
}

// 8-07: close waits for nobody.
TEST(NetHost, ClosesWithinASecondWhileItsPeerIsStopped) {
  RunOptions o = realPlugin(2);
  o.mayDie = {1};
  o.limits.runSeconds = 15;
  const Verdict verdict = run(o, [](Rank& rank) {
    NetPeer peer(rank);
    if (!peer.open() || !peer.connectRing()) return;
    if (!rank.barrier(1, rank.everyone(), 10)) return;
    if (rank.rank() == 1) {
      raise(SIGSTOP);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    peer.abandon({.messages = 64, .sizes = {1 << 20}}, false);
    rank.note("closed", "yes");
  });
  EXPECT_TRUE(verdict.clean()) << verdict.text();
  EXPECT_TRUE(verdict.notes.contains("closed")) << verdict.text();
}

}  // namespace
}  // namespace cgx::host
