// The stand-in's collnet half against plugins that are known to be right or wrong in one way: each defect must be
// named, the right ones clean.
#include <gtest/gtest.h>

#include "support/nccl_host/coll_scenarios.h"

namespace cgx::host {
namespace {

RunOptions options(const std::string& defect, int ranks = 2) {
  RunOptions o;
  o.plugin = std::string(CGX_BROKEN_DIR) + "/libreference-" + defect + ".so";
  o.ranks = ranks;
  o.limits = {.runSeconds = 30, .stuckSeconds = 2, .connectSeconds = 10, .closeSeconds = 2, .operationSeconds = 10};
  return o;
}

/// A bit of everything on one communicator.
std::vector<OpSpec> mixture(const Bound& bound) {
  std::vector<OpSpec> ops;
  for (const ncclDataType_t dtype : {ncclFloat32, ncclFloat16, ncclBfloat16}) {
    for (const std::size_t count : {1, 100000, 1000, 40000, 7})
      ops.push_back({.dtype = dtype, .count = count, .bound = bound});
    ops.push_back({.dtype = dtype, .count = 5000, .fill = Fill::Large, .bound = bound});
    ops.push_back({.dtype = dtype, .count = 300, .bound = bound});
    ops.push_back({.dtype = dtype, .count = 3001, .buffers = Buffers::Registered, .bound = bound});
    ops.push_back({.dtype = dtype, .count = 3001, .buffers = Buffers::RegisteredInPlace, .bound = bound});
  }
  return ops;
}

class ReferenceCollNet : public testing::TestWithParam<std::tuple<int, int, Layout>> {};

TEST_P(ReferenceCollNet, PassesCleanThroughEveryAbiVersion) {
  const auto [abi, ranks, layout] = GetParam();
  RunOptions o = options("None", ranks);
  o.abi = abi;
  o.layout = layout;
  std::vector<OpSpec> ops = mixture(exactly());
  if (abi >= 8) {
    for (const Buffers buffers : {Buffers::Staging, Buffers::Registered}) {
      ops.push_back({.op = Op::AllGather, .count = 50001, .buffers = buffers, .fill = Fill::Bits});
      ops.push_back({.op = Op::ReduceScatter, .count = 50001, .buffers = buffers});
    }
  }
  const Verdict verdict = run(o, collOperations({}, ops));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
  EXPECT_GE(verdict.hashes.size(), 27U) << "hashes of every all-reduce";
}

INSTANTIATE_TEST_SUITE_P(Versions, ReferenceCollNet,
                         testing::Combine(testing::Range(6, 13), testing::Values(1, 2, 3),
                                          testing::Values(Layout::Processes, Layout::Threads)));

TEST(CollHost, ALossyPluginThatClearsPaddingIsClean) {
  for (const Fill padding : {Fill::Large, Fill::NaNs, Fill::Huge, Fill::Bits}) {
    const Verdict verdict = run(options("Quantises", 3), stalePadding({}, padding, quantised(8)));
    EXPECT_TRUE(verdict.clean()) << verdict.text();
  }
}

TEST(CollHost, UsesAllShapesOfStagingThatNcclMakes) {
  for (const int channels : {1, 2, 8, 9, 16}) {
    CommOptions comm{.channels = channels};
    const Verdict verdict =
        run(options("None"), collOperations(comm, {{.count = 300000}, {.count = 10}, {.count = 70001}}));
    EXPECT_TRUE(verdict.clean()) << channels << " channels: " << verdict.text();
  }
}

TEST(CollHost, CreatesAndDestroysAgainAndAgain) {
  const Verdict verdict = run(options("None"), collOperations({}, {{.count = 1000}}, 10));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

TEST(CollHost, TwoCommunicatorsWorkAtOnce) {
  const Verdict verdict = run(options("None", 3), twoCommunicators({}, {{.count = 100000}, {.count = 3}}, {0, 1}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

TEST(CollHost, ASplitSharesItsParentsStaging) {
  const Verdict verdict = run(options("None"), splitShared({}, {{.count = 100000}, {.count = 3}}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

TEST(CollHost, AnAbortLeavesStagingAlone) {
  for (const StagingEnd end : {StagingEnd::Unmap, StagingEnd::Watch}) {
    const Verdict verdict = run(options("None", 3), abortInFlight({.end = end}, {.count = 1000000}));
    EXPECT_TRUE(verdict.clean()) << verdict.text();
  }
}

TEST(CollHost, ConnectThatFailsEverywhereIsNoFinding) {
  for (const ConnectAs how : {ConnectAs::Skips, ConnectAs::CorruptHandle, ConnectAs::Dies}) {
    RunOptions o = options("None", 3);
    if (how == ConnectAs::Dies) o.mayDie = {1};
    const Verdict verdict = run(o, failingConnect({}, 1, how));
    EXPECT_TRUE(verdict.clean()) << static_cast<int>(how) << ": " << verdict.text();
  }
}

TEST(CollHost, ADeadPeerIsAnErrorOnTheOthers) {
  RunOptions o = options("None", 3);
  o.mayDie = {1};
  const Verdict verdict = run(o, peerDies({}, 1));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
  o = options("PeerLossUnnoticed", 3);
  o.mayDie = {1};
  const Verdict unnoticed = run(o, peerDies({}, 1, 1.0));
  EXPECT_TRUE(unnoticed.only({Violation::PeerLossUnnoticed})) << unnoticed.text();
}

TEST(CollHost, SixteenRanksInThreads) {
  RunOptions o = options("None", 16);
  o.layout = Layout::Threads;
  const Verdict verdict = run(o, collOperations({}, {{.count = 20000}}));
  EXPECT_TRUE(verdict.clean()) << verdict.text();
}

struct Case {
  const char* defect;
  Violation violation;
  std::vector<OpSpec> operations = {
      {.count = 10}, {.count = 100000}, {.count = 3000}, {.count = 3000, .buffers = Buffers::Registered}};
  int ranks = 2;
  std::vector<Violation> also = {};
};

class BrokenCollNet : public testing::TestWithParam<Case> {};

TEST_P(BrokenCollNet, IsReportedByName) {
  const Case& c = GetParam();
  RunOptions o = options(c.defect, c.ranks);
  o.limits.operationSeconds = 1.5;
  o.limits.connectSeconds = 6;
  o.rankEnvironment[1] = {{"REFERENCE_DIFFERS", "1"}};  // for what is asked before a rank knows which it is
  o.limits.sleepsTolerated = 5;
  const Verdict verdict = run(o, collOperations({}, c.operations));
  EXPECT_TRUE(verdict.has(c.violation)) << verdict.text();
  for (const Finding& f : verdict.findings)
    EXPECT_TRUE(f.violation == c.violation || std::find(c.also.begin(), c.also.end(), f.violation) != c.also.end())
        << verdict.text();
}

const std::vector<OpSpec> kLossy{{.count = 100000, .bound = quantised(8)}, {.count = 5000, .bound = quantised(8)}};

INSTANTIATE_TEST_SUITE_P(
    CollNet, BrokenCollNet,
    testing::Values(Case{"ConnectNotUnanimous", Violation::ConnectNotUnanimous, {{}}, 3},
                    Case{"ConnectNeverCompletes", Violation::ConnectNeverCompletes, {{}}, 2, {Violation::ConnectFails}},
                    Case{"ReduceSupportDiffers", Violation::ReduceSupportDiffers},
                    Case{"WrongSum", Violation::WrongSum, {{.count = 100000}, {.count = 3000}}},
                    Case{"RanksDifferInRounding", Violation::RanksDiffer, kLossy},
                    Case{"RanksDifferInOneBit", Violation::RanksDiffer, kLossy, 3},
                    Case{"WritesOutsideBuffer", Violation::WritesOutsideBuffer, {{.count = 10}, {.count = 3000}}},
                    Case{"WritesUserSendBuffer",
                         Violation::WritesUserSendBuffer,
                         {{.count = 3000, .buffers = Buffers::Registered}}},
                    Case{"WrongTestSize", Violation::WrongTestSize}, Case{"NeverCompletes", Violation::NeverCompletes},
                    Case{"BlockingCall", Violation::BlockingCall}, Case{"CloseBlocks", Violation::CloseBlocks},
                    Case{"TouchesStagingAfterDereg", Violation::TouchesStagingAfterDereg},
                    Case{"RankCrashed",
                         Violation::RankCrashed,
                         {{.count = 10}, {.count = 100000}, {.count = 3000}},
                         2,
                         {Violation::CallFails}},
                    Case{"LeaksThreads", Violation::LeaksThreads}, Case{"LeaksFds", Violation::LeaksFds},
                    Case{"LeaksMappings", Violation::LeaksMappings}),
    [](const auto& one) { return std::string(one.param.defect); });

TEST(BrokenPlugins, DegradingDataNextToPaddingIsReportedByName) {
  for (const bool inject : {false, true}) {
    const Verdict verdict =
        run(options("DegradesDataNextToPadding"), stalePadding({}, Fill::Large, quantised(8), inject));
    EXPECT_TRUE(verdict.only({Violation::DegradesDataNextToPadding})) << verdict.text();
  }
}

TEST(BrokenPlugins, DifferentBitsFromRunToRunAreReportedByName) {
  const auto body = collOperations({}, {{.count = 5000, .verify = false}});
  EXPECT_TRUE(reproduced(run(options("None"), body), run(options("None"), body)).empty());
  const auto differences = reproduced(run(options("NotReproducible"), body), run(options("NotReproducible"), body));
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences.front().violation, Violation::NotReproducible);
}

TEST(BrokenPlugins, AcceptingTooFewRequestsIsReportedByName) {
  EXPECT_TRUE(run(options("None"), fillsThePipeline(16)).clean());
  EXPECT_TRUE(run(options("TooFewRequests"), fillsThePipeline(16)).only({Violation::TooFewRequests}));
}

}  // namespace
}  // namespace cgx::host
