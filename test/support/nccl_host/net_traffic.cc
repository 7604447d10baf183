// Traffic of the net half: posts, tests in order, and which violation a difference is.
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <thread>

#include "support/nccl_host/net_peer.h"

namespace cgx::host {
namespace {

constexpr std::byte kUntouched{0x5C};
constexpr int kTag = 7;

}  // namespace

/// One direction each: posts, tests in order, checks.
class NetTrafficRun {
 public:
  NetTrafficRun(NetPeer& peer, const NetTraffic& traffic)
      : peer_(peer),
        rank_(peer.rank_),
        net_(peer.abi()),
        t_(traffic),
        source_((rank_.rank() + rank_.ranks() - 1) % rank_.ranks()) {
    const int asked = t_.outstanding > 0 ? t_.outstanding : net_.maxRequests();
    depth_ = std::min(asked, (t_.messages + t_.group - 1) / t_.group);
  }

  bool prepare() {
    // One registration a direction, over all buffers, as NCCL does with its own.
    const std::size_t slots = static_cast<std::size_t>(depth_ * t_.group);
    for (int i = 0; i < t_.messages; ++i)
      stride_ = std::max({stride_, messageBytes(t_, rank_.rank(), i), messageBytes(t_, source_, i)});
    stride_ = std::max<std::size_t>(stride_, 1);
    sendMemory_ = GuardedBuffer(&rank_.board(), rank_.rank(), slots * stride_);
    recvMemory_ = GuardedBuffer(&rank_.board(), rank_.rank(), slots * stride_);
    if (!sendMemory_.valid() || !recvMemory_.valid()) {
      rank_.report(Violation::HostFailed, "no memory for messages");
      return false;
    }
    return peer_.ok(
               rank_.call(
                   "regMr", CallKind::Setup,
                   [&] { return net_.regMr(peer_.sendComm_, sendMemory_.data(), sendMemory_.size(), &sendHandle_); }),
               "regMr") &&
           peer_.ok(
               rank_.call(
                   "regMr", CallKind::Setup,
                   [&] { return net_.regMr(peer_.recvComm_, recvMemory_.data(), recvMemory_.size(), &recvHandle_); }),
               "regMr");
  }

  TrafficEnd drive() {
    auto idleSince = Clock::now();
    while (received_ < groups() || sent_ < t_.messages) {
      progressed_ = false;
      postReceive();
      postSend();
      testReceive();
      testSend();
      if (failed_) return lossExpected() ? afterLoss() : TrafficEnd::Failed;
      if (t_.dyingRank == rank_.rank() && received_ * t_.group >= t_.dieAfter) raise(SIGKILL);
      if (progressed_) {
        idleSince = Clock::now();
        continue;
      }
      const double idle = Seconds(Clock::now() - idleSince).count();
      if (lossExpected() && rank_.someoneGone(rank_.everyone()) && idle > t_.lossSeconds) {
        rank_.report(Violation::PeerLossUnnoticed,
                     "no error " + std::to_string(t_.lossSeconds) + " s after a peer died");
        return TrafficEnd::Failed;
      }
      if (idle > rank_.limits().operationSeconds) {
        rank_.report(Violation::NeverCompletes, "received " + std::to_string(received_ * t_.group) + " and sent " +
                                                    std::to_string(sent_) + " of " + std::to_string(t_.messages) +
                                                    " messages, then nothing for " + std::to_string(idle) + " s");
        return TrafficEnd::Failed;
      }
      std::this_thread::yield();
    }
    return TrafficEnd::Done;
  }

  /// Posts what it can and leaves it there. The peer does the same and may be gone already: an error is no finding.
  void postOnly() {
    aborting_ = true;
    for (int i = 0; i < depth_ * t_.group; ++i) {
      postReceive();
      postSend();
    }
  }

