// The contract of transport.h, part 7: messages whose sizes and offsets no 32-bit number holds. A file of a few
// megabytes mapped again and again stands for the memory.
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "base/fd.h"
#include "contract/transport_fixture.h"

namespace cgx::transport {
namespace {

constexpr std::size_t kBlock = 2 << 20;

/// `bytes` of address space. Blocks at the start, at the end and around each gigabyte have memory of their own; all
/// others share one block. So a byte that went to its place modulo 2^31 or 2^32 is missed here and found there.
class Repeated {
 public:
  explicit Repeated(std::size_t bytes) : blocks_((bytes + kBlock - 1) / kBlock) {
    constexpr std::size_t kGigabyte = (std::size_t{1} << 30) / kBlock;
    for (std::size_t at = 0; at <= blocks_; at += kGigabyte)
      for (const std::size_t own : {at - 1, at, at + 1})
        if (own < blocks_) own_.insert(own);
    own_.insert(blocks_ - 1);
    const Fd file(::memfd_create("repeated", MFD_CLOEXEC));
    void* const room = ::mmap(nullptr, blocks_ * kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED || ::ftruncate(file.get(), static_cast<off_t>((own_.size() + 1) * kBlock)) != 0) return;
    base_ = static_cast<std::byte*>(room);
    valid_ = true;
    std::size_t next = 1;
    for (std::size_t block = 0; block < blocks_; ++block) {
      const auto offset = static_cast<off_t>(own_.contains(block) ? kBlock * next++ : 0);
      valid_ = valid_ && ::mmap(at(block), kBlock, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(),
                                offset) != MAP_FAILED;
    }
  }
  ~Repeated() {
    if (base_ != nullptr) ::munmap(base_, blocks_ * kBlock);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  bool valid() const { return valid_; }
  std::byte* at(std::size_t block) const { return base_ + block * kBlock; }
  std::span<std::byte> first(std::size_t bytes) const { return {base_, bytes}; }
  /// The numbers of those with memory of their own.
  const std::set<std::size_t>& own() const { return own_; }
  std::size_t aShared() const {
    std::size_t block = 0;
    while (own_.contains(block)) ++block;
    return block;
  }

 private:
  std::size_t blocks_;
  std::set<std::size_t> own_;
  std::byte* base_ = nullptr;
  bool valid_ = false;
};

class TransportHuge : public TransportContract {
 protected:
  void arrivesWhole(std::size_t bytes) {
    connect();
    const Repeated from(bytes), to(bytes);
    ASSERT_TRUE(from.valid() && to.valid());
    const std::vector<std::byte> common = pattern(kBlock, 1);
    std::memcpy(from.at(from.aShared()), common.data(), kBlock);
    for (const std::size_t block : from.own()) {
      std::memcpy(from.at(block), pattern(kBlock, 2 + block).data(), kBlock);
      std::memset(to.at(block), 0xdd, kBlock);
    }
    Waiter sent, got;
    ASSERT_TRUE(post(*b_, to.first(bytes), got).ok());
    ASSERT_TRUE(a_->send(from.first(bytes), 0, Priority::Normal, sent).ok());
    ASSERT_TRUE(got.wait(std::chrono::minutes(5)) && sent.wait());
    ASSERT_TRUE(got.status().ok() && sent.status().ok()) << got.status().text() << sent.status().text();
    EXPECT_EQ(got.sizes[0], bytes);
    EXPECT_EQ(sent.sizes[0], bytes);
    EXPECT_EQ(std::memcmp(to.at(to.aShared()), common.data(), kBlock), 0);
    for (const std::size_t block : to.own()) {
      const std::size_t inside = std::min(kBlock, bytes - block * kBlock);
      EXPECT_EQ(std::memcmp(to.at(block), from.at(block), inside), 0) << "block " << block;
      EXPECT_TRUE(std::all_of(to.at(block) + inside, to.at(block) + kBlock, [](std::byte b) {
        return b == std::byte{0xdd};
      })) << "written behind the message";
    }
  }
};

TEST_P(TransportHuge, MessagesBeyondTwoGigabytesArriveWhole) { arrivesWhole((std::size_t{1} << 31) + 5); }

TEST_P(TransportHuge, MessagesBeyondFourGigabytesArriveWhole) { arrivesWhole((std::size_t{1} << 32) + 13); }

INSTANTIATE_TEST_SUITE_P(Transports, TransportHuge, ::testing::Values(loopbackSocket(2, 1)), nameOf);

}  // namespace
}  // namespace cgx::transport
