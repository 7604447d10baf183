// A ring on each channel: in each loop a chunk for each rank goes once around to be summed and once around to be
// copied; each message waits for the one that it would hold the sum of.
#include <algorithm>
#include <cstring>
#include <thread>

#include "bench/ways.h"

namespace cgx::bench {
namespace {

using namespace cgx::host;

constexpr std::size_t kSlots = 4;          // messages in flight each way on a channel
constexpr std::size_t kMessage = 1 << 20;  // a quarter of NCCL_BUFFSIZE
constexpr std::size_t kMostChunk = 2 * kMessage;
constexpr std::size_t kLeastChunk = 1024;

class Channel {
 public:
  bool open(Rank& rank, int index) {
    rank_ = &rank;
    peer_ = std::make_unique<NetPeer>(rank);
    memory_.resize(kSlots * kMessage);
    return peer_->open(static_cast<std::uint64_t>(index) + 1) && peer_->connectRing(0) &&
           peer_->abi().regMr(peer_->recvComm(), memory_.data(), memory_.size(), &recvHandle_) == ncclSuccess;
  }

  /// Its part of an all-reduce: `data` begins and ends on whole elements.
  void begin(std::span<std::byte> data) {
    data_ = data;
    messages_.clear();
    const auto ranks = static_cast<std::size_t>(rank_->ranks());
    const std::size_t chunk = std::clamp((data.size() / ranks + 63) / 64 * 64, kLeastChunk, kMostChunk);
    const std::size_t slices = (chunk + kMessage - 1) / kMessage;
    lag_ = slices;
    for (std::size_t loop = 0; loop < data.size(); loop += chunk * ranks) {
      for (std::size_t step = 0; step < 2 * (ranks - 1); ++step) {
        for (std::size_t slice = 0; slice < slices; ++slice) {
          const auto place = [&](std::size_t back) {
            const std::size_t owner = (static_cast<std::size_t>(rank_->rank()) + 2 * ranks - back) % ranks;
            const std::size_t from = std::min(loop + owner * chunk + slice * kMessage, data.size());
            const std::size_t most = std::min(kMessage, chunk - slice * kMessage);
            return Place{from, std::min(most, data.size() - from)};
          };
          messages_.push_back({place(step % ranks), step == 0});
        }
      }
    }
    sends_.assign(messages_.size(), nullptr);
    recvs_.assign(messages_.size(), nullptr);
    sent_ = sendDone_ = posted_ = received_ = 0;
  }

  bool done() const { return sendDone_ == messages_.size() && received_ == messages_.size(); }

  /// False: an error. `moved` becomes true when anything happened.
  bool step(bool* moved) {
    if (posted_ < messages_.size() && posted_ < received_ + kSlots) {
      if (!post()) return false;
      *moved = *moved || recvs_[posted_] != nullptr;
      if (recvs_[posted_] != nullptr) ++posted_;
    }
    const bool ready = sent_ < messages_.size() && (messages_[sent_].first || received_ + lag_ > sent_);
    if (ready && sent_ < sendDone_ + kSlots) {
      const Place& place = messages_[sent_].send;
      if (peer_->abi().isend(peer_->sendComm(), data_.data() + place.begin, place.bytes, 0, nullptr, &sends_[sent_]) !=
          ncclSuccess)
        return false;
      *moved = *moved || sends_[sent_] != nullptr;
      if (sends_[sent_] != nullptr) ++sent_;
    }
    return testSend(moved) && testRecv(moved);
  }

 private:
  struct Place {
    std::size_t begin, bytes;
  };
  struct Message {
    Place send;
    bool first;
  };

  bool post() {
    void* to = memory_.data() + posted_ % kSlots * kMessage;
    std::size_t size = kMessage;
    int tag = 0;
    return peer_->abi().irecv(peer_->recvComm(), 1, &to, &size, &tag, &recvHandle_, &recvs_[posted_]) == ncclSuccess;
  }

  bool testSend(bool* moved) {
    if (sendDone_ == sent_) return true;
    int done = 0, size = 0;
    if (peer_->abi().test(sends_[sendDone_], &done, &size) != ncclSuccess) return false;
    *moved = *moved || done != 0;
    sendDone_ += done != 0 ? 1 : 0;
    return true;
  }

  bool testRecv(bool* moved) {
    if (received_ == posted_) return true;
    int done = 0, size = 0;
    if (peer_->abi().test(recvs_[received_], &done, &size) != ncclSuccess) return false;
    if (done == 0) return true;
    ++received_;
    *moved = true;
    return true;
  }

  Rank* rank_ = nullptr;
  std::unique_ptr<NetPeer> peer_;
  std::vector<std::byte> memory_;
  void* recvHandle_ = nullptr;
  std::span<std::byte> data_;
  std::vector<Message> messages_;
  std::vector<void*> sends_, recvs_;
  std::size_t lag_ = 1;
  std::size_t sent_ = 0, sendDone_ = 0, posted_ = 0, received_ = 0;
};

class RingWay : public Way {
 public:
  explicit RingWay(int channels) : channels_(static_cast<std::size_t>(channels)) {}

  bool open(Rank& rank) override {
    rank_ = &rank;
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      if (!channels_[i].open(rank, static_cast<int>(i))) return false;
    }
    return true;
  }

  bool run(std::span<std::byte> data) override {
    const std::size_t part = (data.size() / channels_.size() + 63) / 64 * 64;
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      const std::size_t from = std::min(i * part, data.size());
      channels_[i].begin(data.subspan(from, std::min(part, data.size() - from)));
    }
    auto last = Clock::now();
    for (;;) {
      bool moved = false, all = true;
      for (Channel& channel : channels_) {
        if (!channel.step(&moved)) return fail("a call of the ring failed");
        all = all && channel.done();
      }
      if (all) return true;
      if (moved) {
        last = Clock::now();
      } else if (Seconds(Clock::now() - last).count() > rank_->limits().operationSeconds) {
        return fail("a ring that never ends");
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  bool fail(const char* text) {
    rank_->report(Violation::HostFailed, text);
    return false;
  }

  Rank* rank_ = nullptr;
  std::vector<Channel> channels_;
};

}  // namespace

std::unique_ptr<Way> ring(int channels) { return std::make_unique<RingWay>(channels); }

}  // namespace cgx::bench
