// The stand-in's net half against plugins that are known to be right or wrong in one way: each defect must be named,
// the right one clean.
#include <gtest/gtest.h>

#include "support/nccl_host/net_peer.h"

namespace cgx::host {
namespace {

RunOptions options(const std::string& defect, int ranks = 2) {
  RunOptions o;
  o.plugin = std::string(CGX_BROKEN_DIR) + "/libreference-" + defect + ".so";
  o.ranks = ranks;
  o.limits = {.runSeconds = 20, .stuckSeconds = 2, .connectSeconds = 10, .closeSeconds = 2, .operationSeconds = 10};
  return o;
}

class ReferencePlugin : public testing::TestWithParam<std::tuple<int, int, Layout>> {};

TEST_P(ReferencePlugin, PassesCleanThroughEveryAbiVersion) {
  const auto [abi, ranks, layout] = GetParam();
  RunOptions o = options("None", ranks);
  o.abi = abi;
  o.layout = layout;
  const Verdict verdict = run(o, netRing({.messages = 200}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

INSTANTIATE_TEST_SUITE_P(Versions, ReferencePlugin,
                         testing::Combine(testing::Range(6, 13), testing::Values(1, 2, 3),
                                          testing::Values(Layout::Processes, Layout::Threads)));

TEST(NetHost, GroupedReceivesAreMatchedByTag) {
  const Verdict verdict = run(options("None"), netRing({.messages = 300, .group = 8}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

TEST(NetHost, ReloadsTheLibraryManyTimes) {
  const Verdict verdict = run(options("None"), netRing({.messages = 8}, 20));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

struct Case {
  const char* defect;
  Violation violation;
  NetTraffic traffic = {.messages = 64};
};

class BrokenPlugin : public testing::TestWithParam<Case> {};

TEST_P(BrokenPlugin, IsReportedByName) {
  RunOptions o = options(GetParam().defect);
  o.limits.operationSeconds = 1.5;  // nothing here takes longer unless it is the defect
  o.limits.sleepsTolerated = 5;
  const Verdict verdict = run(o, netRing(GetParam().traffic));
  EXPECT_TRUE(verdict.only({GetParam().violation})) << verdict.text();
}

INSTANTIATE_TEST_SUITE_P(
    Net, BrokenPlugin,
    testing::Values(Case{"LeaksThreads", Violation::LeaksThreads}, Case{"LeaksFds", Violation::LeaksFds},
                    Case{"LeaksMappings", Violation::LeaksMappings},
                    Case{"MissingFunction", Violation::MissingFunction},
                    Case{"BadProperties", Violation::BadProperties},
                    Case{"WritesOutsideBuffer", Violation::WritesOutsideBuffer},
                    Case{"WritesUserSendBuffer", Violation::WritesUserSendBuffer},
                    Case{"WrongTestSize", Violation::WrongTestSize}, Case{"NeverCompletes", Violation::NeverCompletes},
                    Case{"BlockingCall", Violation::BlockingCall, {.messages = 4}},
                    Case{"CloseBlocks", Violation::CloseBlocks}, Case{"BlocksInConnect", Violation::BlocksInConnect},
                    Case{"ReordersReceives", Violation::ReordersReceives, {.messages = 64, .sizes = {4096}}},
                    Case{"CorruptsData", Violation::CorruptsData}),
    [](const auto& one) { return std::string(one.param.defect); });

TEST(NetHost, NamesAnAbsentLibraryAndAnAbsentVersion) {
  EXPECT_TRUE(run(options("NoSuchFile"), netRing({})).only({Violation::CannotLoad}));
  RunOptions o = options("None", 1);
  o.abi = 5;
  EXPECT_TRUE(run(o, netRing({})).only({Violation::MissingSymbol}));
}

class PeerDeath : public testing::TestWithParam<const char*> {
 protected:
  Verdict verdictOf(const char* defect) {
    RunOptions o = options(defect, 2);
    o.mayDie = {1};
    return run(o, netRing({.messages = 1000, .dyingRank = 1, .dieAfter = 20, .lossSeconds = 1}));
  }
};

TEST_F(PeerDeath, IsAnErrorThatStays) {
  const Verdict verdict = verdictOf("None");
  EXPECT_TRUE(verdict.clean()) << verdict.text();
  EXPECT_EQ(verdict.notes.at("loss error").at(0), std::to_string(ncclRemoteError));
}

TEST_F(PeerDeath, UnnoticedOrForgottenIsReported) {
  EXPECT_TRUE(verdictOf("PeerLossUnnoticed").only({Violation::PeerLossUnnoticed}));
  EXPECT_TRUE(verdictOf("ErrorNotSticky").only({Violation::ErrorNotSticky}));
}

std::function<void(Rank&)> abandonRing(bool unmap) {
  return [unmap](Rank& rank) {
    NetPeer peer(rank);
    if (!peer.open() || !peer.connectRing()) return;
    peer.abandon({.messages = 64, .sizes = {4096}}, unmap);
  };
}

TEST(NetHost, AbortedTrafficLeavesTheBuffersAlone) {
  for (const bool unmap : {false, true}) {
    const Verdict verdict = run(options("None"), abandonRing(unmap));
    EXPECT_TRUE(verdict.clean()) << verdict.text();
  }
}

TEST(NetHost, TouchingABufferAfterDeregistrationIsReported) {
  for (const bool unmap : {false, true}) {
    const Verdict verdict = run(options("TouchesStagingAfterDereg"), abandonRing(unmap));
    EXPECT_TRUE(verdict.has(Violation::TouchesStagingAfterDereg)) << verdict.text();
  }
}

TEST(NetHost, ACrashingRankIsNamedAndTheOthersEnd) {
  RunOptions o = options("None", 3);
  const Verdict verdict = run(o, [](Rank& rank) {
    NetPeer peer(rank);
    if (!peer.open()) return;
    if (rank.rank() == 1) __builtin_trap();
    peer.connectRing();
  });
  ASSERT_TRUE(verdict.has(Violation::RankCrashed)) << verdict.text();
  EXPECT_LT(verdict.seconds, 10);
}

TEST(NetHost, AHangingRankIsKilledAndNamed) {
  RunOptions o = options("None", 2);
  o.limits.runSeconds = 1;
  const Verdict verdict = run(o, [](Rank& rank) {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(rank.rank() + 1));
  });
  EXPECT_TRUE(verdict.only({Violation::RankHangs})) << verdict.text();
  EXPECT_EQ(verdict.findings.size(), 2U);
}

TEST(NetHost, HashesThatDifferBetweenProcessesAreReported) {
  const Verdict verdict = run(options("None", 3), [](Rank& rank) {
    const char same = 1;
    const char different = static_cast<char>(rank.rank() == 2);
    rank.hash("same", XXH3_128bits(&same, 1));
    rank.hash("different", XXH3_128bits(&different, 1));
  });
  ASSERT_TRUE(verdict.only({Violation::RanksDiffer})) << verdict.text();
  EXPECT_EQ(verdict.findings.size(), 1U);
}

}  // namespace
}  // namespace cgx::host
