// The plugin's own logic for collnet calls, over a fake collective where faults come on demand; every version's own
// table.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "test/plugin/collnet_driver.h"
#include "test/plugin/guarded.h"
#include "test/plugin/memory_control.h"

namespace cgx::test {
namespace {

template <class Coll>
class CollnetLogic : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("NCCL_NET_PLUGIN", "cgx", 1);
    setenv("NCCL_COLLNET_ENABLE", "1", 1);
    load();
  }
  void TearDown() override {
    library_.reset();
    for (const char* name : {"NCCL_NET_PLUGIN", "NCCL_COLLNET_ENABLE", "CGX_BITS"}) unsetenv(name);
  }
  void load() {
    library_.reset();
    Captured::clear();
    library_ = std::make_unique<Library>(CGX_LIBRARY);
    coll_ = std::make_unique<CollDriver<Coll>>(*library_);
    control_ = library_->template symbol<CgxMemoryControl*()>("cgxMemoryControl")();
    *control_ = {};
    ASSERT_NE(coll_->table, nullptr);
  }
  void connect() {
    ASSERT_EQ(coll_->init(), ncclSuccess);
    std::vector<typename CollDriver<Coll>::Handle> handles(1);
    void* listener = nullptr;
    ASSERT_EQ(coll_->listen(0, handles[0].data(), &listener), ncclSuccess);
    ASSERT_EQ(coll_->connect(handles, 0, listener, &comm_), ncclSuccess);
    ASSERT_NE(comm_, nullptr);
    ASSERT_EQ(coll_->table->closeListen(listener), ncclSuccess);
    Captured::clear();
  }
  void disconnect() {
    EXPECT_EQ(coll_->table->closeColl(comm_), ncclSuccess);
    EXPECT_EQ(coll_->finalize(), ncclSuccess);
    EXPECT_EQ(control_->listeners, 0);
  }

  std::unique_ptr<Library> library_;
  std::unique_ptr<CollDriver<Coll>> coll_;
  CgxMemoryControl* control_ = nullptr;
  void* comm_ = nullptr;
  float in_[64] = {1, 2, 3};
  float out_[64] = {};
};

struct VersionNames {
  template <class Coll>
  static std::string GetName(int) {
    return "v" + std::to_string(Version<Coll>::kNumber);
  }
};
TYPED_TEST_SUITE(CollnetLogic, CollNetVersions, VersionNames);

TYPED_TEST(CollnetLogic, EverySlotThatNcclCallsIsFilled) {
  const TypeParam& table = *this->coll_->table;
  constexpr std::size_t kSlots =
      Version<TypeParam>::kNumber >= 8 ? 17 : 15;  // what follows may be NULL, but for finalize
  void* slots[kSlots];
  std::memcpy(slots, &table, sizeof slots);
  for (std::size_t i = 0; i < kSlots; ++i) EXPECT_NE(slots[i], nullptr) << "slot " << i;
  if constexpr (requires { table.finalize; }) {
    EXPECT_NE(table.finalize, nullptr);
  }
  EXPECT_STREQ(table.name, this->library_->template symbol<const ncclNet_v12_t>("ncclNetPlugin_v12")->name);
}

TYPED_TEST(CollnetLogic, PropertiesFitTheirStruct) {
  using Props = typename Version<TypeParam>::Props;
  ASSERT_EQ(this->coll_->init(), ncclSuccess);
  Guarded memory(sizeof(Props));
  std::memset(memory.data(), 0xAA, sizeof(Props));
  int count = 0;
  ASSERT_EQ(this->coll_->table->devices(&count), ncclSuccess);
  EXPECT_EQ(count, 2);
  ASSERT_EQ(this->coll_->table->getProperties(1, memory.as<Props>()), ncclSuccess);
  EXPECT_STREQ(memory.as<Props>()->name, "mem1");
  EXPECT_EQ(memory.as<Props>()->speed, 2000);
  EXPECT_NE(this->coll_->table->getProperties(2, memory.as<Props>()), ncclSuccess);
  EXPECT_EQ(this->coll_->finalize(), ncclSuccess);
}

TYPED_TEST(CollnetLogic, ReductionsOfferedAreSumsOfThreeTypesWhateverTheEnvironment) {
  for (const char* bits : {"4", "32", "x"}) {
    setenv("CGX_BITS", bits, 1);
    this->load();
    for (int type = -3; type < 40; ++type) {
      for (int op = -3; op < 40; ++op) {
        int supported = -1;
        ASSERT_EQ(this->coll_->table->reduceSupport(static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op),
                                                    &supported),
                  ncclSuccess);
        const bool expected = op == ncclSum && (type == ncclFloat32 || type == ncclFloat16 || type == ncclBfloat16);
        EXPECT_EQ(supported, expected ? 1 : 0) << type << " " << op;
      }
    }
  }
}