  void finish() {
    if (sendHandle_)
      peer_.ok(rank_.call("deregMr", CallKind::Close, [&] { return net_.deregMr(peer_.sendComm_, sendHandle_); }),
               "deregMr");
    if (recvHandle_)
      peer_.ok(rank_.call("deregMr", CallKind::Close, [&] { return net_.deregMr(peer_.recvComm_, recvHandle_); }),
               "deregMr");
    if (!sendMemory_.canaryIntact() || !recvMemory_.canaryIntact())
      rank_.report(Violation::WritesOutsideBuffer, "a byte beside the registered memory has changed");
  }

  /// NCCL frees its buffers between deregMr and close*. Unmapped, a touch by a thread kills; kept, a write by the
  /// kernel shows.
  void freeMemory(bool unmap) {
    if (unmap) {
      sendMemory_.retire(Violation::TouchesStagingAfterDereg, "a send buffer after its deregMr");
      recvMemory_.retire(Violation::TouchesStagingAfterDereg, "a receive buffer after its deregMr");
    } else {
      before_ = XXH3_128bits(recvMemory_.data(), recvMemory_.size());
    }
  }
  void checkMemory(bool unmapped) {
    if (unmapped || XXH128_isEqual(before_, XXH3_128bits(recvMemory_.data(), recvMemory_.size()))) return;
    rank_.report(Violation::TouchesStagingAfterDereg, "a receive buffer was written after its deregMr");
  }

 private:
  enum class Failed { TestOfSend, TestOfReceive, Send, Receive };

  struct Pending {
    void* request = nullptr;
    int first = 0;     // message (send) or group (receive)
    int position = 0;  // of a send in the order of sends
  };

  int groups() const { return (t_.messages + t_.group - 1) / t_.group; }
  int groupCount(int group) const { return std::min(t_.group, t_.messages - group * t_.group); }
  bool lossExpected() const { return t_.dyingRank >= 0 || aborting_; }
  std::span<std::byte> slot(GuardedBuffer& memory, int number) const {
    const auto index = static_cast<std::size_t>(number % (depth_ * t_.group));
    return memory.span().subspan(index * stride_, stride_);
  }

  /// The order in which the messages of a group leave: a permutation that both could know, but only the sender needs.
  int sendOrder(int position) const {
    const int group = position / t_.group;
    const int n = groupCount(group);
    std::vector<int> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(messageKey(t_, rank_.rank(), -1 - group));
    std::shuffle(order.begin(), order.end(), random);
    return group * t_.group + order[static_cast<std::size_t>(position % t_.group)];
  }
  int tagOf(int message) const { return t_.group == 1 ? kTag : message % t_.group; }

  bool check(ncclResult_t result, Failed call) {
    if (result == ncclSuccess) return true;
    failed_ = true;
    lastError_ = result;
    failedCall_ = call;
    static constexpr const char* kNames[] = {"test of a send", "test of a receive", "isend", "irecv"};
    if (!lossExpected())
      rank_.report(Violation::CallFails,
                   std::string(kNames[static_cast<int>(call)]) + " returned " + std::to_string(result));
    return false;
  }

  void postReceive() {
    if (failed_ || posted_ == groups() || posted_ - received_ >= depth_) return;
    const int n = groupCount(posted_);
    std::array<void*, 8> data{};
    std::array<std::size_t, 8> sizes{};
    std::array<int, 8> tags{};
    std::array<void*, 8> handles{};
    for (int i = 0; i < n; ++i) {
      const int message = posted_ * t_.group + i;
      const auto s = static_cast<std::size_t>(i);
      const std::span<std::byte> memory = slot(recvMemory_, message);
      if (!refused_) std::fill(memory.begin(), memory.end(), kUntouched);
      // NCCL posts whole chunks and learns the size from test; every other message is posted with its exact size.
      sizes[s] = message % 2 == 0 ? stride_ : messageBytes(t_, source_, message);
      data[s] = sizes[s] == 0 ? nullptr : memory.data();
      handles[s] = sizes[s] == 0 ? nullptr : recvHandle_;
      tags[s] = tagOf(message);
    }
    void* request = nullptr;
    if (!check(rank_.call("irecv", CallKind::Data,
                          [&] {
                            return net_.irecv(peer_.recvComm_, n, data.data(), sizes.data(), tags.data(),
                                              handles.data(), &request);
                          }),
               Failed::Receive))
      return;
    refused_ = request == nullptr;
    if (request == reinterpret_cast<void*>(std::uintptr_t{NCCL_NET_OPTIONAL_RECV_COMPLETION}))
      rank_.report(Violation::CallFails, "irecv left 0x1 in *request");
    if (!request) return;
    receives_.push_back({request, posted_++, 0});
    progressed_ = true;
  }

