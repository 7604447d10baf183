// Sizes that no 32-bit number holds, through the library: a small file mapped again and again stands for gigabytes of
// memory.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstring>

#include "test/plugin/collnet_driver.h"
#include "test/plugin/net_driver.h"

namespace cgx::test {
namespace {

/// `bytes` of address space over one file of 2 MiB.
class Repeated {
 public:
  static constexpr std::size_t kFile = 2 << 20;

  explicit Repeated(std::size_t bytes) : size_((bytes + kFile - 1) / kFile * kFile) {
    const int fd = memfd_create("repeated", MFD_CLOEXEC);
    base_ =
        static_cast<std::byte*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    valid = fd >= 0 && ftruncate(fd, kFile) == 0 && base_ != MAP_FAILED;
    for (std::size_t at = 0; valid && at < size_; at += kFile)
      valid = mmap(base_ + at, kFile, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    close(fd);
  }
  ~Repeated() { munmap(base_, size_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  std::byte* data() const { return base_; }
  bool valid = false;

 private:
  std::size_t size_;
  std::byte* base_ = nullptr;
};

// The pattern's period divides the file's size, so each place has one right value, whichever copy is written last.
void fillPattern(std::byte* data) {
  for (std::size_t i = 0; i < Repeated::kFile; ++i) data[i] = static_cast<std::byte>(i * 37 + (i >> 8) * 11);
}

TEST(LargeMessages, BeyondFourGigabytesArriveWhole) {
  Library library(CGX_LIBRARY);
  NetDriver<ncclNet_v12_t> net(library);
  ASSERT_EQ(net.init(), ncclSuccess);
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  ASSERT_TRUE(net.pair(&sendComm, &recvComm));
  for (const std::size_t bytes : {(std::size_t{1} << 31) + 5, (std::size_t{1} << 32) + 13}) {
    Repeated out(bytes);
    Repeated in(bytes + 4096);
    ASSERT_TRUE(out.valid && in.valid);
    fillPattern(out.data());
    std::memset(in.data(), 0, Repeated::kFile);
    void* receive = nullptr;
    void* send = nullptr;
    ASSERT_EQ(net.irecv(recvComm, {{in.data(), bytes + 4096}}, {0}, &receive), ncclSuccess);
    ASSERT_EQ(net.isend(sendComm, out.data(), bytes, 0, &send), ncclSuccess);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(4);
    for (int done = 0; done == 0;) {
      ASSERT_EQ(net.table->test(receive, &done, nullptr), ncclSuccess);
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(net.wait(send));
    EXPECT_EQ(std::memcmp(in.data(), out.data(), Repeated::kFile), 0) << bytes;
  }
  EXPECT_EQ(net.table->closeSend(sendComm), ncclSuccess);
  EXPECT_EQ(net.table->closeRecv(recvComm), ncclSuccess);
  EXPECT_EQ(net.finalize(), ncclSuccess);
}

// Constant tiles are exact, so the sum is known; the send buffer is one 2 MiB file, the result another.
TEST(LargeMessages, AnAllReduceBeyondTwoGigabytesIsRight) {
  setenv("NCCL_NET_PLUGIN", "cgx", 1);
  setenv("NCCL_COLLNET_ENABLE", "1", 1);
  using Driver = CollDriver<ncclCollNet_v12_t>;
  constexpr std::size_t kCount = (std::size_t{1} << 30) + 32;  // of fp16: 2^31 + 64 bytes
  Library library(CGX_LIBRARY);
  std::vector<Driver::Handle> handles(2);
  std::barrier<> meet(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Driver driver(library);
      void* listener = nullptr;
      void* comm = nullptr;
      Repeated send(kCount * 2);
      Repeated recv(kCount * 2 + 64);
      EXPECT_TRUE(send.valid && recv.valid);
      auto* halves = reinterpret_cast<std::uint16_t*>(send.data());
      for (std::size_t i = 0; i < Repeated::kFile / 2; ++i)
        halves[i] = static_cast<std::uint16_t>(0x3c00 + i / 512 % 64 * 16);  // 1.0 and a little more: one for each tile
      EXPECT_EQ(driver.init(), ncclSuccess);
      EXPECT_EQ(driver.listen(0, handles[static_cast<std::size_t>(rank)].data(), &listener), ncclSuccess);
      meet.arrive_and_wait();
      auto mine = handles;
      EXPECT_EQ(driver.connect(mine, rank, listener, &comm), ncclSuccess);
      EXPECT_EQ(driver.table->closeListen(listener), ncclSuccess);
      void* request = nullptr;
      EXPECT_EQ(driver.iallreduce(comm, send.data(), recv.data(), NCCL_MAX_NET_SIZE_BYTES / 2 + 1, ncclFloat16, ncclSum,
                                  &request),
                ncclInvalidArgument);
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(4);
      ncclResult_t result = ncclSuccess;
      int done = 0;
      while (result == ncclSuccess && done == 0 && std::chrono::steady_clock::now() < deadline) {
        result = request == nullptr
                     ? driver.iallreduce(comm, send.data(), recv.data(), kCount, ncclFloat16, ncclSum, &request)
                     : driver.table->test(request, &done, nullptr);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(result, ncclSuccess);
      EXPECT_EQ(done, 1);
      const auto* sums = reinterpret_cast<const std::uint16_t*>(recv.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < Repeated::kFile / 2; ++i) wrong += sums[i] != halves[i] + 0x400 ? 1 : 0;  // doubled
      EXPECT_EQ(wrong, 0U);
      meet.arrive_and_wait();
      EXPECT_EQ(driver.table->closeColl(comm), ncclSuccess);
      EXPECT_EQ(driver.finalize(), ncclSuccess);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  unsetenv("NCCL_NET_PLUGIN");
  unsetenv("NCCL_COLLNET_ENABLE");
}

}  // namespace
}  // namespace cgx::test
