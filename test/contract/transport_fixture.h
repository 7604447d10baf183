// Two endpoints of one transport in this process, and completions that a test can wait for. Knows the contract only: a
// transport plugs in by a factory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cgx/transport.h"

namespace cgx::transport {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// How a transport takes part in the suite.
struct Candidate {
  std::string name;
  std::function<Settings()> settings;
  std::function<Result<std::unique_ptr<Transport>>(const Settings&)> create;
};
inline std::ostream& operator<<(std::ostream& out, const Candidate& candidate) { return out << candidate.name; }
inline std::string nameOf(const ::testing::TestParamInfo<Candidate>& info) { return info.param.name; }

/// A socket transport over loopback with `streams` streams and `threads` progress threads.
inline Candidate loopbackSocket(int streams, int threads) {
  const auto settings = [=] {
    Settings s;
    s.ifname = "lo";
    s.streams = streams;
    s.progressThreads = threads;
    s.connectTimeout = 10;
    return s;
  };
  return {"Socket" + std::to_string(streams) + "Streams" + std::to_string(threads) + "Threads", settings, createSocket};
}

/// A completion that remembers.
class Waiter : public Completion {
 public:
  Waiter() {
    done = [](Completion* self, const Status& status) noexcept { static_cast<Waiter*>(self)->finish(status); };
  }
  bool told() const { return told_.load(std::memory_order_acquire); }
  int times() const { return times_.load(); }
  Clock::time_point when() const { return when_; }
  const Status& status() const { return status_; }
  /// False when it was not told in time.
  bool wait(std::chrono::milliseconds limit = seconds(20)) const {
    const auto end = Clock::now() + limit;
    while (!told() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return told();
  }
  void reset() {
    status_ = {};
    sizes = {};
    told_ = false;
  }

 private:
  void finish(const Status& status) {
    status_ = status;
    when_ = Clock::now();
    ++times_;
    told_.store(true, std::memory_order_release);
  }
  Status status_;
  Clock::time_point when_;
  std::atomic<bool> told_{false};
  std::atomic<int> times_{0};
};

/// Bytes that depend on their position and on `seed`.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  std::uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::size_t at = 0; at < bytes; at += sizeof x) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    std::memcpy(data.data() + at, &x, std::min(sizeof x, bytes - at));
  }
  return data;
}

/// Drives a connector and a listener from one thread until both ends exist, as NCCL does.
struct Ends {
  std::unique_ptr<Connection> dialer;
  std::unique_ptr<Connection> acceptor;
};
inline Ends join(Transport& transport, Listener& listener, const ConnectOptions& options, int device = 0) {
  Ends ends;
  Result<std::unique_ptr<Connector>> connector = transport.connect(device, listener.handle(), options);
  EXPECT_TRUE(connector.ok()) << connector.status().text();
  const auto end = Clock::now() + seconds(20);
  while (connector.ok() && Clock::now() < end && !(ends.dialer && ends.acceptor)) {
    if (!ends.dialer) {
      const Status status = connector.value()->progress();
      if (status.ok()) ends.dialer = connector.value()->take();
      EXPECT_FALSE(status.failed()) << status.text();
      if (status.failed()) break;
    }
    if (!ends.acceptor) {
      Result<std::unique_ptr<Connection>> accepted = listener.accept();
      if (accepted.ok()) ends.acceptor = std::move(accepted).value();
      EXPECT_FALSE(accepted.status().failed()) << accepted.status().text();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_TRUE(ends.dialer && ends.acceptor);
  return ends;
}

class TransportContract : public ::testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override { build(GetParam().settings()); }
  void build(const Settings& settings) {
    a_.reset(), b_.reset(), listener_.reset(), transport_.reset();
    settings_ = settings;
    Result<std::unique_ptr<Transport>> made = GetParam().create(settings_);
    ASSERT_TRUE(made.ok()) << made.status().text();
    transport_ = std::move(made).value();
    Result<std::unique_ptr<Listener>> listener = transport_->listen(0, Role::Net);
    ASSERT_TRUE(listener.ok()) << listener.status().text();
    listener_ = std::move(listener).value();
  }
  /// a_ dialed, b_ accepted.
  void connect() {
    Ends ends = join(*transport_, *listener_, {});
    a_ = std::move(ends.dialer);
    b_ = std::move(ends.acceptor);
    ASSERT_TRUE(a_ && b_);
  }
  static Status post(Connection& to, std::span<std::byte> memory, Waiter& waiter, int tag = 0) {
    const Slot slot{memory, tag};
    return to.recv({&slot, 1}, waiter);
  }

  Settings settings_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connection> a_;
  std::unique_ptr<Connection> b_;
};

}  // namespace cgx::transport