  void postSend() {
    if (failed_ || started_ == t_.messages || started_ - sent_ >= depth_ * t_.group) return;
    const int message = sendOrder(started_);
    const std::size_t bytes = messageBytes(t_, rank_.rank(), message);
    // By position: messages of a group leave in another order than they are numbered.
    const std::span<std::byte> memory = slot(sendMemory_, started_).first(bytes);
    fillMessage(t_, rank_.rank(), message, memory);
    void* request = nullptr;
    void* data = bytes == 0 ? nullptr : memory.data();
    if (!check(rank_.call("isend", CallKind::Data,
                          [&] {
                            return net_.isend(peer_.sendComm_, data, bytes, tagOf(message),
                                              bytes == 0 ? nullptr : sendHandle_, &request);
                          }),
               Failed::Send) ||
        !request)
      return;
    sends_.push_back({request, message, started_++});
    progressed_ = true;
  }

  void testSend() {
    if (failed_ || sends_.empty()) return;
    int done = 0;
    int size = -1;
    const Pending p = sends_.front();
    if (!check(rank_.call("test", CallKind::Data, [&] { return net_.test(p.request, &done, &size); }),
               Failed::TestOfSend) ||
        !done)
      return;
    const std::size_t bytes = messageBytes(t_, rank_.rank(), p.first);
    if (size != static_cast<int>(bytes))
      rank_.report(Violation::WrongTestSize,
                   "send of " + std::to_string(bytes) + " bytes reported as " + std::to_string(size));
    std::vector<std::byte> want(bytes);
    fillMessage(t_, rank_.rank(), p.first, want);
    if (bytes > 0 && std::memcmp(want.data(), slot(sendMemory_, p.position).data(), bytes) != 0)
      rank_.report(Violation::WritesUserSendBuffer,
                   "message " + std::to_string(p.first) + " changed in the send buffer");
    sends_.pop_front();
    ++sent_;
    progressed_ = true;
  }

  void testReceive() {
    if (failed_ || receives_.empty()) return;
    int done = 0;
    std::array<int, 8> sizes;
    sizes.fill(-1);
    const Pending p = receives_.front();
    if (!check(rank_.call("test", CallKind::Data, [&] { return net_.test(p.request, &done, sizes.data()); }),
               Failed::TestOfReceive) ||
        !done)
      return;
    for (int i = 0; i < groupCount(p.first); ++i)
      checkMessage(p.first * t_.group + i, sizes[static_cast<std::size_t>(i)]);
    receives_.pop_front();
    ++received_;
    progressed_ = true;
  }

  void checkMessage(int message, int reported) {
    const std::size_t bytes = messageBytes(t_, source_, message);
    const std::span<std::byte> memory = slot(recvMemory_, message);
    std::vector<std::byte> want(bytes);
    fillMessage(t_, source_, message, want);
    const bool same = std::equal(want.begin(), want.end(), memory.begin());
    const std::string what = "message " + std::to_string(message) + " of " + std::to_string(bytes) + " bytes";
    if (!same || reported != static_cast<int>(bytes)) {
      const int other = whichMessage(message, reported, memory);
      if (other >= 0) {
        rank_.report(Violation::ReordersReceives, what + ": message " + std::to_string(other) + " came in its place");
      } else if (same) {
        rank_.report(Violation::WrongTestSize, what + " reported as " + std::to_string(reported));
      } else {
        rank_.report(Violation::CorruptsData, what + " differs from what was sent");
      }
      return;
    }
    const std::size_t room = message % 2 == 0 ? stride_ : bytes;
    for (std::size_t i = bytes; i < std::max(room, bytes); ++i) {
      if (memory[i] == kUntouched) continue;
      rank_.report(Violation::WritesOutsideBuffer, what + ": byte " + std::to_string(i) + " behind it was written");
      return;
    }
  }

