// The contract of transport.h, part 2: how connections end, and what is still true when they have.
#include <sys/socket.h>

#include <algorithm>
#include <deque>

#include "contract/transport_fixture.h"

namespace cgx::transport {
namespace {

class TransportEnds : public TransportContract {};

/// Posts until the error shows; the post that was refused is not told.
Status firstError(Connection& connection) {
  static std::array<std::byte, 8> data;
  const auto end = Clock::now() + seconds(5);
  std::deque<Waiter> waiters;
  Status status;
  while (!status.failed() && Clock::now() < end) {
    status = connection.send(data, 77, Priority::Normal, waiters.emplace_back());
    std::this_thread::sleep_for(milliseconds(1));
  }
  // Another thread may be telling the earlier ones at this moment.
  for (std::size_t i = 0; i + 1 < waiters.size(); ++i) EXPECT_TRUE(waiters[i].wait(seconds(5)));
  EXPECT_FALSE(waiters.back().told());
  return status;
}

TEST_P(TransportEnds, AMessageLongerThanItsSlotFailsBothEndsNamingBothSizes) {
  for (const bool sendFirst : {false, true}) {
    connect();
    std::vector<std::byte> data = pattern(1 << 20, 1), room(16, std::byte{0xdd});
    Waiter sent, got;
    Status status;
    if (sendFirst) status = a_->send(data, 0, Priority::Normal, sent);
    ASSERT_TRUE(post(*b_, std::span(room).first(10), got).ok());
    if (!sendFirst) {
      std::this_thread::sleep_for(milliseconds(50));  // for the announcement to arrive
      status = a_->send(data, 0, Priority::Normal, sent);
    }
    // Refused at once where the announcement was there, told else.
    if (status.ok()) {
      ASSERT_TRUE(sent.wait());
      status = sent.status();
    }
    EXPECT_EQ(status.code(), Code::Invalid);
    ASSERT_TRUE(got.wait(seconds(2)));
    for (const Status& end : {got.status(), a_->status(), b_->status()}) {
      EXPECT_EQ(end.code(), Code::Invalid) << end.text();
      EXPECT_NE(end.text().find("1048576"), std::string::npos) << end.text();
      EXPECT_NE(end.text().find("10 bytes"), std::string::npos) << end.text();
    }
    EXPECT_TRUE(std::all_of(room.begin(), room.end(), [](std::byte b) { return b == std::byte{0xdd}; }));
    a_.reset(), b_.reset();
  }
}

TEST_P(TransportEnds, ClosingTellsEverythingOutstandingOnBothSides) {
  connect();
  std::vector<std::byte> data = pattern(64, 1), room(64);
  std::deque<Waiter> sends(40), receives(20), there(3);
  for (Waiter& waiter : sends) ASSERT_TRUE(a_->send(data, 5, Priority::Normal, waiter).ok());
  for (Waiter& waiter : receives) ASSERT_TRUE(post(*a_, room, waiter, 6).ok());
  for (Waiter& waiter : there) ASSERT_TRUE(post(*b_, room, waiter, 7).ok());
  const auto begin = Clock::now();
  a_->close({});
  EXPECT_LT(Clock::now() - begin, seconds(4));
  for (const auto* list : {&sends, &receives}) {
    for (const Waiter& waiter : *list) {
      ASSERT_TRUE(waiter.told());
      EXPECT_TRUE(waiter.status().failed());
    }
  }
  for (const Waiter& waiter : there) {
    ASSERT_TRUE(waiter.wait(seconds(5)));
    EXPECT_EQ(waiter.status().code(), Code::Remote) << waiter.status().text();
  }
}

TEST_P(TransportEnds, TheReasonOfACloseReachesThePeerAsRemote) {
  connect();
  std::vector<std::byte> room(64);
  Waiter got;
  ASSERT_TRUE(post(*b_, room, got).ok());
  a_->close(Status::internal("out of %s and patience"));
  ASSERT_TRUE(got.wait(seconds(5)));
  EXPECT_EQ(got.status().code(), Code::Remote);
  EXPECT_NE(got.status().text().find("out of %s and patience"), std::string::npos) << got.status().text();
}

TEST_P(TransportEnds, AGoodbyeIsAnErrorOnlyForWhoPostsAgain) {
  connect();
  a_->close({});
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE(b_->status().ok()) << b_->status().text();
  const Status status = firstError(*b_);
  EXPECT_EQ(status.code(), Code::Remote);
  EXPECT_NE(status.text().find("closed"), std::string::npos) << status.text();
}

TEST_P(TransportEnds, ErrorsAreStickyAndComeAtOnce) {
  connect();
  a_->close(Status::internal("broken"));
  const Status first = firstError(*b_);
  ASSERT_TRUE(first.failed());
  std::array<std::byte, 8> room;
  Waiter waiter;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(post(*b_, room, waiter).text(), first.text());
    EXPECT_EQ(b_->send(room, 0, Priority::High, waiter).text(), first.text());
    EXPECT_EQ(b_->status().text(), first.text());
  }
  EXPECT_FALSE(waiter.told());
}

TEST_P(TransportEnds, PostsAfterOwnCloseFail) {
  connect();
  a_->close({});
  a_->close(Status::internal("twice is fine"));
  std::array<std::byte, 8> room;
  Waiter waiter;
  EXPECT_TRUE(post(*a_, room, waiter).failed());
  EXPECT_TRUE(a_->send(room, 0, Priority::Normal, waiter).failed());
}

TEST_P(TransportEnds, DataOfCompletedSendsIsDeliveredAfterTheSenderClosed) {
  for (int round = 0; round < 20; ++round) {
    connect();
    // Also the other way there is traffic, so that the closing side has unread input.
    std::deque<Waiter> out(24), in(24), back(24), backIn(24);
    std::vector<std::vector<std::byte>> data, room;
    std::vector<std::byte> sink(8192);
    const std::vector<std::byte> source(8000);
    for (std::size_t i = 0; i < out.size(); ++i) {
      data.push_back(pattern(i * 1000, i));
      room.emplace_back(i * 1000);
    }
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(post(*b_, room[i], in[i]).ok());
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(post(*a_, sink, backIn[i], 1).ok());
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(b_->send(source, 1, Priority::Normal, back[i]).ok());
      ASSERT_TRUE(a_->send(data[i], 0, Priority::Normal, out[i]).ok());
    }
    for (Waiter& waiter : out) ASSERT_TRUE(waiter.wait());
    a_->close({});
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_TRUE(in[i].wait());
      ASSERT_TRUE(in[i].status().ok()) << round << " " << i << " " << in[i].status().text();
      ASSERT_TRUE(room[i] == data[i]);
    }
    b_->close({});
  }
}

