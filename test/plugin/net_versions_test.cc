// One scenario through each version's own table: versions must behave the same. Runs over any plugin library
// (CGX_LIBRARY).
#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>
#include <random>
#include <regex>

#include "test/plugin/guarded.h"
#include "test/plugin/net_driver.h"

namespace cgx::test {
namespace {

template <class Net>
class NetVersions : public ::testing::Test {
 protected:
  void SetUp() override {
    Captured::clear();
    ASSERT_NE(net_.table, nullptr) << "no symbol " << Version<Net>::kSymbol;
    ASSERT_EQ(net_.init(), ncclSuccess);
  }
  void TearDown() override { EXPECT_EQ(net_.finalize(), ncclSuccess); }

  void connect() { ASSERT_TRUE(net_.pair(&send_, &recv_)); }
  void disconnect() {
    EXPECT_EQ(net_.table->closeSend(send_), ncclSuccess);
    EXPECT_EQ(net_.table->closeRecv(recv_), ncclSuccess);
  }
  /// Posts until the plugin has room, as NCCL does.
  void* send(void* data, std::size_t size, int tag) {
    void* request = nullptr;
    for (int tries = 0; request == nullptr && tries < 100000; ++tries)
      EXPECT_EQ(net_.isend(send_, data, size, tag, &request), ncclSuccess);
    return request;
  }

  Library library_{CGX_LIBRARY};
  NetDriver<Net> net_{library_};
  void* send_ = nullptr;
  void* recv_ = nullptr;
};

struct VersionNames {
  template <class Net>
  static std::string GetName(int) {
    return "v" + std::to_string(Version<Net>::kNumber);
  }
};
TYPED_TEST_SUITE(NetVersions, test::NetVersions, VersionNames);

TYPED_TEST(NetVersions, EverySlotThatNcclCallsIsFilled) {
  const TypeParam& table = *this->net_.table;
  const auto v12 = this->library_.template symbol<const ncclNet_v12_t>("ncclNetPlugin_v12");
  EXPECT_STREQ(table.name, v12->name);
  EXPECT_TRUE(std::regex_match(table.name, std::regex("[A-Za-z0-9_.-]{1,31}"))) << table.name;
  // The first 17 slots are there in every version, in the same order; what follows is optional but for finalize.
  void* slots[17];
  std::memcpy(slots, &table, sizeof slots);
  for (std::size_t i = 0; i < 17; ++i) EXPECT_NE(slots[i], nullptr) << "slot " << i;
  if constexpr (requires { table.finalize; }) {
    EXPECT_NE(table.finalize, nullptr);
  }
}

TYPED_TEST(NetVersions, EveryDeviceHasSanePropertiesThatFitItsStruct) {
  using Props = typename Version<TypeParam>::Props;
  int count = 0;
  ASSERT_EQ(this->net_.table->devices(&count), ncclSuccess);
  ASSERT_GE(count, 1);
  Guarded memory(sizeof(Props));
  std::vector<std::uint64_t> guids;
  for (int dev = 0; dev < count; ++dev) {
    std::memset(memory.data(), 0xAA, sizeof(Props));
    auto* props = memory.as<Props>();
    ASSERT_EQ(this->net_.table->getProperties(dev, props), ncclSuccess);
    EXPECT_GT(std::strlen(props->name), 0U);
    EXPECT_TRUE(props->pciPath == nullptr || std::strncmp(props->pciPath, "/sys/devices/", 13) == 0);
    EXPECT_EQ(props->ptrSupport, NCCL_PTR_HOST);
    EXPECT_GT(props->speed, 0);
    EXPECT_GE(props->latency, 0.0F);
    EXPECT_LT(props->latency, 1e6F);
    EXPECT_GE(props->maxComms, 1024);
    EXPECT_EQ(props->maxRecvs, 8);
    guids.push_back(props->guid);
    if constexpr (requires { props->netDeviceType; }) {
      EXPECT_EQ(props->netDeviceType, NCCL_NET_DEVICE_HOST);
    }
    if constexpr (requires { props->netDeviceVersion; }) {
      EXPECT_EQ(props->netDeviceVersion, 0);
    }
    if constexpr (requires { props->regIsGlobal; }) {
      EXPECT_EQ(props->regIsGlobal, 1);
    }
    if constexpr (requires { props->forceFlush; }) {
      EXPECT_EQ(props->forceFlush, 0);
    }
    if constexpr (requires { props->vProps; }) {
      EXPECT_EQ(props->vProps.ndevs, 1);
      EXPECT_EQ(props->vProps.devs[0], dev);
      EXPECT_EQ(props->maxP2pBytes, NCCL_MAX_NET_SIZE_BYTES);
      EXPECT_EQ(props->maxCollBytes, NCCL_MAX_NET_SIZE_BYTES);
    }
    if constexpr (requires { props->maxMultiRequestSize; }) {
      EXPECT_EQ(props->maxMultiRequestSize, 1);
    }
    if constexpr (requires { props->railId; }) {
      EXPECT_EQ(props->railId, -1);
    }
    if constexpr (requires { props->planeId; }) {
      EXPECT_EQ(props->planeId, -1);
    }
  }
  std::sort(guids.begin(), guids.end());
  EXPECT_EQ(std::unique(guids.begin(), guids.end()), guids.end());
}

TYPED_TEST(NetVersions, ADeviceThatDoesNotExistIsAnErrorAndNothingIsWritten) {
  using Props = typename Version<TypeParam>::Props;
  int count = 0;
  ASSERT_EQ(this->net_.table->devices(&count), ncclSuccess);
  alignas(Props) std::array<unsigned char, sizeof(Props)> memory;
  memory.fill(0xAA);
  for (const int dev : {-1, count, INT_MAX, INT_MIN}) {
    EXPECT_NE(this->net_.table->getProperties(dev, reinterpret_cast<Props*>(memory.data())), ncclSuccess);
    void* comm = &memory;
    std::array<std::byte, NCCL_NET_HANDLE_MAXSIZE> handle{};
    EXPECT_NE(this->net_.listen(dev, handle.data(), &comm), ncclSuccess);
    EXPECT_EQ(comm, nullptr);
  }
  EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](unsigned char c) { return c == 0xAA; }));
}

