// One scenario through each version's own collnet table, on the library that users load, with real peers: ranks as
// threads.
#include <array>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "cgx/observe.h"
#include "test/plugin/collnet_driver.h"

namespace cgx::test {
namespace {

constexpr int kRanks = 3;

template <class Coll>
class CollnetVersions : public ::testing::Test {
 protected:
  using Driver = CollDriver<Coll>;
  using Handle = typename Driver::Handle;

  void SetUp() override {
    setenv("NCCL_NET_PLUGIN", "cgx", 1);
    setenv("NCCL_COLLNET_ENABLE", "1", 1);
    setenv("CGX_CONNECT_TIMEOUT", "1.5", 1);
    Captured::clear();
  }
  void TearDown() override {
    for (const char* name : {"NCCL_NET_PLUGIN", "NCCL_COLLNET_ENABLE", "CGX_BITS", "CGX_CONNECT_TIMEOUT"})
      unsetenv(name);
  }

  /// Runs `body(driver, rank, comm)` on each rank of a connected group.
  void onEachRank(const std::function<void(Driver&, int, void*)>& body) {
    Library library(CGX_LIBRARY);
    std::vector<Handle> handles(kRanks);
    std::barrier<> meet(kRanks);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        Driver driver(library);
        void* listener = nullptr;
        void* comm = nullptr;
        EXPECT_EQ(driver.init(), ncclSuccess);
        EXPECT_EQ(driver.listen(0, handles[static_cast<std::size_t>(rank)].data(), &listener), ncclSuccess);
        meet.arrive_and_wait();
        std::vector<Handle> mine = handles;
        EXPECT_EQ(driver.connect(mine, rank, listener, &comm), ncclSuccess);
        if (comm != nullptr) {
          EXPECT_EQ(driver.table->closeListen(listener), ncclSuccess);
          body(driver, rank, comm);
        }
        meet.arrive_and_wait();
        EXPECT_EQ(driver.table->closeColl(comm), ncclSuccess);
        EXPECT_EQ(driver.finalize(), ncclSuccess);
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  /// Asks again until there is room, as NCCL does.
  static void* post(const std::function<ncclResult_t(void**)>& call) {
    void* request = nullptr;
    for (int i = 0; i < 1000000 && request == nullptr; ++i) {
      if (call(&request) != ncclSuccess) {
        ADD_FAILURE() << "refused";
        return nullptr;
      }
      std::this_thread::yield();
    }
    return request;
  }
};

struct VersionNames {
  template <class Coll>
  static std::string GetName(int) {
    return "v" + std::to_string(Version<Coll>::kNumber);
  }
};
TYPED_TEST_SUITE(CollnetVersions, CollNetVersions, VersionNames);

TYPED_TEST(CollnetVersions, AllRanksGetTheSameBitsNearTheSum) {
  constexpr std::size_t kCount = 100003;
  std::array<std::vector<float>, kRanks> results;
  this->onEachRank([&](auto& driver, int rank, void* comm) {
    std::vector<float> send(kCount);
    auto& recv = results[static_cast<std::size_t>(rank)];
    recv.assign(kCount, -1);
    for (std::size_t i = 0; i < kCount; ++i)
      send[i] = std::sin(static_cast<float>(i) * 0.01F) * static_cast<float>(rank + 1);
    void* request = this->post([&](void** out) {
      return driver.iallreduce(comm, send.data(), recv.data(), kCount, ncclFloat32, ncclSum, out);
    });
    int bytes = 0;
    ASSERT_TRUE(driver.wait(request, &bytes));
    EXPECT_EQ(bytes, static_cast<int>(kCount * 4));
  });
  for (int rank = 1; rank < kRanks; ++rank)
    ASSERT_EQ(std::memcmp(results[0].data(), results[static_cast<std::size_t>(rank)].data(), kCount * 4), 0);
  for (std::size_t i = 0; i < kCount; ++i) {
    const float exact = std::sin(static_cast<float>(i) * 0.01F) * 6;
    ASSERT_NEAR(results[0][i], exact, 3.0) << i;
  }
}

TYPED_TEST(CollnetVersions, ExactModeIsTheSumInRankOrder) {
  setenv("CGX_BITS", "32", 1);
  constexpr std::size_t kCount = 40001;
  this->onEachRank([&](auto& driver, int rank, void* comm) {
    std::vector<float> data(kCount);
    const auto value = [](std::size_t i, int r) {
      return 1.0F / static_cast<float>(i * 7 + 1) + static_cast<float>(r) * 1e-3F;
    };
    for (std::size_t i = 0; i < kCount; ++i) data[i] = value(i, rank);
    void* request = this->post([&](void** out) {
      return driver.iallreduce(comm, data.data(), data.data(), kCount, ncclFloat32, ncclSum, out);
    });
    ASSERT_TRUE(driver.wait(request));
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], value(i, 0) + value(i, 1) + value(i, 2)) << i;
    // The process's totals: the ranks are threads of one process, and others may be done or not.
    void* loaded = dlopen("libnccl-net-cgx.so", RTLD_LAZY | RTLD_NOLOAD);
    ASSERT_NE(loaded, nullptr);
    CgxTotals totals{};
    ASSERT_EQ(reinterpret_cast<CgxTotalsFunction>(dlsym(loaded, "cgxTotals"))(&totals, sizeof totals), 0);
    EXPECT_GE(totals.operations, 1U);
    EXPECT_EQ(totals.inputBytes, totals.operations * kCount * 4);
    EXPECT_NEAR(static_cast<double>(totals.exactBytes), static_cast<double>(totals.inputBytes) * 4 / 3, 16);
    EXPECT_GT(totals.wireBytes, 0U);
    dlclose(loaded);
  });
}

TYPED_TEST(CollnetVersions, AllGatherAndReduceScatterAreExactOverAnyWindow) {
  if constexpr (Version<TypeParam>::kNumber < 8) {
    GTEST_SKIP() << "v6 and v7 have neither call";
  } else {
    constexpr std::size_t kPerRank = 1004;
    const auto byteAt = [](std::size_t i) { return static_cast<unsigned char>(i * 131 + (i >> 8)); };
    this->onEachRank([&](auto& driver, int rank, void* comm) {
      const std::pair<std::size_t, std::size_t> windows[] = {
          {0, 3 * kPerRank}, {17, 1500}, {kPerRank, kPerRank}, {2 * kPerRank + 5, 1}};
      for (const auto& [offset, bytes] : windows) {
        // NCCL points at this rank's first byte inside the window.
        const std::size_t begin = static_cast<std::size_t>(rank) * kPerRank;
        const std::size_t first = std::clamp(offset, begin, begin + kPerRank);
        const std::size_t last = std::clamp(offset + bytes, begin, begin + kPerRank);
        std::vector<unsigned char> send(last - first + 1);
        for (std::size_t i = first; i < last; ++i) send[i - first] = byteAt(i);
        std::vector<unsigned char> recv(bytes + 1, 0xEE);
        void* request = this->post([&, at = offset, n = bytes](void** out) {
          return driver.iallgather(comm, send.data(), recv.data(), kPerRank, at, n, out);
        });
        ASSERT_TRUE(driver.wait(request));
        for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(recv[i], byteAt(offset + i)) << offset << "+" << i;
        EXPECT_EQ(recv[bytes], 0xEE);
      }
      constexpr std::size_t kFloats = kPerRank / 4;
      std::vector<float> all(kRanks * kFloats);
      std::vector<float> mine(kFloats);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i) * static_cast<float>(rank + 1);
      void* request = this->post([&](void** out) {
        return driver.ireducescatter(comm, all.data(), mine.data(), kPerRank, 0, kRanks * kPerRank, ncclFloat32, out);
      });
      ASSERT_TRUE(driver.wait(request));
      for (std::size_t i = 0; i < kFloats; ++i)
        ASSERT_EQ(mine[i], static_cast<float>(static_cast<std::size_t>(rank) * kFloats + i) * 6) << i;
    });
  }
}

