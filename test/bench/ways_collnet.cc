// Chunks through staging: 8 steps for each group of 8 channels in flight, tested oldest first. Slots are filled from a
// little memory that stays in the cache, and nothing is copied out: a GPU does that, without the CPU's help.
#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "bench/ways.h"

namespace cgx::bench {
namespace {

using namespace cgx::host;

constexpr std::size_t kSteps = 8;          // NCCL_STEPS
constexpr std::size_t kGroupChannels = 8;  // COLLNET_GROUP_NSUBS
constexpr std::size_t kBuffer = 4 << 20;   // NCCL_BUFFSIZE
constexpr std::size_t kMost = 256 << 10;
constexpr std::size_t kCached = 256 << 10;

class CollnetWay : public Way {
 public:
  CollnetWay(int channels, ChunkRule chunk, ncclDataType_t dtype)
      : channels_(static_cast<std::size_t>(channels)), chunk_(std::move(chunk)), dtype_(dtype) {}

  bool open(Rank& rank) override {
    CommOptions options;
    options.channels = static_cast<int>(channels_);
    options.buffBytes = kBuffer;
    comm_ = std::make_unique<CollComm>(rank, options);
    return comm_->setUp();
  }

  bool run(std::span<std::byte> data) override {
    plan(data.size());
    std::size_t next = 0, oldest = 0;
    auto moved = Clock::now();
    while (oldest < calls_.size()) {
      const bool posted = next < calls_.size() && mayPost(next) && post(data, next);
      if (posted) ++next;
      bool tested = false;
      if (oldest < next && !testOldest(oldest, &tested)) return false;
      if (tested) ++oldest;
      if (posted || tested) {
        moved = Clock::now();
      } else if (Seconds(Clock::now() - moved).count() > comm_->rank().limits().operationSeconds) {
        return comm_->ok(ncclInternalError, "an all-reduce that never ends: collnet test");
      } else {
        std::this_thread::yield();
      }
    }
    return true;
  }

 private:
  struct Call {
    std::size_t slot, bytes, valid;
    void* request = nullptr;
    bool filled = false;
  };

  void plan(std::size_t all) {
    const std::size_t chunk = chunk_(all, static_cast<int>(channels_));
    const std::size_t loop = channels_ * chunk;
    calls_.clear();
    for (std::size_t step = 0; step * loop < all; ++step) {
      for (std::size_t first = 0; first < channels_; first += kGroupChannels) {
        const std::size_t bytes = std::min(kGroupChannels, channels_ - first) * chunk;
        const std::size_t begin = std::min(step * loop + first * chunk, all);
        calls_.push_back({(step % kSteps) * comm_->slotStride() + first * chunk, bytes, std::min(bytes, all - begin),
                          nullptr, false});
      }
    }
    groups_ = (channels_ + kGroupChannels - 1) / kGroupChannels;
  }

  /// The slot is free when the call that had it has been tested.
  bool mayPost(std::size_t next) const {
    return next < kSteps * groups_ || calls_[next - kSteps * groups_].request == nullptr;
  }

  bool post(std::span<std::byte> data, std::size_t index) {
    Call& call = calls_[index];
    std::byte* send = comm_->staging() + call.slot;
    for (std::size_t done = 0; !call.filled && done < call.valid;) {
      const std::size_t n = std::min({call.valid - done, data.size(), kCached});
      std::memcpy(send + done, data.data(), n);
      done += n;
    }
    call.filled = true;
    (void)comm_->ok(
        comm_->abi().iallreduce(comm_->comm(), send, send + comm_->stagingBytes() / 2, call.bytes / bytesOf(dtype_),
                                dtype_, ncclSum, comm_->sendHandle(), comm_->recvHandle(), &call.request),
        "iallreduce");
    return call.request != nullptr;
  }

  bool testOldest(std::size_t index, bool* done) {
    Call& call = calls_[index];
    int finished = 0, size = 0;
    if (!comm_->ok(comm_->abi().test(call.request, &finished, &size), "collnet test")) return false;
    if (finished == 0) return true;
    call.request = nullptr;
    *done = true;
    return true;
  }

  std::size_t channels_;
  ChunkRule chunk_;
  ncclDataType_t dtype_;
  std::size_t groups_ = 1;
  std::unique_ptr<CollComm> comm_;
  std::vector<Call> calls_;
};

}  // namespace

std::size_t ncclsChunk(std::size_t bytes, int channels) {
  constexpr std::array<std::pair<std::size_t, std::size_t>, 3> kWanted{{{64, 128 << 10}, {8, 64 << 10}, {1, 32 << 10}}};
  std::size_t chunk = std::min(kMost, kBuffer / kSteps);
  for (const auto& [pieces, least] : kWanted) {
    while (bytes / (static_cast<std::size_t>(channels) * chunk) < pieces && chunk > least) chunk /= 2;
  }
  return chunk;
}

std::unique_ptr<Way> collnet(int channels, ChunkRule chunk, ncclDataType_t dtype) {
  return std::make_unique<CollnetWay>(channels, std::move(chunk), dtype);
}

}  // namespace cgx::bench
