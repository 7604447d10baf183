// The contract of transport.h, part 1: messages arrive whole, in order, where they belong.
#include <algorithm>
#include <deque>
#include <random>

#include "contract/transport_fixture.h"

namespace cgx::transport {
namespace {

class TransportMessages : public TransportContract {};

TEST_P(TransportMessages, ArriveBitExactAtEverySize) {
  connect();
  for (const std::size_t size : {0,      1,      7,      8,       63,      64,      65,      4095,           4096,
                                 8127,   8128,   8129,   8192,    32767,   32768,   32769,   65536,          131071,
                                 131072, 131073, 262144, 1048575, 1048576, 1048577, 3 << 20, (16 << 20) + 13}) {
    const auto data = pattern(size, size + 1);
    std::vector<std::byte> room(size + 16, std::byte{0xee});
    Waiter sent, got;
    ASSERT_TRUE(post(*b_, std::span(room).first(size), got).ok());
    ASSERT_TRUE(a_->send(data, 0, Priority::Normal, sent).ok());
    ASSERT_TRUE(got.wait()) << size;
    ASSERT_TRUE(sent.wait()) << size;
    ASSERT_TRUE(got.status().ok()) << got.status().text();
    EXPECT_EQ(got.sizes[0], size);
    EXPECT_EQ(sent.sizes[0], size);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), room.begin())) << size;
    EXPECT_TRUE(std::all_of(room.end() - 16, room.end(), [](std::byte b) { return b == std::byte{0xee}; })) << size;
  }
}

TEST_P(TransportMessages, FlowInBothDirectionsAtOnce) {
  connect();
  const auto fromA = pattern(8 << 20, 1), fromB = pattern(9 << 20, 2);
  std::vector<std::byte> atA(fromB.size()), atB(fromA.size());
  Waiter sentA, sentB, gotA, gotB;
  ASSERT_TRUE(a_->send(fromA, 0, Priority::Normal, sentA).ok());
  ASSERT_TRUE(b_->send(fromB, 0, Priority::Normal, sentB).ok());
  ASSERT_TRUE(post(*a_, atA, gotA).ok());
  ASSERT_TRUE(post(*b_, atB, gotB).ok());
  ASSERT_TRUE(gotA.wait() && gotB.wait() && sentA.wait() && sentB.wait());
  EXPECT_TRUE(atA == fromB);
  EXPECT_TRUE(atB == fromA);
}

TEST_P(TransportMessages, MayBeSentBeforeTheirReceiveIsPosted) {
  connect();
  for (const std::size_t size : {std::size_t{1}, std::size_t{8} << 20}) {
    const auto data = pattern(size, 3);
    std::vector<std::byte> room(size);
    Waiter sent, got;
    ASSERT_TRUE(a_->send(data, 5, Priority::Normal, sent).ok());
    std::this_thread::sleep_for(milliseconds(20));
    ASSERT_TRUE(post(*b_, room, got, 5).ok());
    ASSERT_TRUE(got.wait() && sent.wait());
    EXPECT_TRUE(room == data);
  }
}

TEST_P(TransportMessages, ReportTheTrueSizeAndLeaveTheRestOfALargerSlotAlone) {
  connect();
  std::vector<std::byte> room(1 << 20, std::byte{0xcc});
  const auto data = pattern(10, 4);
  Waiter sent, got;
  ASSERT_TRUE(post(*b_, room, got).ok());
  ASSERT_TRUE(a_->send(data, 0, Priority::Normal, sent).ok());
  ASSERT_TRUE(got.wait() && sent.wait());
  EXPECT_EQ(got.sizes[0], 10u);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), room.begin()));
  EXPECT_TRUE(std::all_of(room.begin() + 10, room.end(), [](std::byte b) { return b == std::byte{0xcc}; }));
}