TYPED_TEST(NetVersions, AHandleIsAtMost128BytesAndWorksFromACopy) {
  Guarded handle(NCCL_NET_HANDLE_MAXSIZE);
  void* listener = nullptr;
  ASSERT_EQ(this->net_.listen(0, handle.data(), &listener), ncclSuccess);
  typename NetDriver<TypeParam>::Handle copy;
  std::memcpy(copy.data(), handle.data(), copy.size());
  ASSERT_TRUE(this->net_.join(copy, listener, &this->send_, &this->recv_));
  EXPECT_EQ(this->net_.table->closeListen(listener), ncclSuccess);
  this->disconnect();
}

TYPED_TEST(NetVersions, ConnectAndAcceptNeverBlock) {
  typename NetDriver<TypeParam>::Handle handle{};
  void* listener = nullptr;
  ASSERT_EQ(this->net_.listen(0, handle.data(), &listener), ncclSuccess);
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    void* comm = nullptr;
    ASSERT_EQ(this->net_.connect(0, handle.data(), &comm), ncclSuccess);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
    if (comm != nullptr) {
      EXPECT_EQ(this->net_.table->closeSend(comm), ncclSuccess);
    }
  }
  EXPECT_EQ(this->net_.table->closeListen(listener), ncclSuccess);
}

TYPED_TEST(NetVersions, MessagesOfAllSizesArriveBitExactAndInOrder) {
  this->connect();
  std::mt19937 random(7);
  const std::size_t sizes[] = {0, 1, 3, 64, 4095, 4096, 65537, 1 << 20, 3 << 20};
  constexpr std::size_t kCanary = 4096;
  std::vector<unsigned char> noise(8 << 20);
  for (unsigned char& byte : noise) byte = static_cast<unsigned char>(random());
  std::vector<unsigned char> in(4 << 20);
  for (int round = 0; round < 24; ++round) {
    const std::size_t size = sizes[random() % std::size(sizes)];
    unsigned char* out = noise.data() + random() % (4 << 20);
    std::memset(in.data() + size, 0xEE, kCanary);
    void* receive = nullptr;
    ASSERT_EQ(this->net_.irecv(this->recv_, {{size == 0 ? nullptr : in.data(), size == 0 ? 0 : in.size()}}, {round},
                               &receive),
              ncclSuccess);
    ASSERT_NE(receive, nullptr);
    void* sent = this->send(size == 0 ? nullptr : out, size, round);
    int sizesDone[2] = {-7, -7};
    ASSERT_TRUE(this->net_.wait(receive, sizesDone));
    EXPECT_EQ(sizesDone[0], static_cast<int>(size));
    EXPECT_EQ(sizesDone[1], -7);
    if (round % 2 == 0) {
      ASSERT_TRUE(this->net_.wait(sent, nullptr));
    } else {
      ASSERT_TRUE(this->net_.wait(sent, sizesDone));
      EXPECT_EQ(sizesDone[0], static_cast<int>(size));
    }
    ASSERT_EQ(std::memcmp(in.data(), out, size), 0);
    const auto* canary = in.data() + size;
    ASSERT_TRUE(std::all_of(canary, canary + kCanary, [](unsigned char c) { return c == 0xEE; }));
  }
  this->disconnect();
}

