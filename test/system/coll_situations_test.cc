// Situations that NCCL brings the real library's collnet half into: stale padding, aborts, splits, failing connects,
// dead and stopped peers.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "system/plugin_under_test.h"

namespace cgx::host {
namespace {

void expectClean(const Verdict& verdict) { EXPECT_TRUE(verdict.clean()) << verdict.text(); }

Body connectOnly() {
  return [](Rank& rank) {
    CollComm comm(rank, {.mayFail = true});
    if (!comm.open()) return;
    rank.note("connected", comm.connect() == Connected::Yes ? "yes" : "no");
  };
}

class StalePadding : public testing::TestWithParam<Fill> {};

TEST_P(StalePadding, NeverDegradesValidData) {
  for (const Fill staging : {Fill::Zeros, Fill::Bits})
    expectClean(run(realPlugin(2, bits(4)), stalePadding({.stagingFill = staging}, GetParam(), quantised(4))));
}

INSTANTIATE_TEST_SUITE_P(AnyBits, StalePadding, testing::Values(Fill::Large, Fill::NaNs, Fill::Huge, Fill::Bits));

// Written by the host itself, where NCCL would have left it: even then a NaN must cost nothing but its tile's size.
TEST(Padding, OfNaNsBesideTheDataIsHarmless) {
  expectClean(run(realPlugin(2, bits(4)), stalePadding({}, Fill::NaNs, quantised(4), true)));
}

// 9-08: what is small is exact, whatever lies behind it in the slot from before.
TEST(SmallMessages, AreExactAfterAnythingElse) {
  std::vector<OpSpec> ops;
  for (const ncclDataType_t dtype : {ncclFloat32, ncclFloat16, ncclBfloat16}) {
    ops.push_back({.dtype = ncclFloat32, .count = 300000, .fill = Fill::Large, .verify = false});
    for (const std::size_t count : {1UL, 2UL, 31UL, 513UL, 8000UL}) ops.push_back({.dtype = dtype, .count = count});
  }
  expectClean(run(realPlugin(3), collOperations({}, ops)));
}

TEST(Communicators, AreMadeAndDestroyedAgainAndAgain) {
  expectClean(run(realPlugin(2), collOperations({}, {{.count = 1000}, {.count = 100000, .bound = quantised(4)}}, 20)));
}

TEST(Communicators, TwoConnectAndWorkAtOnce) {
  const std::vector<OpSpec> ops{
      {.count = 100000, .bound = quantised(4)}, {.count = 3}, {.count = 100000, .bound = quantised(4)}};
  for (const Layout layout : {Layout::Processes, Layout::Threads}) {
    RunOptions o = realPlugin(3);
    o.layout = layout;
    expectClean(run(o, twoCommunicators({}, ops, {0, 1})));
    expectClean(run(o, twoCommunicators({}, ops, {2, 0, 1})));
  }
}

TEST(Communicators, ASplitSharesItsParentsStaging) {
  for (const int abi : {6, 10, 12}) {
    RunOptions o = realPlugin(2);
    o.abi = abi;
    expectClean(run(o, splitShared({}, {{.count = 100000, .bound = quantised(4)}, {.count = 3}})));
  }
}

TEST(Abort, LeavesStagingAloneFromTheFirstDeregistrationOn) {
  for (const StagingEnd end : {StagingEnd::Unmap, StagingEnd::Watch}) {
    for (const std::size_t count : {20000UL, 4000000UL}) {
      for (const Layout layout : {Layout::Processes, Layout::Threads}) {
        RunOptions o = realPlugin(3);
        o.layout = layout;
        expectClean(run(o, abortInFlight({.end = end}, {.count = count})));
      }
    }
  }
}

// 6-03: one rank that cannot, and nobody can; then the same ranks can.
class FailingConnect : public testing::TestWithParam<ConnectAs> {};

TEST_P(FailingConnect, FailsOnAllRanksAlike) {
  for (const int who : {0, 2}) {
    RunOptions o = realPlugin(3, {{"CGX_CONNECT_TIMEOUT", "2"}});
    if (GetParam() == ConnectAs::Dies) o.mayDie = {who};
    expectClean(run(o, failingConnect({}, who, GetParam())));
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, FailingConnect,
                         testing::Values(ConnectAs::Skips, ConnectAs::CorruptHandle, ConnectAs::Dies));

// 11-01: different widths need no agreement, the format says which each tile has; the coarsest one's bound holds.
TEST(Settings, OfWidthMayDifferBetweenRanks) {
  RunOptions o = realPlugin(3, {{"CGX_MODE", "always"}});  // in auto the tuner's choice hangs on them
  o.rankEnvironment = {{0, {{"CGX_BITS", "4"}}}, {1, {{"CGX_BITS", "8"}}}, {2, {{"CGX_ROUNDING", "nearest"}}}};
  const OpSpec large{.count = 100000, .bound = quantised(4)};
  expectClean(run(o, collOperations({}, {large, {.count = 100}, large})));
}

// What shapes the plan has to agree: nobody connects, and a warning names the setting.
TEST(Settings, ThatShapeThePlanFailEverywhereAndAreNamed) {
  RunOptions o = realPlugin(3, {{"CGX_CONNECT_TIMEOUT", "5"}});
  o.rankEnvironment[1] = {{"CGX_ONE_PHASE_BYTES", "1024"}};
  const Verdict verdict = run(o, connectOnly());
  expectClean(verdict);
  ASSERT_EQ(verdict.notes.at("connected").size(), 3U);
  for (const auto& [rank, connected] : verdict.notes.at("connected")) EXPECT_EQ(connected, "no") << "rank " << rank;
  const bool named = std::any_of(verdict.warnings.begin(), verdict.warnings.end(), [](const std::string& w) {
    return w.find("CGX_ONE_PHASE_BYTES") != std::string::npos;
  });
  EXPECT_TRUE(named) << "no warning names CGX_ONE_PHASE_BYTES\n" << verdict.text();
}

TEST(Settings, ModeOffOnAnyRankKeepsCollnetOffEverywhereWithoutAWarningWhereItWasAsked) {
  for (const bool everywhere : {true, false}) {
    RunOptions o = realPlugin(3, {{"CGX_CONNECT_TIMEOUT", "5"}});
    if (everywhere)
      o.environment.push_back({"CGX_MODE", "off"});
    else
      o.rankEnvironment[1] = {{"CGX_MODE", "off"}};
    const Verdict verdict = run(o, connectOnly());
    expectClean(verdict);
    ASSERT_EQ(verdict.notes.at("connected").size(), 3U);
    for (const auto& [rank, connected] : verdict.notes.at("connected")) EXPECT_EQ(connected, "no") << "rank " << rank;
    for (const std::string& warning : verdict.warnings) {
      EXPECT_FALSE(everywhere) << warning;
      EXPECT_TRUE(warning.starts_with("rank 0") || warning.starts_with("rank 2")) << warning;
    }
  }
}

// CGX_COMMS=world, and the launcher says that this is not it: exact, though NCCL was made to use us.
TEST(Settings, APartOfTheJobIsExactAndTheJobItselfIsNot) {
  RunOptions part = realPlugin(3, {{"WORLD_SIZE", "12"}, {"LOCAL_WORLD_SIZE", "2"}});
  expectClean(run(part, collOperations({}, {{.count = 100000, .bound = exactly()}})));
  RunOptions job = realPlugin(3, {{"WORLD_SIZE", "6"}, {"LOCAL_WORLD_SIZE", "2"}});
  expectClean(run(job, collOperations({}, {{.count = 100000, .bound = quantised(4)}})));
  EXPECT_FALSE(run(job, collOperations({}, {{.count = 100000, .bound = exactly()}})).clean());
}

TEST(Settings, ABadValueOnOneRankFailsTheConnectEverywhere) {
  RunOptions o = realPlugin(3, {{"CGX_CONNECT_TIMEOUT", "5"}});
  o.rankEnvironment[1] = {{"CGX_BITS", "many"}};
  const Verdict verdict = run(o, connectOnly());
  expectClean(verdict);
  for (const auto& [rank, connected] : verdict.notes.at("connected")) EXPECT_EQ(connected, "no") << "rank " << rank;
}

// 8-03, 8-06.
TEST(DeadPeer, IsARemoteErrorWithinFiveSecondsAndStaysOne) {
  for (const int who : {0, 1}) {
    RunOptions o = realPlugin(3);
    o.mayDie = {who};
    const Verdict verdict = run(o, peerDies({}, who));
    expectClean(verdict);
    for (const auto& [rank, error] : verdict.notes.at("loss error"))
      EXPECT_EQ(error, std::to_string(ncclRemoteError)) << "rank " << rank;
  }
}

// 8-07.
TEST(StoppedPeer, DoesNotHoldUpTheClose) {
  RunOptions o = realPlugin(3);
  o.mayDie = {2};
  o.limits.runSeconds = 15;
  const Verdict verdict = run(o, [](Rank& rank) {
    CollComm comm(rank, {});
    if (!comm.setUp() || !rank.barrier(1, rank.everyone(), 10)) return;
    if (rank.rank() == 2) {
      raise(SIGSTOP);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CollOp op(comm, {.count = 1000000}, 1);
    op.postOnly();
    op.abandon();
    comm.close();
    rank.note("closed", "yes");
  });
  expectClean(verdict);
  EXPECT_EQ(verdict.notes.count("closed"), 1U) << verdict.text();
}

// 6-09.
TEST(Pipeline, AcceptsSixteenCallsBeforeTheFirstTest) { expectClean(run(realPlugin(2), fillsThePipeline(16))); }

// 6-10: a mismatch is an error on all, soon, and nothing is written outside.
TEST(Mismatch, OfCountsIsAnErrorOnBothRanks) {
  for (const bool types : {false, true}) {
    RunOptions o = realPlugin(2);
    const Verdict verdict = run(o, [types](Rank& rank) {
      CollComm comm(rank, {});
      if (!comm.setUp()) return;
      OpSpec spec{.count = rank.rank() == 0 ? 1000UL : 1001UL, .buffers = Buffers::Registered, .verify = false};
      if (types)
        spec = {.dtype = rank.rank() == 0 ? ncclFloat32 : ncclFloat16,
                .count = 1000,
                .buffers = Buffers::Registered,
                .verify = false};
      CollOp op(comm, spec, 0);
      const auto start = Clock::now();
      drive({&op}, true);
      rank.note("error", std::to_string(op.error()));
      rank.note("seconds", std::to_string(Seconds(Clock::now() - start).count()));
      op.abandon();
      op.finish();
    });
    expectClean(verdict);
    for (const auto& [rank, error] : verdict.notes.at("error")) EXPECT_NE(error, "0") << "rank " << rank;
    for (const auto& [rank, took] : verdict.notes.at("seconds")) EXPECT_LT(std::stod(took), 5) << "rank " << rank;
  }
}

}  // namespace
}  // namespace cgx::host