TEST_P(TransportMessages, KeepOrderInARandomMixOfSizesWithEmptyOnes) {
  connect();
  std::mt19937 random(7);
  constexpr int kCount = 1000;
  std::deque<std::vector<std::byte>> sent, room;
  std::deque<Waiter> out(kCount), in(kCount);
  for (int i = 0; i < kCount; ++i) {
    const std::size_t size = random() % 3 == 0 ? 0 : random() % 30000;
    sent.push_back(pattern(size, static_cast<std::uint64_t>(i)));
    room.emplace_back(size);
  }
  int posted = 0, received = 0;
  const auto end = Clock::now() + seconds(60);
  while (received < kCount && Clock::now() < end) {
    if (posted < kCount) {
      const auto i = static_cast<std::size_t>(posted);
      const Status status =
          a_->send(sent[i].empty() ? std::span<const std::byte>() : std::span<const std::byte>(sent[i]), 0,
                   Priority::Normal, out[i]);
      ASSERT_TRUE(status.ok() || status.isPending()) << status.text();
      posted += status.ok();
    }
    if (received < kCount) {
      const auto i = static_cast<std::size_t>(received);
      const Status status = post(*b_, room[i], in[i]);
      ASSERT_TRUE(status.ok() || status.isPending()) << status.text();
      received += status.ok();
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(in[i].wait() && out[i].wait()) << i;
    ASSERT_TRUE(in[i].status().ok());
    ASSERT_EQ(in[i].sizes[0], sent[i].size()) << i;
    ASSERT_TRUE(room[i] == sent[i]) << i;
  }
}

TEST_P(TransportMessages, FillAGroupInAnyOrderAndCompleteItOnce) {
  connect();
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::vector<std::byte>> data, room;
    std::vector<Slot> slots;
    for (int i = 0; i < kMaxGroup; ++i) {
      const std::size_t size = round % 4 == 0 ? random() % (512 << 10) : random() % 3 == 0 ? 0 : random() % 9000;
      data.push_back(pattern(size, static_cast<std::uint64_t>(round * 8 + i)));
      room.emplace_back(size + random() % 2);
    }
    for (int i = 0; i < kMaxGroup; ++i) slots.push_back({room[static_cast<std::size_t>(i)], i});
    std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6, 7};
    std::shuffle(order.begin(), order.end(), random);
    std::deque<Waiter> sent(kMaxGroup);
    Waiter got;
    if (round % 2 == 0) {
      ASSERT_TRUE(b_->recv(slots, got).ok());
    }
    for (std::size_t n = 0; n < order.size(); ++n) {
      EXPECT_FALSE(got.told());
      ASSERT_TRUE(a_->send(data[order[n]], static_cast<int>(order[n]), Priority::Normal, sent[n]).ok());
    }
    if (round % 2 == 1) {
      ASSERT_TRUE(b_->recv(slots, got).ok());
    }
    ASSERT_TRUE(got.wait());
    for (auto& waiter : sent) ASSERT_TRUE(waiter.wait());
    for (std::size_t i = 0; i < kMaxGroup; ++i) {
      ASSERT_EQ(got.sizes[i], data[i].size());
      ASSERT_TRUE(std::equal(data[i].begin(), data[i].end(), room[i].begin()));
    }
    ASSERT_EQ(got.times(), 1);
  }
}

TEST_P(TransportMessages, MatchByTagWhenSingleAndGroupedReceivesAlternate) {
  connect();
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<std::byte>> room(9, std::vector<std::byte>(64));
    std::vector<Slot> slots;
    for (int i = 0; i < kMaxGroup; ++i) slots.push_back({room[static_cast<std::size_t>(i)], i});
    Waiter single, group;
    ASSERT_TRUE(b_->recv(slots, group).ok());
    ASSERT_TRUE(post(*b_, room[8], single, 8).ok());
    std::deque<Waiter> sent(9);
    for (int tag = 8; tag >= 0; --tag) {
      const auto data = pattern(static_cast<std::size_t>(tag) + 1, 1);
      ASSERT_TRUE(a_->send(data, tag, Priority::Normal, sent[static_cast<std::size_t>(tag)]).ok());
      ASSERT_TRUE(sent[static_cast<std::size_t>(tag)].wait());
    }
    ASSERT_TRUE(single.wait() && group.wait());
    EXPECT_EQ(single.sizes[0], 9u);
    for (std::size_t i = 0; i < kMaxGroup; ++i) EXPECT_EQ(group.sizes[i], i + 1);
  }
}

TEST_P(TransportMessages, FillPendingReceivesOnOneBufferOldestFirst) {
  connect();
  std::vector<std::byte> room(256);
  std::deque<Waiter> got(kMaxReceives + 1);
  for (std::size_t i = 0; i < kMaxReceives; ++i) ASSERT_TRUE(post(*b_, room, got[i]).ok());
  EXPECT_TRUE(post(*b_, room, got[kMaxReceives]).isPending());
  for (std::size_t i = 0; i < kMaxReceives; ++i) {
    const auto data = pattern(i + 1, i);
    Waiter sent;
    ASSERT_TRUE(a_->send(data, 0, Priority::Normal, sent).ok());
    ASSERT_TRUE(got[i].wait() && sent.wait());
    EXPECT_EQ(got[i].sizes[0], i + 1);
    if (i + 1 < kMaxReceives) {
      EXPECT_FALSE(got[i + 1].told());
    }
  }
}

// A progress thread leaves a stream after some megabytes for the others to have their turn, perhaps in the middle of
// the last frame that there is. The limit is far from what a message takes and below what heartbeats would bring about.
TEST_P(TransportMessages, ArriveWithoutWaitingForAnyOtherTraffic) {
  settings_.progressThreads = 2;  // one for each end, so that the reader empties what the writer fills
  settings_.checksum = false;     // as fast as it can
  build(Settings(settings_));
  connect();
  std::mt19937 random(3);
  const auto data = pattern(16 << 20, 3);
  std::vector<std::byte> room(data.size());
  for (int i = 0; i < 120; ++i) {
    const std::size_t size = (5 << 20) + random() % (11 << 20);
    Waiter sent, got;
    ASSERT_TRUE(post(*b_, room, got).ok());
    ASSERT_TRUE(a_->send(std::span(data).first(size), 0, Priority::Normal, sent).ok());
    ASSERT_TRUE(got.wait(seconds(5)) && sent.wait(seconds(5))) << i << ": " << size << " bytes";
  }
}

