#include "transport/socket/ledger.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "transport/socket/silence.h"

namespace cgx::transport::socket {
namespace {

struct Fixture : ::testing::Test {
  std::unique_ptr<Outgoing> out = std::make_unique<Outgoing>(2);
  std::unique_ptr<Incoming> in = std::make_unique<Incoming>();
  std::vector<std::byte> memory = std::vector<std::byte>(4 << 20);
  Completion completion;
  Misfit misfit;
  wire::Frame frame(std::uint64_t receive, std::uint8_t slot, std::uint64_t offset, std::uint32_t length,
                    std::uint64_t total) {
    wire::Frame f{};
    f.receive = receive, f.slot = slot, f.offset = offset, f.length = length, f.total = total;
    return f;
  }
  void announced(std::size_t bytes) {
    const Slot slot{std::span(memory).first(bytes), 0};
    ASSERT_TRUE(in->post({&slot, 1}, completion).ok());
    std::array<wire::PostedSlot, kMaxGroup> slots;
    std::size_t count;
    ASSERT_TRUE(in->announce(slots, count).has_value());
  }
};
using Ledger = Fixture;

TEST_F(Ledger, AnnouncementsOutOfOrderOrTooManyAreTheftOfAttentionAndRefused) {
  const wire::PostedSlot slot{0, 0, 10};
  EXPECT_EQ(out->announced(1, {&slot, 1}, misfit).code(), Code::Remote);
  EXPECT_EQ(out->announced(0, {}, misfit).code(), Code::Remote);
  for (std::uint64_t i = 0; i < kMaxReceives; ++i) ASSERT_TRUE(out->announced(i, {&slot, 1}, misfit).ok());
  EXPECT_EQ(out->announced(kMaxReceives, {&slot, 1}, misfit).code(), Code::Remote);
}

TEST_F(Ledger, LargeMessagesAreCutForTheStreamsAndSmallOnesAreNot) {
  const wire::PostedSlot slot{0, 0, memory.size()};
  ASSERT_TRUE(out->announced(0, {&slot, 1}, misfit).ok());
  ASSERT_TRUE(out->announced(1, {&slot, 1}, misfit).ok());
  ASSERT_TRUE(out->post(std::span(memory).first(256 << 10), 0, Priority::Normal, completion, misfit).ok());
  ASSERT_TRUE(out->post(std::span(memory).first(100), 0, Priority::High, completion, misfit).ok());
  EXPECT_EQ(out->next()->bytes.size(), 100u);  // higher first
  EXPECT_EQ(out->next()->bytes.size(), 128u << 10);
  const auto second = out->next();
  EXPECT_EQ(second->offset, 128u << 10);
  EXPECT_FALSE(out->next().has_value());
}

TEST_F(Ledger, ASendIsDoneWhenItsLastChunkInAnyOrderIsWritten) {
  const wire::PostedSlot slot{0, 0, memory.size()};
  ASSERT_TRUE(out->announced(0, {&slot, 1}, misfit).ok());
  ASSERT_TRUE(out->post(std::span(memory).first(256 << 10), 0, Priority::Normal, completion, misfit).ok());
  const auto first = out->next(), second = out->next();
  EXPECT_EQ(out->written(*second), nullptr);
  EXPECT_EQ(out->written(*first), &completion);
  EXPECT_EQ(completion.sizes[0], 256u << 10);
  EXPECT_TRUE(out->empty());
}

TEST_F(Ledger, ReceivesThatEndOutOfOrderMakeRoomForNewOnes) {
  const Slot slot{std::span(memory).first(8), 0};
  std::array<wire::PostedSlot, kMaxGroup> slots;
  std::size_t count;
  for (int i = 0; i < kMaxReceives; ++i) ASSERT_TRUE(in->post({&slot, 1}, completion).ok());
  for (int i = 0; i < kMaxReceives; ++i) ASSERT_TRUE(in->announce(slots, count).has_value());
  EXPECT_TRUE(in->post({&slot, 1}, completion).isPending());
  for (std::uint64_t number = 1; number < 100; ++number) {  // the first stays open
    const wire::Frame f = frame(number, 0, 0, 8, 8);
    ASSERT_TRUE(in->place(f).ok()) << number;
    ASSERT_EQ(in->arrived(f), &completion);
    ASSERT_TRUE(in->post({&slot, 1}, completion).ok());
    ASSERT_EQ(in->announce(slots, count), kMaxReceives + number - 1);
  }
  EXPECT_TRUE(in->place(frame(0, 0, 0, 8, 8)).ok());
}

TEST_F(Ledger, FramesThatFitNothingAreRefused) {
  announced(100);
  EXPECT_EQ(in->place(frame(1, 0, 0, 10, 10)).status().code(), Code::Remote);    // not posted
  EXPECT_EQ(in->place(frame(0, 1, 0, 10, 10)).status().code(), Code::Remote);    // no such slot
  EXPECT_EQ(in->place(frame(0, 0, 0, 10, 101)).status().code(), Code::Invalid);  // longer than the slot
  EXPECT_EQ(in->place(frame(0, 0, 95, 10, 100)).status().code(), Code::Remote);  // past the end
  EXPECT_EQ(in->place(frame(0, 0, ~0ull, 10, 100)).status().code(), Code::Remote);
  EXPECT_EQ(in->place(frame(0, 0, 0, 0, 100)).status().code(), Code::Remote);  // would go on for ever
  ASSERT_TRUE(in->place(frame(0, 0, 0, 60, 100)).ok());
  EXPECT_EQ(in->place(frame(0, 0, 0, 60, 100)).status().code(), Code::Remote);  // the same bytes twice
  EXPECT_EQ(in->place(frame(0, 0, 60, 10, 90)).status().code(), Code::Remote);  // another length
  EXPECT_EQ(in->place(frame(0, 0, 60, 40, 100)).value(), memory.data() + 60);
}

TEST_F(Ledger, AReceiveIsDoneOnlyWhenEveryReservedByteHasArrived) {
  announced(100);
  const wire::Frame first = frame(0, 0, 0, 60, 100), second = frame(0, 0, 60, 40, 100);
  ASSERT_TRUE(in->place(first).ok() && in->place(second).ok());
  EXPECT_EQ(in->arrived(second), nullptr);
  EXPECT_EQ(in->arrived(first), &completion);
  EXPECT_EQ(in->place(first).status().code(), Code::Remote);
}

// What TCP_INFO shows at a time, in milliseconds; the peer timeout is 30 s.
class SilenceAt {
 public:
  SilenceWatch::Verdict judge(std::int64_t ms, const LinkState& state) {
    return watch_.judge(state, start_ + std::chrono::milliseconds(ms));
  }