TYPED_TEST(CollnetLogic, OperationsRunInPlaceAndOutOfPlaceAndReportTheirBytes) {
  this->connect();
  void* request = nullptr;
  int bytes = 0;
  ASSERT_EQ(this->coll_->iallreduce(this->comm_, this->in_, this->out_, 64, ncclFloat32, ncclSum, &request),
            ncclSuccess);
  ASSERT_TRUE(this->coll_->wait(request, &bytes));
  EXPECT_EQ(bytes, 256);
  EXPECT_EQ(this->out_[2], 3.0F);
  ASSERT_EQ(this->coll_->iallreduce(this->comm_, this->in_, this->in_, 64, ncclBfloat16, ncclSum, &request),
            ncclSuccess);
  ASSERT_TRUE(this->coll_->wait(request));
  ASSERT_EQ(this->coll_->iallreduce(this->comm_, nullptr, nullptr, 0, ncclFloat16, ncclSum, &request), ncclSuccess);
  ASSERT_TRUE(this->coll_->wait(request, &bytes));
  EXPECT_EQ(bytes, 0);
  if constexpr (Version<TypeParam>::kNumber >= 8) {
    ASSERT_EQ(this->coll_->iallgather(this->comm_, this->in_, this->out_, 10, 0, 10, &request), ncclSuccess);
    ASSERT_TRUE(this->coll_->wait(request, &bytes));
    EXPECT_EQ(bytes, 10);
    ASSERT_EQ(this->coll_->ireducescatter(this->comm_, this->in_, this->out_, 16, 0, 16, ncclFloat32, &request),
              ncclSuccess);
    ASSERT_TRUE(this->coll_->wait(request, &bytes));
    EXPECT_EQ(bytes, 16);
  }
  ASSERT_EQ(this->coll_->table->iflush(this->comm_, this->out_, 64, nullptr, &request), ncclSuccess);
  EXPECT_EQ(request, nullptr);
  this->disconnect();
}

TYPED_TEST(CollnetLogic, AFullPoolIsARequestToAskAgainAndNeverAnError) {
  this->connect();
  std::vector<void*> requests;
  void* request = nullptr;
  do {
    ASSERT_EQ(this->coll_->iallreduce(this->comm_, this->in_, this->out_, 1, ncclFloat32, ncclSum, &request),
              ncclSuccess);
    if (request != nullptr) requests.push_back(request);
  } while (request != nullptr);
  EXPECT_GE(requests.size(), 16U);
  for (auto it = requests.rbegin(); it != requests.rend(); ++it) EXPECT_TRUE(this->coll_->wait(*it));
  int done = 0;
  EXPECT_EQ(this->coll_->table->test(requests[0], &done, nullptr), ncclInvalidArgument) << "reported done before";
  ASSERT_EQ(this->coll_->iallreduce(this->comm_, this->in_, this->out_, 1, ncclFloat32, ncclSum, &request),
            ncclSuccess);
  EXPECT_TRUE(this->coll_->wait(request));
  this->disconnect();
}

TYPED_TEST(CollnetLogic, AnErrorIsStickyAndHasOneWarning) {
  this->connect();
  void* request = nullptr;
  ASSERT_EQ(this->coll_->iallreduce(this->comm_, this->in_, this->out_, 1, ncclFloat32, ncclSum, &request),
            ncclSuccess);
  this->control_->cut = true;
  int done = 0;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(this->coll_->table->test(request, &done, nullptr), ncclRemoteError);
    void* none = nullptr;
    EXPECT_EQ(this->coll_->iallreduce(this->comm_, this->in_, this->out_, 1, ncclFloat32, ncclSum, &none),
              ncclRemoteError);
    EXPECT_EQ(none, nullptr);
  }
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], "NET/CGX : collnet test: rank 0 of 1: connection to rank 1 reset");
  this->disconnect();
}

TYPED_TEST(CollnetLogic, WrongArgumentsAreErrorsAndLeaveTheCommunicatorUsable) {
  this->connect();
  void* request = nullptr;
  auto& coll = *this->coll_;
  EXPECT_EQ(coll.iallreduce(this->comm_, this->in_, this->out_, 1, ncclFloat64, ncclSum, &request), ncclInvalidUsage);
  EXPECT_EQ(coll.iallreduce(this->comm_, this->in_, this->out_, 1, ncclFloat32, ncclMax, &request), ncclInvalidUsage);
  EXPECT_EQ(coll.iallreduce(this->comm_, nullptr, this->out_, 1, ncclFloat32, ncclSum, &request), ncclInvalidArgument);
  EXPECT_EQ(
      coll.iallreduce(this->comm_, this->in_, this->out_, static_cast<std::size_t>(-1), ncclFloat32, ncclSum, &request),
      ncclInvalidArgument);
  EXPECT_EQ(coll.iallreduce(nullptr, this->in_, this->out_, 1, ncclFloat32, ncclSum, &request), ncclInvalidArgument);
  EXPECT_EQ(coll.table->closeColl(nullptr), ncclSuccess);
  EXPECT_EQ(coll.table->closeListen(nullptr), ncclSuccess);
  ASSERT_EQ(coll.iallreduce(this->comm_, this->in_, this->out_, 1, ncclFloat32, ncclSum, &request), ncclSuccess);
  EXPECT_TRUE(coll.wait(request));
  this->disconnect();
}