TYPED_TEST(NetVersions, AGroupedReceiveTakesEightTagsInAnyOrder) {
  this->connect();
  std::mt19937 random(11);
  std::vector<std::vector<unsigned char>> in(8, std::vector<unsigned char>(70000));
  std::vector<std::vector<unsigned char>> out(8);
  for (int round = 0; round < 25; ++round) {
    std::vector<std::pair<void*, std::size_t>> buffers;
    std::vector<int> tags(8);
    for (std::size_t i = 0; i < 8; ++i) {
      buffers.emplace_back(in[i].data(), in[i].size());
      tags[i] = static_cast<int>(i);
      out[i].assign(random() % 70000 * (random() % 4 != 0), static_cast<unsigned char>(random()));
    }
    void* single = nullptr;
    unsigned char lone = 0;
    void* group = nullptr;
    ASSERT_EQ(this->net_.irecv(this->recv_, buffers, tags, &group), ncclSuccess);
    ASSERT_EQ(this->net_.irecv(this->recv_, {{&lone, 1}}, {8}, &single), ncclSuccess);
    std::vector<int> order(tags);
    order.push_back(8);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<void*> sent;
    unsigned char answer = 42;
    for (const int tag : order) {
      if (tag == 8)
        sent.push_back(this->send(&answer, 1, 8));
      else
        sent.push_back(
            this->send(out[static_cast<std::size_t>(tag)].data(), out[static_cast<std::size_t>(tag)].size(), tag));
    }
    int sizes[8];
    ASSERT_TRUE(this->net_.wait(group, sizes));
    ASSERT_TRUE(this->net_.wait(single));
    EXPECT_EQ(lone, 42);
    for (void* request : sent) ASSERT_TRUE(this->net_.wait(request));
    for (std::size_t i = 0; i < 8; ++i) {
      ASSERT_EQ(static_cast<std::size_t>(sizes[i]), out[i].size());
      ASSERT_TRUE(std::equal(out[i].begin(), out[i].end(), in[i].begin()));
    }
  }
  this->disconnect();
}

TYPED_TEST(NetVersions, ReceivesArePostedAheadAndMatchInOrderEvenOnOneBuffer) {
  this->connect();
  unsigned char buffers[32] = {};
  std::vector<void*> receives(NCCL_NET_MAX_REQUESTS);
  for (std::size_t i = 0; i < receives.size(); ++i) {
    void* buffer = &buffers[i == 1 ? 0 : i];
    ASSERT_EQ(this->net_.irecv(this->recv_, {{buffer, 1}}, {0}, &receives[i]), ncclSuccess);
    ASSERT_NE(receives[i], nullptr);
  }
  unsigned char value = 100;
  ASSERT_TRUE(this->net_.wait(this->send(&value, 1, 0)));
  ASSERT_TRUE(this->net_.wait(receives[0]));
  EXPECT_EQ(buffers[0], 100);
  int done = 1;
  ASSERT_EQ(this->net_.table->test(receives[1], &done, nullptr), ncclSuccess);
  EXPECT_EQ(done, 0);
  for (std::size_t i = 1; i < receives.size(); ++i) {
    value = static_cast<unsigned char>(100 + i);
    ASSERT_TRUE(this->net_.wait(this->send(&value, 1, 0)));
    ASSERT_TRUE(this->net_.wait(receives[i]));
    EXPECT_EQ(buffers[i == 1 ? 0 : i], value);
  }
  this->disconnect();
}

TYPED_TEST(NetVersions, AnyLocalDeviceReachesAnyListener) {
  int count = 0;
  ASSERT_EQ(this->net_.table->devices(&count), ncclSuccess);
  for (int a = 0; a < count; ++a) {
    ASSERT_TRUE(this->net_.pair(&this->send_, &this->recv_, a, count - 1 - a));
    this->disconnect();
  }
}

TYPED_TEST(NetVersions, ALoggerIsOptional) {
  NetDriver<TypeParam> other(this->library_);
  EXPECT_EQ(other.init(nullptr), ncclSuccess);
  EXPECT_EQ(other.finalize(), ncclSuccess);
}

TYPED_TEST(NetVersions, CloseEndsOutstandingRequestsSoon) {
  this->connect();
  std::vector<unsigned char> data(1 << 20);
  void* request = nullptr;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(this->net_.irecv(this->recv_, {{data.data(), 16}}, {1}, &request), ncclSuccess);
    ASSERT_EQ(this->net_.isend(this->send_, data.data(), data.size(), 2, &request), ncclSuccess);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(this->net_.table->closeRecv(this->recv_), ncclSuccess);
  EXPECT_EQ(this->net_.table->closeSend(this->send_), ncclSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
}

}  // namespace
}  // namespace cgx::test