TYPED_TEST(CollnetVersions, ConnectFailsOnAllRanksIfOneWasGivenBrokenHandles) {
  Library library(CGX_LIBRARY);
  std::vector<typename CollDriver<TypeParam>::Handle> handles(kRanks);
  std::barrier<> meet(kRanks);
  std::vector<std::thread> ranks;
  std::array<ncclResult_t, kRanks> results{};
  const auto start = std::chrono::steady_clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      CollDriver<TypeParam> driver(library);
      void* listener = nullptr;
      void* comm = nullptr;
      EXPECT_EQ(driver.init(), ncclSuccess);
      EXPECT_EQ(driver.listen(0, handles[static_cast<std::size_t>(rank)].data(), &listener), ncclSuccess);
      meet.arrive_and_wait();
      auto mine = handles;
      if (rank == 1) mine[0] = mine[2] = {};  // whichever of them it dials
      results[static_cast<std::size_t>(rank)] = driver.connect(mine, rank, listener, &comm);
      EXPECT_EQ(comm, nullptr);
      EXPECT_EQ(driver.finalize(), ncclSuccess);  // and NCCL forgets the listener
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const ncclResult_t result : results) EXPECT_NE(result, ncclSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
  EXPECT_EQ(Captured::take(NCCL_LOG_WARN).size(), std::size_t{kRanks});
}

}  // namespace
}  // namespace cgx::test