TYPED_TEST(CollnetLogic, HostMemoryIsRegisteredAndOtherKindsAreRefused) {
  this->connect();
  void* handle = nullptr;
  ASSERT_EQ(this->coll_->regMr(this->comm_, this->in_, sizeof this->in_, NCCL_PTR_HOST, &handle), ncclSuccess);
  EXPECT_NE(handle, nullptr);
  EXPECT_EQ(this->control_->registered, 1);
  EXPECT_EQ(this->coll_->table->deregMr(this->comm_, handle), ncclSuccess);
  EXPECT_EQ(this->control_->registered, 0);
  ASSERT_EQ(this->coll_->regMr(this->comm_, nullptr, 0, NCCL_PTR_HOST, &handle), ncclSuccess);
  EXPECT_EQ(this->coll_->table->deregMr(this->comm_, handle), ncclSuccess);
  EXPECT_EQ(this->coll_->table->deregMr(this->comm_, nullptr), ncclSuccess);
  EXPECT_EQ(this->control_->registered, 0);
  EXPECT_EQ(this->coll_->regMr(this->comm_, this->in_, 8, NCCL_PTR_CUDA, &handle), ncclInvalidArgument);
  EXPECT_EQ(this->coll_->table->regMrDmaBuf(this->comm_, this->in_, 8, NCCL_PTR_CUDA, 0, -1, &handle),
            ncclInternalError);
  this->disconnect();
}

TYPED_TEST(CollnetLogic, AListenerIsFreedWhetherOrNotNcclClosesItAfterAFailedConnect) {
  for (const bool closes : {true, false}) {
    ASSERT_EQ(this->coll_->init(), ncclSuccess);
    std::vector<typename CollDriver<TypeParam>::Handle> handles(2);
    void* listener = nullptr;
    ASSERT_EQ(this->coll_->listen(0, handles[0].data(), &listener), ncclSuccess);
    EXPECT_EQ(this->control_->listeners, 1);
    EXPECT_EQ(this->coll_->connect(handles, 0, listener, &this->comm_), ncclInvalidUsage) << "handle 1 is all zero";
    EXPECT_EQ(this->comm_, nullptr);
    EXPECT_EQ(this->control_->listeners, 0) << "its descriptor must not wait for a close that may never come";
    EXPECT_EQ(Captured::take(NCCL_LOG_WARN).size(), 1U);
    if (closes) {
      EXPECT_EQ(this->coll_->table->closeListen(listener), ncclSuccess);
    }
    EXPECT_EQ(this->coll_->finalize(), ncclSuccess);
  }
  this->connect();
  EXPECT_EQ(this->control_->ordinal, 2);
  this->disconnect();
}

TYPED_TEST(CollnetLogic, ABadSettingFailsConnectOnThisRankForTheOthersToHear) {
  setenv("CGX_BITS", "9", 1);
  this->load();
  ASSERT_EQ(this->coll_->init(), ncclSuccess);
  std::vector<typename CollDriver<TypeParam>::Handle> handles(1);
  void* listener = nullptr;
  ASSERT_EQ(this->coll_->listen(0, handles[0].data(), &listener), ncclSuccess);
  Captured::clear();
  EXPECT_EQ(this->coll_->connect(handles, 0, listener, &this->comm_), ncclInvalidUsage);
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("CGX_BITS"), std::string::npos);
  EXPECT_EQ(this->coll_->finalize(), ncclSuccess);
}

TYPED_TEST(CollnetLogic, UnnamedItStaysOffQuietlyAndNetWorks) {
  unsetenv("NCCL_NET_PLUGIN");
  this->load();
  EXPECT_NE(this->coll_->init(), ncclSuccess);
  EXPECT_EQ(Captured::take(NCCL_LOG_WARN).size(), 0U);
  const auto net = this->library_->template symbol<const ncclNet_v9_t>("ncclNetPlugin_v9");
  EXPECT_EQ(net->init(&Captured::log), ncclSuccess);
}

TYPED_TEST(CollnetLogic, ACommunicatorThatWasNeverUsedSaysSoAndWhy) {
  this->connect();
  this->disconnect();
  const auto lines = Captured::take(NCCL_LOG_INFO);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("never used"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("cgx plan"), std::string::npos) << lines[0];
}

TYPED_TEST(CollnetLogic, StatisticsAreSaidAtTheEnd) {
  this->connect();
  void* request = nullptr;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(this->coll_->iallreduce(this->comm_, this->in_, this->out_, 10, ncclFloat32, ncclSum, &request),
              ncclSuccess);
    ASSERT_TRUE(this->coll_->wait(request));
  }
  this->disconnect();
  const auto lines = Captured::take(NCCL_LOG_INFO);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("10 operations, 400 bytes in, 200 bytes on the wire"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace cgx::test
