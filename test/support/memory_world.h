// N communicators in one process and one thread: every message delivery, completion and job is an event, and a seed
// decides which of the possible ones happens next. So a test can try thousands of orders and repeat any of them. Knows
// the contracts, no sockets, no threads.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cfenv>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cgx/executor.h"
#include "cgx/transport.h"

namespace cgx::test {

class MemoryWorld {
 public:
  explicit MemoryWorld(std::uint64_t seed) : random_(seed) {}

  /// Adds something that can happen.
  void add(std::function<void()> event) { events_.push_back(std::move(event)); }

  /// Lets one event happen; false when none is left.
  bool step() {
    if (events_.empty()) return false;
    const std::size_t pick = random_() % events_.size();
    std::function<void()> event = std::move(events_[pick]);
    events_[pick] = std::move(events_.back());
    events_.pop_back();
    event();
    return true;
  }
  void run() {
    while (step()) {
    }
  }
  std::mt19937_64& random() { return random_; }

  /// A message that a connection has carried; for tests that count.
  void carry(std::size_t bytes) {
    ++messages_;
    bytes_ += bytes;
  }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::mt19937_64 random_;
  std::vector<std::function<void()>> events_;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Runs jobs as events. A job posted twice before it ran would be a bug of the poster.
class MemoryExecutor final : public Executor {
 public:
  /// `hostileFloats`: each job finds a floating-point environment that some host program left behind.
  explicit MemoryExecutor(MemoryWorld& world, bool hostileFloats = false)
      : world_(world), hostileFloats_(hostileFloats) {}
  void post(Job& job, Urgency) noexcept override {
    world_.add([this, &job] {
      std::fenv_t before;
      std::fegetenv(&before);
      if (hostileFloats_) spoil();
      job.run(&job);
      std::fesetenv(&before);
    });
  }

 private:
  void spoil() {
    static constexpr int kModes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    std::fesetround(kModes[world_.random()() % 4]);
#if defined(__SSE2__)
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kDenormalsAreZero = 0x0040;
    if (world_.random()() % 2 == 0) _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#endif
  }

  MemoryWorld& world_;
  const bool hostileFloats_;
};

/// One end of a link in memory, with the matching rules of transport::Connection.
class MemoryConnection final : public transport::Connection {
 public:
  static std::pair<std::unique_ptr<MemoryConnection>, std::unique_ptr<MemoryConnection>> pair(MemoryWorld& world, int a,
                                                                                              int b) {
    auto link = std::make_shared<Link>();
    auto first = std::unique_ptr<MemoryConnection>(new MemoryConnection(world, link, 0, "rank " + std::to_string(b)));
    auto second = std::unique_ptr<MemoryConnection>(new MemoryConnection(world, link, 1, "rank " + std::to_string(a)));
    return {std::move(first), std::move(second)};
  }
  ~MemoryConnection() override { close({}); }

  Status send(std::span<const std::byte> data, int tag, transport::Priority,
              transport::Completion& completion) override {
    if (!link_->error.ok()) return link_->error;
    link_->sides[side_].sends.push_back({data, tag, &completion});
    match(link_, side_, world_);
    return {};
  }

  Status recv(std::span<const transport::Slot> slots, transport::Completion& completion) override {
    if (!link_->error.ok()) return link_->error;
    if (slots.size() != 1) return Status::internal("the memory link takes single receives only");
    link_->sides[side_].receives.push_back({slots[0], &completion});
    match(link_, 1 - side_, world_);
    return {};
  }

  Status status() const override { return link_->error; }

  void close(const Status& why) noexcept override {
    if (!link_->error.ok()) return;
    link_->error = Status::remote(why.failed() ? peer_ + " said: " + why.text() : "closed");
    for (Side& side : link_->sides) {
      for (Send& s : std::exchange(side.sends, {})) s.completion->done(s.completion, link_->error);
      for (Receive& r : std::exchange(side.receives, {})) r.completion->done(r.completion, link_->error);
      for (transport::Completion* c : std::exchange(side.flying, {})) c->done(c, link_->error);
    }
  }
  const std::string& peer() const override { return peer_; }
  std::span<const std::byte> hello() const override { return {}; }

 private:
  struct Send {
    std::span<const std::byte> data;
    int tag;
    transport::Completion* completion;
  };
  struct Receive {
    transport::Slot slot;
    transport::Completion* completion;
  };
  struct Side {
    std::deque<Send> sends;
    std::deque<Receive> receives;
    std::vector<transport::Completion*> flying;  // matched, not yet told
  };
  struct Link {
    std::array<Side, 2> sides;
    Status error;
  };

  MemoryConnection(MemoryWorld& world, std::shared_ptr<Link> link, std::size_t side, std::string peer)
      : world_(world), link_(std::move(link)), side_(side), peer_(std::move(peer)) {}

  static void tell(const std::shared_ptr<Link>& link, std::size_t side, transport::Completion* completion) {
    std::erase(link->sides[side].flying, completion);
    completion->done(completion, {});
  }

  // Pairs the sends of `from` with the receives of the other side; each pair becomes two events.
  static void match(const std::shared_ptr<Link>& link, std::size_t from, MemoryWorld& world) {
    Side& sender = link->sides[from];
    Side& receiver = link->sides[1 - from];
    for (auto send = sender.sends.begin(); send != sender.sends.end();) {
      auto receive = receiver.receives.begin();
      while (receive != receiver.receives.end() && receive->slot.tag != send->tag) ++receive;
      if (receive == receiver.receives.end()) {
        ++send;
        continue;
      }
      const Send s = *send;
      const Receive r = *receive;
      send = sender.sends.erase(send);
      receiver.receives.erase(receive);
      sender.flying.push_back(s.completion);
      receiver.flying.push_back(r.completion);
      world.add([link, from, s, r, &world] {
        if (!link->error.ok()) return;
        if (!s.data.empty()) std::memcpy(r.slot.data.data(), s.data.data(), s.data.size());
        r.completion->sizes[0] = s.completion->sizes[0] = s.data.size();
        world.carry(s.data.size());
        world.add([link, from, s] {
          if (link->error.ok()) tell(link, from, s.completion);
        });
        world.add([link, from, r] {
          if (link->error.ok()) tell(link, 1 - from, r.completion);
        });
      });
    }
  }

  MemoryWorld& world_;
  std::shared_ptr<Link> link_;
  std::size_t side_;
  std::string peer_;
};

}  // namespace cgx::test