TEST_P(TransportEnds, NoMemoryIsTouchedAfterCloseReturns) {
  for (int round = 0; round < 12; ++round) {
    connect();
    const auto data = pattern(2 << 20, 1);
    std::vector<std::byte> room(data.size());
    std::deque<Waiter> sent(4), got(4);
    for (Waiter& waiter : got) ASSERT_TRUE(post(*b_, room, waiter).ok());
    for (Waiter& waiter : sent) ASSERT_TRUE(a_->send(data, 0, Priority::Normal, waiter).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(round * 200));
    b_->close({});
    std::fill(room.begin(), room.end(), std::byte{0xab});
    for (const Waiter& waiter : got) ASSERT_TRUE(waiter.told());
    std::this_thread::sleep_for(milliseconds(2));
    ASSERT_TRUE(std::all_of(room.begin(), room.end(), [](std::byte b) { return b == std::byte{0xab}; })) << round;
    a_->close({});
    for (const Waiter& waiter : sent) ASSERT_TRUE(waiter.told());
  }
}

/// Closes the connection from inside its first completion.
struct Closer : Waiter {
  explicit Closer(Connection& connection) : to(connection) {
    done = [](Completion* self, const Status& status) noexcept {
      auto& closer = *static_cast<Closer*>(self);
      closer.to.close(Status::internal("from inside"));
      closer.code = status.code();
      closer.finished.store(true);
    };
  }
  Connection& to;
  Code code = Code::Pending;
  std::atomic<bool> finished{false};
};

TEST_P(TransportEnds, ACompletionMayClose) {
  connect();
  std::vector<std::byte> data = pattern(100, 1), room(100), other(100);
  Closer closer(*b_);
  Waiter sent, outstanding;
  ASSERT_TRUE(post(*b_, room, closer, 0).ok());
  ASSERT_TRUE(post(*b_, other, outstanding, 1).ok());
  ASSERT_TRUE(a_->send(data, 0, Priority::Normal, sent).ok());
  ASSERT_TRUE(outstanding.wait(seconds(5)) && sent.wait(seconds(5)));
  const auto end = Clock::now() + seconds(5);
  while (!closer.finished && Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(closer.code, Code::Ok);
  EXPECT_EQ(outstanding.status().code(), Code::Internal);
}

TEST_P(TransportEnds, OneConnectionFailingLeavesOthersAlone) {
  connect();
  Ends other = join(*transport_, *listener_, {});
  const auto data = pattern(100000, 1);
  std::vector<std::byte> room(data.size());
  a_->close(Status::internal("gone"));
  for (int i = 0; i < 50; ++i) {
    Waiter sent, got;
    ASSERT_TRUE(post(*other.acceptor, room, got).ok());
    ASSERT_TRUE(other.dialer->send(data, 0, Priority::Normal, sent).ok());
    ASSERT_TRUE(got.wait() && sent.wait());
    ASSERT_TRUE(got.status().ok() && room == data);
  }
  EXPECT_TRUE(firstError(*b_).failed());
}

TEST_P(TransportEnds, PostsMayRaceWithCloseAndWithEachOther) {
  for (int round = 0; round < 10; ++round) {
    connect();
    std::atomic<bool> stop{false};
    const auto poster = [&](Connection& connection) {
      std::deque<Waiter> waiters;
      const std::vector<std::byte> mine(3000);
      std::deque<std::vector<std::byte>> room;
      for (int i = 0; i < 2000 && !stop; ++i) {
        Waiter& waiter = waiters.emplace_back();
        const Status status = i % 2 == 0 ? post(connection, room.emplace_back(3000), waiter)
                                         : connection.send(mine, 0, Priority::Normal, waiter);
        if (!status.ok()) waiters.pop_back();
        if (status.isPending()) std::this_thread::yield();
      }
      for (const Waiter& waiter : waiters) ASSERT_TRUE(waiter.wait());
    };
    std::thread one([&] { poster(*a_); }), two([&] { poster(*b_); });
    std::this_thread::sleep_for(milliseconds(3));
    a_->close({});
    stop = true;
    b_->close({});
    one.join(), two.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportEnds,
                         ::testing::Values(loopbackSocket(1, 1), loopbackSocket(2, 1), loopbackSocket(4, 2)), nameOf);

}  // namespace
}  // namespace cgx::transport