  /// The message of at least 8 bytes whose size and contents these are, or -1.
  int whichMessage(int expected, int reported, std::span<const std::byte> memory) const {
    if (reported < 8) return -1;
    std::vector<std::byte> candidate(static_cast<std::size_t>(reported));
    for (int i = 0; i < t_.messages; ++i) {
      if (i == expected || messageBytes(t_, source_, i) != candidate.size()) continue;
      fillMessage(t_, source_, i, candidate);
      if (std::equal(candidate.begin(), candidate.end(), memory.begin())) return i;
    }
    return -1;
  }

  /// The error must stay: the call that failed is repeated.
  TrafficEnd afterLoss() {
    rank_.note("loss error", std::to_string(lastError_));
    int forgiven = 0;
    for (int i = 0; i < 100; ++i) {
      int done = 0;
      void* request = nullptr;
      void* none = nullptr;
      std::size_t size = 0;
      int tag = kTag;
      ncclResult_t again = ncclSuccess;
      switch (failedCall_) {
        case Failed::TestOfSend:
          again = net_.test(sends_.front().request, &done, nullptr);
          break;
        case Failed::TestOfReceive:
          again = net_.test(receives_.front().request, &done, nullptr);
          break;
        case Failed::Send:
          again = net_.isend(peer_.sendComm_, nullptr, 0, kTag, nullptr, &request);
          break;
        case Failed::Receive:
          again = net_.irecv(peer_.recvComm_, 1, &none, &size, &tag, &none, &request);
          break;
      }
      if (again == ncclSuccess) ++forgiven;
    }
    if (forgiven > 0)
      rank_.report(Violation::ErrorNotSticky,
                   std::to_string(forgiven) + " of 100 repeated calls succeeded after an error");
    return TrafficEnd::PeerLost;
  }

  NetPeer& peer_;
  Rank& rank_;
  NetAbi& net_;
  const NetTraffic& t_;
  int source_;
  int depth_ = 1;
  std::size_t stride_ = 0;
  GuardedBuffer sendMemory_;
  GuardedBuffer recvMemory_;
  void* sendHandle_ = nullptr;
  void* recvHandle_ = nullptr;
  std::deque<Pending> sends_;
  std::deque<Pending> receives_;
  int posted_ = 0;    // groups
  int received_ = 0;  // groups
  int started_ = 0;   // messages
  int sent_ = 0;      // messages
  bool progressed_ = false;
  bool refused_ = false;
  bool failed_ = false;
  bool aborting_ = false;
  XXH128_hash_t before_{};
  Failed failedCall_ = Failed::Send;
  ncclResult_t lastError_ = ncclSuccess;
};

TrafficEnd NetPeer::traffic(const NetTraffic& traffic) {
  abi().setAttributes(ctx_);
  NetTrafficRun run(*this, traffic);
  if (!run.prepare()) return TrafficEnd::Failed;
  TrafficEnd end = TrafficEnd::Failed;
  std::thread progress([&] { end = run.drive(); });
  progress.join();
  run.finish();
  return end;
}

void NetPeer::abandon(const NetTraffic& traffic, bool unmap) {
  NetTrafficRun run(*this, traffic);
  if (!run.prepare()) return;
  std::thread progress([&] { run.postOnly(); });
  progress.join();
  run.finish();
  run.freeMemory(unmap);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // what was in flight has time to arrive
  close();
  run.checkMemory(unmap);
}

}  // namespace cgx::host
