// What the process's communicators count together.
#include "plugin/totals.h"

#include <gtest/gtest.h>

#include <memory>

namespace cgx::plugin {
namespace {

class FakeCommunicator : public collective::Communicator {
 public:
  collective::Counters now;

  Status registerMemory(void*, std::size_t, void**) override { return {}; }
  Status deregisterMemory(void*) override { return {}; }
  Status allReduce(const void*, void*, std::size_t, codec::DType, collective::Request**) override { return {}; }
  Status allGather(const void*, std::span<const collective::Part>, std::size_t, std::size_t, std::size_t,
                   collective::Request**) override {
    return {};
  }
  Status reduceScatter(std::span<const collective::Part>, void*, std::size_t, std::size_t, std::size_t, codec::DType,
                       collective::Request**) override {
    return {};
  }
  Status test(collective::Request*, std::size_t*) override { return {}; }
  collective::Counters counters() const override { return now; }
  void close() noexcept override {}
};

TEST(Totals, AddLivingAndClosedCommunicatorsWithWhatAnExactAllReduceHadSent) {
  const CgxTotals before = Counted::all();
  FakeCommunicator two;
  FakeCommunicator four;
  auto countedTwo = std::make_unique<Counted>(two, 2);
  auto countedFour = std::make_unique<Counted>(four, 4);
  two.now = {.operations = 3, .inputBytes = 1000, .wireBytes = 140};
  four.now = {.operations = 5, .inputBytes = 4000, .wireBytes = 900};
  CgxTotals now = Counted::all();
  EXPECT_EQ(now.operations - before.operations, 8U);
  EXPECT_EQ(now.inputBytes - before.inputBytes, 5000U);
  EXPECT_EQ(now.exactBytes - before.exactBytes, 1000U + 6000U);
  EXPECT_EQ(now.wireBytes - before.wireBytes, 1040U);
  countedTwo.reset();
  two.now.operations = 1000;  // nobody counts it any more
  four.now.operations = 6;
  now = Counted::all();
  EXPECT_EQ(now.operations - before.operations, 9U);
  countedFour.reset();
  EXPECT_EQ(Counted::all().operations - before.operations, 9U);
}

TEST(Totals, ExactBytesNeitherOverflowNorLoseMuch) {
  const CgxTotals before = Counted::all();
  FakeCommunicator many;
  const Counted counted(many, 1000);
  many.now.inputBytes = std::uint64_t{1} << 60;
  const double sent = static_cast<double>(Counted::all().exactBytes - before.exactBytes);
  EXPECT_NEAR(sent / (2.0 * 999 / 1000 * 0x1p60), 1, 1e-12);
}

}  // namespace
}  // namespace cgx::plugin