TEST_P(TransportMessages, AnswerPendingWhenTheTableOfSendsIsFullAndGoOnWhenOneIsDone) {
  connect();
  const auto data = pattern(16, 5);
  std::deque<Waiter> sent(kMaxSends + 1);
  for (std::size_t i = 0; i < kMaxSends; ++i) ASSERT_TRUE(a_->send(data, 0, Priority::Normal, sent[i]).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(a_->send(data, 0, Priority::Normal, sent[kMaxSends]).isPending());
  std::vector<std::byte> room(16);
  Waiter got;
  ASSERT_TRUE(post(*b_, room, got).ok());
  ASSERT_TRUE(got.wait() && sent[0].wait());
  EXPECT_TRUE(a_->send(data, 0, Priority::Normal, sent[kMaxSends]).ok());
  a_->close({});  // tells the rest, before they go
}

TEST_P(TransportMessages, LeaveAReceiveThatNobodyFillsBehindWithoutStoppingOthers) {
  connect();
  std::vector<std::byte> never(8), room(8);
  Waiter stuck;
  ASSERT_TRUE(post(*b_, never, stuck, 99).ok());
  const auto data = pattern(8, 6);
  for (int i = 0; i < 500; ++i) {
    Waiter sent, got;
    ASSERT_TRUE(post(*b_, room, got, 1).ok());
    ASSERT_TRUE(a_->send(data, 1, Priority::Normal, sent).ok());
    ASSERT_TRUE(got.wait() && sent.wait());
  }
  EXPECT_FALSE(stuck.told());
  b_->close({});
  EXPECT_TRUE(stuck.told());
}

TEST_P(TransportMessages, LeaveEarlierWithHighPriority) {
  connect();
  constexpr std::size_t kBig = 32 << 20;
  const auto big = pattern(kBig, 1), small = pattern(64, 2);
  std::vector<std::byte> bigRoom(kBig), smallRoom(64);
  Waiter sentBig, sentSmall, gotBig, gotSmall;
  ASSERT_TRUE(post(*b_, bigRoom, gotBig, 1).ok());
  ASSERT_TRUE(post(*b_, smallRoom, gotSmall, 2).ok());
  std::this_thread::sleep_for(milliseconds(20));  // both receives are known to the sender
  ASSERT_TRUE(a_->send(big, 1, Priority::Normal, sentBig).ok());
  ASSERT_TRUE(a_->send(small, 2, Priority::High, sentSmall).ok());
  ASSERT_TRUE(gotSmall.wait() && gotBig.wait() && sentBig.wait() && sentSmall.wait());
  EXPECT_LT(gotSmall.when(), gotBig.when());
}

/// Posts its own successor, as the contract allows, so that a chain of any length must not grow the stack.
struct Chain : Completion {
  explicit Chain(Connection& connection) : to(connection) {
    done = [](Completion* self, const Status& status) noexcept {
      auto& chain = *static_cast<Chain*>(self);
      if (status.ok() && --chain.left > 0 && chain.next()) return;
      chain.over = true;
    };
  }
  bool next() { return to.send(data, 0, Priority::Normal, *this).ok(); }
  Connection& to;
  std::vector<std::byte> data = pattern(64, 9);
  int left = 20000;
  std::atomic<bool> over{false};
};

TEST_P(TransportMessages, MayBePostedFromTheCompletionOfThePrevious) {
  connect();
  Chain chain(*a_);
  // One buffer each: with several streams two of them may be filled at the same time.
  std::array<std::array<std::byte, 64>, kMaxReceives> room;
  std::deque<Waiter> got(kMaxReceives);
  for (std::size_t i = 0; i < kMaxReceives; ++i) ASSERT_TRUE(post(*b_, room[i], got[i]).ok());
  ASSERT_TRUE(chain.next());
  for (std::size_t i = 0; i < 20000; ++i) {
    Waiter& waiter = got[i % kMaxReceives];
    ASSERT_TRUE(waiter.wait()) << i;
    waiter.reset();
    if (i + kMaxReceives < 20000) {
      ASSERT_TRUE(post(*b_, room[i % kMaxReceives], waiter).ok());
    }
  }
  const auto end = Clock::now() + seconds(5);
  while (!chain.over && Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(chain.left, 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportMessages,
                         ::testing::Values(loopbackSocket(1, 1), loopbackSocket(2, 1), loopbackSocket(4, 2)), nameOf);

}  // namespace
}  // namespace cgx::transport