 private:
  Clock::time_point start_ = Clock::now();
  SilenceWatch watch_{Settings{}};
};

TEST(Silence, IsAHostThatLeavesASegmentUnansweredForTheWholeTimeout) {
  SilenceAt at;
  using V = SilenceWatch::Verdict;
  EXPECT_EQ(at.judge(0, {1, 0, 0, 100, 50, 0}), V::Fine);
  EXPECT_EQ(at.judge(29'000, {1, 0, 0, 29'100, 2'000, 6}), V::Fine);
  EXPECT_EQ(at.judge(31'000, {1, 0, 0, 31'100, 4'000, 6}), V::Fine);  // once may be bad luck
  EXPECT_EQ(at.judge(31'250, {1, 0, 0, 31'350, 4'250, 6}), V::Dead);
}

TEST(Silence, IsAHostThatLeavesProbesUnanswered) {
  SilenceAt at;
  using V = SilenceWatch::Verdict;
  EXPECT_EQ(at.judge(0, {0, 5000, 1, 300, 90'000, 0}), V::Late);
  EXPECT_EQ(at.judge(31'000, {0, 5000, 4, 31'300, 121'000, 0}), V::Late);
  EXPECT_EQ(at.judge(31'250, {0, 5000, 4, 31'550, 121'250, 0}), V::Dead);
}

TEST(Silence, IsNotAPeerWhoseWindowIsClosed) {
  SilenceAt at;
  using V = SilenceWatch::Verdict;
  for (int i = 0; i < 400; ++i) ASSERT_EQ(at.judge(i * 250, {0, 5000, 0, 100'000, 200'000, 0}), V::Late);
  EXPECT_EQ(at.judge(100'100, {0, 5000, 1, 100'000, 200'000, 0}), V::Late);  // a probe is on its way
  EXPECT_EQ(at.judge(100'200, {0, 5000, 0, 10, 200'000, 0}), V::Late);       // and was answered
  EXPECT_EQ(at.judge(300'000, {0, 0, 0, 100'000, 200'000, 0}), V::Fine);     // idle
}

// A stopped process whose kernel drops what it has no room for: the segment is sent again after 1, 2, 4 … 120 s and
// each time answered.
TEST(Silence, IsNotAPeerThatRefusesTheSameSegmentOverAndOver) {
  SilenceAt at;
  using V = SilenceWatch::Verdict;
  std::uint32_t tries = 1;
  for (std::uint32_t ms = 0; ms < 600'000; ms += 250) {
    const std::uint32_t since = ms % 120'000;
    const bool onItsWay = since == 0;  // this look falls between the segment and its answer
    const LinkState state{1, 5000, 0, onItsWay ? 120'000 : since, onItsWay ? 0 : since, tries};
    if (onItsWay) ++tries;
    ASSERT_EQ(at.judge(ms, state), onItsWay ? V::Fine : V::Late) << ms;
  }
}

TEST(Silence, OfThisProcessIsNotThePeers) {
  SilenceAt at;
  using V = SilenceWatch::Verdict;
  EXPECT_EQ(at.judge(0, {1, 0, 0, 100, 0, 0}), V::Fine);
  // Stopped for a minute; the first look finds the heartbeat that has just left.
  EXPECT_EQ(at.judge(60'000, {1, 0, 0, 60'000, 0, 0}), V::Fine);
  EXPECT_EQ(at.judge(60'250, {0, 0, 0, 240, 250, 0}), V::Fine);
}

TEST(Silence, IsMadeAudibleByHeartbeatsWhenNothingElseIsWritten) {
  Settings settings;
  settings.peerTimeout = 4;
  SilenceWatch watch(settings);
  const auto start = Clock::now();
  EXPECT_FALSE(watch.heartbeatDue(true, start));
  EXPECT_FALSE(watch.heartbeatDue(false, start + std::chrono::milliseconds(900)));
  EXPECT_TRUE(watch.heartbeatDue(false, start + std::chrono::milliseconds(1000)));
  EXPECT_FALSE(watch.heartbeatDue(false, start + std::chrono::milliseconds(1500)));
}

}  // namespace
}  // namespace cgx::transport::socket
