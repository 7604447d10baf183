// Ten operations of two ranks through the library that users load: the file's counters against what was called.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cgx/wire.h"
#include "test/plugin/collnet_driver.h"

namespace cgx::test {
namespace {

namespace fs = std::filesystem;
using Driver = CollDriver<ncclCollNet_v10_t>;

constexpr std::size_t kLarge = 65536;  // 256 KiB: two phases, half a rank, 64 tiles
constexpr std::size_t kSmall = 1000;

void runRank(Driver& driver, int rank, void* listener, std::vector<Driver::Handle> handles) {
  void* comm = nullptr;
  ASSERT_EQ(driver.connect(handles, rank, listener, &comm), ncclSuccess);
  std::vector<float> data(kLarge);
  for (int k = 0; k < 10; ++k) {
    for (std::size_t i = 0; i < kLarge; ++i) data[i] = static_cast<float>(i % 97 + 1) * (rank == 0 ? 1.0F : -0.5F);
    void* request = nullptr;
    while (request == nullptr)
      ASSERT_EQ(
          driver.iallreduce(comm, data.data(), data.data(), k < 6 ? kLarge : kSmall, ncclFloat32, ncclSum, &request),
          ncclSuccess);
    ASSERT_TRUE(driver.wait(request));
  }
  ASSERT_EQ(driver.table->closeColl(comm), ncclSuccess);
}

TEST(StatisticsTruth, TenOperationsAreCountedExactly) {
  std::string folder = (fs::temp_directory_path() / "cgx-truth-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  setenv("NCCL_NET_PLUGIN", "cgx", 1);
  setenv("NCCL_COLLNET_ENABLE", "1", 1);
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  setenv("CGX_STATS_FILE", (folder + "/%p.json").c_str(), 1);
  {
    Library library(CGX_LIBRARY);
    Driver driver(library);
    ASSERT_EQ(driver.init(), ncclSuccess);
    std::vector<Driver::Handle> handles(2);
    void* listeners[2] = {};
    for (std::size_t r = 0; r < 2; ++r) ASSERT_EQ(driver.listen(0, handles[r].data(), &listeners[r]), ncclSuccess);
    std::thread other([&] { runRank(driver, 1, listeners[1], handles); });
    runRank(driver, 0, listeners[0], handles);
    other.join();
    for (void* listener : listeners) EXPECT_EQ(driver.table->closeListen(listener), ncclSuccess);
    EXPECT_EQ(driver.finalize(), ncclSuccess);
  }
  std::ifstream in(folder + "/" + std::to_string(::getpid()) + ".json");
  const auto file = nlohmann::json::parse(in);
  in.close();
  fs::remove_all(folder);
  ASSERT_EQ(file["communicators"].size(), 2U);
  std::uint64_t samples = 0;
  for (const auto& comm : file["communicators"]) {
    EXPECT_EQ(comm["ranks"], 2);
    EXPECT_EQ(comm["bits"], 4);
    EXPECT_EQ(comm["operations"], 10);
    EXPECT_EQ(comm["allReduces"], 10);
    EXPECT_EQ(comm["smallOperations"], 4);
    EXPECT_EQ(comm["inputBytes"], 6 * kLarge * 4 + 4 * kSmall * 4);
    EXPECT_EQ(comm["exactBytes"], comm["inputBytes"]);  // 2 (n - 1) / n is 1
    EXPECT_EQ(comm["codedTiles"], 6 * 64);
    EXPECT_EQ(comm["exactTiles"], 4 * 2);
    EXPECT_EQ(comm["rawTiles"], 4 * 2);
    EXPECT_EQ(comm["zeroTiles"], 0);
    EXPECT_EQ(comm["nonFiniteTiles"], 0);
    // One tile in 1,024, by the number of the operation; this rank sends the other one's half of 128.
    std::uint64_t sampled = 0;
    for (std::uint64_t k = 0; k < 6; ++k) {
      const std::uint64_t tile = (k * 0x9E3779B97F4A7C15U) >> 54;
      sampled += tile < 128 && (tile < 64) == (comm["rank"] == 1) ? 1 : 0;
    }
    EXPECT_EQ(comm["sampledTiles"], sampled);
    if (sampled > 0) {
      EXPECT_GT(comm["errorSquares"].get<double>(), 0.003 * comm["valueSquares"].get<double>());
      EXPECT_LT(comm["errorSquares"].get<double>(), 0.03 * comm["valueSquares"].get<double>());
    }
    samples += sampled;
    ASSERT_EQ(comm["sizes"].size(), 2U);
    // A small one is one message: the header and the values.
    EXPECT_EQ(comm["sizes"][0]["wireBytes"], 4 * (sizeof(wire::MessageHeader) + kSmall * 4));
    EXPECT_EQ(comm["sizes"][0]["wireBytes"].get<std::uint64_t>() + comm["sizes"][1]["wireBytes"].get<std::uint64_t>(),
              comm["wireBytes"]);
    EXPECT_EQ(comm["messages"], 6 * 2 * 2 + 4);  // the plan cuts a piece of this size in two
  }
  EXPECT_GT(samples, 0U);
  EXPECT_EQ(file["sums"]["sampledTiles"], samples);
}

}  // namespace
}  // namespace cgx::test
