// When the ends of single streams become the end of the connection.
#include "transport/socket/exchange.h"

#include <gtest/gtest.h>

#include <memory>

namespace cgx::transport::socket {
namespace {

struct Fixture : ::testing::Test {
  std::unique_ptr<Exchange> exchange = std::make_unique<Exchange>(2);
  Clock::time_point start = Clock::now();
  std::array<std::byte, 16> memory;
  Completion completion;
  void SetUp() override {
    const Slot slot{memory, 0};
    ASSERT_TRUE(exchange->postReceive({&slot, 1}, completion).ok());  // so that an end concerns somebody
  }
};
using StreamsThatEnd = Fixture;

TEST_F(StreamsThatEnd, AGoodbyeOnOneLeavesTheOtherAllTheTimeItNeedsForItsData) {
  exchange->streamEnded(Status::remote("closed by the peer"), true, start);
  EXPECT_FALSE(exchange->verdict(start + std::chrono::hours(1)).has_value());
  exchange->streamEnded(Status::remote("closed by the peer"), true, start);
  EXPECT_TRUE(exchange->verdict(start).has_value());
}

TEST_F(StreamsThatEnd, ABreakOfOneIsTheEndSoonAfter) {
  exchange->streamEnded(Status::remote("connection lost"), false, start);
  EXPECT_FALSE(exchange->verdict(start + std::chrono::milliseconds(100)).has_value());
  EXPECT_TRUE(exchange->verdict(start + std::chrono::seconds(2)).has_value());
}

TEST_F(StreamsThatEnd, ABreakAfterAGoodbyeIsTheReason) {
  exchange->streamEnded(Status::remote("closed by the peer"), true, start);
  exchange->streamEnded(Status::remote("connection lost"), false, start);
  const auto end = exchange->verdict(start);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->text(), "connection lost");
}

}  // namespace
}  // namespace cgx::transport::socket
