// One scenario through every version's own table: what NCCL chooses once the tuner has had its say.
#include "test/plugin/tuner_driver.h"

namespace cgx::test {
namespace {

constexpr std::size_t kSmall = 16 << 10;
constexpr std::size_t kLarge = 64 << 20;
constexpr double kGigabit = 0.12;
constexpr double kTenGigabit = 1.2;
constexpr Pick kChainPick{kChain, kSimple};

template <class T>
struct TunerVersionsTest : ::testing::Test {};
TYPED_TEST_SUITE(TunerVersionsTest, TunerVersions);

template <class Tuner>
struct Job {
  explicit Job(Environment::Values values, std::size_t ranks = 4, std::size_t nodes = 4) : environment(values) {
    Captured::clear();
    EXPECT_EQ(tuner.init(ranks, nodes), ncclSuccess);
  }
  ~Job() { EXPECT_EQ(tuner.end(tuner.context), ncclSuccess); }
  Environment environment;
  Library library{CGX_LIBRARY};
  TunerDriver<Tuner> tuner{library};
};

bool isOwn(std::optional<Pick> pick) { return pick && (pick->first == kRing || pick->first == kTree); }

TYPED_TEST(TunerVersionsTest, EverySlotIsFilledAndTheNameIsOneWord) {
  const Library library(CGX_LIBRARY);
  const auto* table = library.symbol<const TypeParam>(TunerVersion<TypeParam>::kSymbol);
  ASSERT_NE(table, nullptr);
  EXPECT_STREQ(table->name, "CGX");
  const auto* slots = reinterpret_cast<void* const*>(table);
  for (std::size_t i = 0; i < sizeof *table / sizeof(void*); ++i) EXPECT_NE(slots[i], nullptr) << "slot " << i;
}

TYPED_TEST(TunerVersionsTest, LargeAllReducesOfTheWholeJobGoToCollnet) {
  Job<TypeParam> job(test::job("4"));
  for (const double link : {kGigabit, kTenGigabit})
    EXPECT_EQ(job.tuner.choice(ncclFuncAllReduce, kLarge, ncclCosts(kLarge, link, 4)), kChainPick) << link;
}

TYPED_TEST(TunerVersionsTest, SmallAllReducesStayWithWhatNcclHasWithoutUs) {
  Job<TypeParam> job(test::job("4"));
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1000}, kSmall, std::size_t{32} << 10})
    EXPECT_TRUE(isOwn(job.tuner.choice(ncclFuncAllReduce, bytes, ncclCosts(bytes, kTenGigabit, 4)))) << bytes;
}

TYPED_TEST(TunerVersionsTest, OtherCommunicatorsThanTheJobsStayWithWhatNcclHasWithoutUs) {
  Job<TypeParam> job(test::job("8"));
  EXPECT_TRUE(isOwn(job.tuner.choice(ncclFuncAllReduce, kLarge, ncclCosts(kLarge, kGigabit, 4))));
}

TYPED_TEST(TunerVersionsTest, AllCommunicatorsCountWhenTheUserSaysSo) {
  Job<TypeParam> job(test::job("8", {{"CGX_COMMS", "all"}}));
  EXPECT_EQ(job.tuner.choice(ncclFuncAllReduce, kLarge, ncclCosts(kLarge, kGigabit, 4)), kChainPick);
}

TYPED_TEST(TunerVersionsTest, AlwaysMeansEveryAllReduceAboveTheLimit) {
  Job<TypeParam> job(test::job("4", {{"CGX_MODE", "always"}}));
  const std::size_t above = (32 << 10) + 4;
  EXPECT_EQ(job.tuner.choice(ncclFuncAllReduce, above, ncclCosts(above, 12, 4)), kChainPick);
  EXPECT_TRUE(isOwn(job.tuner.choice(ncclFuncAllReduce, kSmall, ncclCosts(kSmall, 12, 4))));
}

TYPED_TEST(TunerVersionsTest, OffMeansNone) {
  Job<TypeParam> job(test::job("4", {{"CGX_MODE", "off"}}));
  EXPECT_TRUE(isOwn(job.tuner.choice(ncclFuncAllReduce, kLarge, ncclCosts(kLarge, kGigabit, 4))));
}

TYPED_TEST(TunerVersionsTest, AllGathersAndReduceScattersStayWithTheRing) {
  Job<TypeParam> job(test::job("4"));
  for (const ncclFunc_t func : {ncclFuncAllGather, ncclFuncReduceScatter}) {
    Costs costs = nothingOffered();
    costs[kRing][kLl] = 60;
    costs[kRing][kSimple] = 90;
    costs[kDirect][kSimple] = 20;
    costs[kNvls][kSimple] = 10;
    const auto pick = job.tuner.choice(func, 1 << 20, costs);
    ASSERT_TRUE(pick);
    EXPECT_EQ(pick->first, kRing);
  }
}

