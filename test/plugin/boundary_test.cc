// What an error becomes on its way to NCCL: a result class and exactly one WARN; nothing is thrown past the boundary.
#include "plugin/boundary.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace {

using cgx::Code;
using cgx::Status;
using cgx::plugin::Answer;
using cgx::plugin::guard;

std::vector<std::string> warnings;
void capture(cgx::log::Level, cgx::log::Subsys, const char*, int, const char* message) noexcept {
  warnings.emplace_back(message);
}

class Boundary : public ::testing::Test {
 protected:
  void SetUp() override {
    warnings.clear();
    cgx::log::setSink(&capture, cgx::log::Level::Info);
  }
  void TearDown() override { cgx::log::setSink(nullptr, cgx::log::Level::None); }
};

TEST_F(Boundary, EveryCodeHasItsResultClass) {
  EXPECT_EQ(cgx::plugin::toResult(Code::Ok), ncclSuccess);
  EXPECT_EQ(cgx::plugin::toResult(Code::Pending), ncclSuccess);
  EXPECT_EQ(cgx::plugin::toResult(Code::Invalid), ncclInvalidUsage);
  EXPECT_EQ(cgx::plugin::toResult(Code::System), ncclSystemError);
  EXPECT_EQ(cgx::plugin::toResult(Code::Remote), ncclRemoteError);
  EXPECT_EQ(cgx::plugin::toResult(Code::Timeout), ncclRemoteError);
  EXPECT_EQ(cgx::plugin::toResult(Code::Unsupported), ncclInternalError);
  EXPECT_EQ(cgx::plugin::toResult(Code::Internal), ncclInternalError);
}

TEST_F(Boundary, AnErrorHasOneWarningWithOperationAndCause) {
  EXPECT_EQ(guard("isend", []() -> Answer { return Status::system("writev to 10.0.0.2:7", 104); }), ncclSystemError);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], "isend: writev to 10.0.0.2:7: Connection reset by peer (errno 104)");
}

TEST_F(Boundary, SuccessAndPendingAndARepeatedErrorSayNothing) {
  EXPECT_EQ(guard("test", []() -> Answer { return {}; }), ncclSuccess);
  EXPECT_EQ(guard("test", []() -> Answer { return Status::pending(); }), ncclSuccess);
  EXPECT_EQ(guard("test", []() -> Answer { return Answer(Status::remote("gone")).repeated(); }), ncclRemoteError);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(Boundary, ABadArgumentIsToldFromABadUse) {
  EXPECT_EQ(guard("listen", []() -> Answer { return Answer::badArgument("no handle"); }), ncclInvalidArgument);
}

TEST_F(Boundary, NoExceptionGetsOut) {
  EXPECT_EQ(guard("a", []() -> Answer { throw std::bad_alloc(); }), ncclSystemError);
  EXPECT_EQ(guard("b", []() -> Answer { throw std::runtime_error("odd %s%n"); }), ncclInternalError);
  EXPECT_EQ(guard("c", []() -> Answer { throw 7; }), ncclInternalError);
  ASSERT_EQ(warnings.size(), 3U);
  EXPECT_EQ(warnings[1], "b: unexpected: odd %s%n");  // text from elsewhere is never a format
}

}  // namespace
