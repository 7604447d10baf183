#include "cgx/status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace cgx {
namespace {

Status leaveEarly(Status inner, bool* reached) {
  CGX_TRY(std::move(inner));
  *reached = true;
  return {};
}

TEST(Status, OkAndPendingAreNotFailures) {
  EXPECT_TRUE(Status().ok());
  EXPECT_FALSE(Status().failed());
  EXPECT_TRUE(Status::pending().isPending());
  EXPECT_FALSE(Status::pending().ok());
  EXPECT_FALSE(Status::pending().failed());
}

TEST(Status, SystemErrorNamesTheReason) {
  const Status s = Status::system("connect to 10.0.0.2:4711", ECONNREFUSED);
  EXPECT_EQ(s.code(), Code::System);
  EXPECT_EQ(s.sysErrno(), ECONNREFUSED);
  EXPECT_EQ(s.text(), "connect to 10.0.0.2:4711: Connection refused (errno 111)");
}

TEST(Status, WithinAddsContextToErrorsOnly) {
  EXPECT_EQ(Status::invalid("count differs").within("operation 7").text(), "operation 7: count differs");
  EXPECT_TRUE(Status::pending().within("operation 7").isPending());
  EXPECT_TRUE(Status().within("operation 7").ok());
}

TEST(Status, TryLeavesOnPendingAndOnErrors) {
  bool reached = false;
  EXPECT_TRUE(leaveEarly(Status::pending(), &reached).isPending());
  EXPECT_EQ(leaveEarly(Status::remote("gone"), &reached).code(), Code::Remote);
  EXPECT_FALSE(reached);
  EXPECT_TRUE(leaveEarly({}, &reached).ok());
  EXPECT_TRUE(reached);
}

TEST(Result, HoldsEitherAValueOrTheReason) {
  const Result<int> good(3);
  const Result<int> bad(Status::invalid("no"));
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.value(), 3);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::Invalid);
}

}  // namespace
}  // namespace cgx