TYPED_TEST(TunerVersionsTest, WithoutCollnetNothingChanges) {
  Job<TypeParam> job(test::job("4", {{"CGX_MODE", "always"}}));
  Costs costs = ncclCosts(kLarge, kGigabit, 4);
  costs[kChain][kSimple] = -1;
  const Costs before = costs;
  EXPECT_EQ(job.tuner.ask(ncclFuncAllReduce, kLarge, costs), ncclSuccess);
  EXPECT_EQ(costs, before);
}

TYPED_TEST(TunerVersionsTest, SizesBeyondFourGibibytesFallUnderTheSameRule) {
  Job<TypeParam> job(test::job("4"));
  for (const std::size_t bytes : {(std::size_t{1} << 32) - 1, std::size_t{1} << 32, std::size_t{1} << 40})
    EXPECT_EQ(job.tuner.choice(ncclFuncAllReduce, bytes, ncclCosts(bytes, kTenGigabit, 4)), kChainPick) << bytes;
}

TYPED_TEST(TunerVersionsTest, TheNumberOfChannelsIsLeftToNccl) {
  Job<TypeParam> job(test::job("4"));
  for (const std::size_t bytes : {kSmall, kLarge}) {
    int channels = 0x5a5a;
    Costs costs = ncclCosts(bytes, kGigabit, 4);
    EXPECT_EQ(job.tuner.ask(ncclFuncAllReduce, bytes, costs, 1, &channels), ncclSuccess);
    EXPECT_EQ(channels, 0x5a5a);
  }
}

// First thing in the process: nothing of net has been called.
TYPED_TEST(TunerVersionsTest, WorksFirstThingWithForcedAlgorithmsAndWithoutALogger) {
  Environment environment(job("4", {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}}));
  const Library library(CGX_LIBRARY);
  TunerDriver<TypeParam> tuner(library);
  ASSERT_EQ(tuner.init(4, 4, nullptr), ncclSuccess);
  // What the user forced is all that NCCL offers.
  Costs costs = nothingOffered();
  costs[kRing][kSimple] = 90;
  const Costs before = costs;
  EXPECT_EQ(tuner.ask(ncclFuncAllReduce, kLarge, costs), ncclSuccess);
  EXPECT_EQ(costs, before);
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

TYPED_TEST(TunerVersionsTest, EndingNothingOrTwiceIsHarmless) {
  Environment environment(job("4"));
  const Library library(CGX_LIBRARY);
  TunerDriver<TypeParam> tuner(library);
  EXPECT_EQ(tuner.end(nullptr), ncclSuccess);
  ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

TYPED_TEST(TunerVersionsTest, ContextsOfDifferentCommunicatorsAreIndependent) {
  Job<TypeParam> job(test::job("64"), 64, 64);
  TunerDriver<TypeParam> small(job.library);
  ASSERT_EQ(small.init(2, 2), ncclSuccess);
  const auto askBoth = [&] {
    EXPECT_EQ(job.tuner.choice(ncclFuncAllReduce, kLarge, ncclCosts(kLarge, kGigabit, 64)), kChainPick);
    EXPECT_TRUE(isOwn(small.choice(ncclFuncAllReduce, kLarge, ncclCosts(kLarge, kGigabit, 2))));
  };
  for (int i = 0; i < 3; ++i) askBoth();
  EXPECT_EQ(small.end(small.context), ncclSuccess);
  EXPECT_EQ(job.tuner.choice(ncclFuncAllReduce, kLarge, ncclCosts(kLarge, kGigabit, 64)), kChainPick);
}

TYPED_TEST(TunerVersionsTest, ALibraryThatNobodyNamedOrWithABadSettingDoesNothing) {
  for (const auto& values : {job("4", {{"NCCL_NET_PLUGIN", nullptr}}), job("4", {{"CGX_BITS", "many"}}),
                             job("4", {{"NCCL_NET_PLUGIN", "ofi"}, {"NCCL_TUNER_PLUGIN", "cgx"}})}) {
    Environment environment(values);
    const Library library(CGX_LIBRARY);
    TunerDriver<TypeParam> tuner(library);
    ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
    Costs costs = ncclCosts(kLarge, kGigabit, 4);
    const Costs before = costs;
    EXPECT_EQ(tuner.ask(ncclFuncAllReduce, kLarge, costs), ncclSuccess);
    EXPECT_EQ(costs, before);
    EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
  }
}

TYPED_TEST(TunerVersionsTest, SaysNothingForACall) {
  Job<TypeParam> job(test::job("4"));
  for (const ncclDebugLogLevel level : {NCCL_LOG_WARN, NCCL_LOG_INFO}) {
    Captured::clear();
    for (int i = 0; i < 10'000; ++i) {
      const std::size_t bytes = 1000 + static_cast<std::size_t>(i) * 997;
      Costs costs = ncclCosts(bytes, kTenGigabit, 4);
      EXPECT_EQ(job.tuner.ask(static_cast<ncclFunc_t>(i % 5), bytes, costs), ncclSuccess);
    }
    EXPECT_TRUE(Captured::take(level).empty());
  }
}

}  // namespace
}  // namespace cgx::test
