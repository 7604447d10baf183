// A man in the middle: a proxy between two ends of the socket transport turns one bit, or cuts. Nothing wrong may be
// delivered, and nobody may wait for ever.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <random>
#include <thread>

#include "cgx/wire_link.h"
#include "contract/transport_fixture.h"
#include "transport/checksum.h"

namespace cgx::transport {
namespace {

/// What happens once `bytes` have gone through one direction of one stream, since the start or since the handshake.
struct Mischief {
  enum class Kind { None, FlipBit, Cut } kind = Kind::None;
  std::size_t bytes = 0;
  int bit = 0;
  bool towardsListener = true;
  bool afterHandshake = false;
  bool allStreams = false;  // are cut, not only the one that has come so far
};

/// Forwards every stream of one connection between a dialer and a listener on loopback.
class Proxy {
 public:
  Proxy(const Handle& target, const Mischief& mischief) : mischief_(mischief), armed_(!mischief.afterHandshake) {
    wire::Handle fields;
    std::memcpy(&fields, target.data(), sizeof fields);
    target_.sin_family = AF_INET;
    target_.sin_port = htons(fields.port);
    std::memcpy(&target_.sin_addr, fields.address.data(), 4);
    server_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr = target_.sin_addr;
    socklen_t size = sizeof own;
    EXPECT_EQ(bind(server_, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    EXPECT_EQ(::listen(server_, 16), 0);
    getsockname(server_, reinterpret_cast<sockaddr*>(&own), &size);
    fields.port = ntohs(own.sin_port);
    fields.checksum = headChecksum(fields);
    std::memcpy(handle.data(), &fields, sizeof fields);
    thread_ = std::thread([this] { forward(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
    for (const int fd : sockets_) ::close(fd);
    ::close(server_);
  }

  /// The handshake is over.
  void arm() { armed_ = true; }
  bool done() const { return done_; }

  Handle handle{};

 private:
  struct Lane {
    int from;
    int to;
    bool towardsListener;
    bool ended = false;
    std::size_t passed = 0;
  };

  void forward() {
    std::vector<char> buffer(1 << 16);
    while (!stop_) {
      std::vector<pollfd> ready{{server_, POLLIN, 0}};
      for (const Lane& lane : lanes_) ready.push_back({lane.ended ? -1 : lane.from, POLLIN, 0});
      if (poll(ready.data(), ready.size(), 5) <= 0) continue;
      for (std::size_t i = 1; i < ready.size(); ++i)
        if (ready[i].revents != 0) pass(lanes_[i - 1], buffer);
      if (ready[0].revents != 0) meet();
    }
  }

  void meet() {
    const int dialer = accept4(server_, nullptr, nullptr, SOCK_CLOEXEC);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(listener, reinterpret_cast<const sockaddr*>(&target_), sizeof target_) != 0) ADD_FAILURE();
    sockets_.insert(sockets_.end(), {dialer, listener});
    lanes_.push_back({dialer, listener, true});
    lanes_.push_back({listener, dialer, false});
  }

  void pass(Lane& lane, std::vector<char>& buffer) {
    const bool armed = armed_;
    const bool mine = armed && lane.towardsListener == mischief_.towardsListener && !done_;
    const ssize_t got = recv(lane.from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got <= 0) {
      shutdown(lane.to, SHUT_WR);
      lane.ended = true;
      return;
    }
    auto size = static_cast<std::size_t>(got);
    if (mine && mischief_.bytes < lane.passed + size && mischief_.bytes >= lane.passed) {
      const std::size_t at = mischief_.bytes - lane.passed;
      if (mischief_.kind == Mischief::Kind::FlipBit) buffer[at] = static_cast<char>(buffer[at] ^ (1 << mischief_.bit));
      if (mischief_.kind == Mischief::Kind::Cut) size = at;
      done_ = mischief_.kind != Mischief::Kind::None;
    }
    if (armed) lane.passed += size;
    for (std::size_t sent = 0; sent < size;) {
      const ssize_t n = send(lane.to, buffer.data() + sent, size - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
    if (!mine || !done_ || mischief_.kind != Mischief::Kind::Cut) return;
    for (const Lane& other : lanes_)
      if (mischief_.allStreams || other.from == lane.from || other.from == lane.to) shutdown(other.from, SHUT_RDWR);
  }

  const Mischief mischief_;
  sockaddr_in target_{};
  int server_ = -1;
  std::atomic<bool> armed_;
  std::atomic<bool> done_{false};  // once in a connection is enough
  std::deque<Lane> lanes_;
  std::vector<int> sockets_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class TransportFaults : public TransportContract {
 protected:
  enum class End { Delivered, Failed, Wrong, Hung };

  /// One connection through the proxy and 24 messages each way; what became of them. Delivered: the mischief may have
  /// been met by another attempt of the dialer, never after the handshake.
  End talk(const Mischief& mischief) {
    // Of its own: an end that is left over from a failed attempt must not be taken for this attempt's.
    listener_.reset();
    listener_ = std::move(transport_->listen(0, Role::Net)).value();
    Proxy proxy(listener_->handle(), mischief);
    ConnectOptions options;
    options.timeout = milliseconds(500);
    Result<std::unique_ptr<Connector>> connector = transport_->connect(0, proxy.handle, options);
    if (!connector.ok()) return End::Failed;
    std::unique_ptr<Connection> a, b;
    for (const auto end = Clock::now() + seconds(4); !a || !b;) {
      if (Clock::now() > end)
        return a ? End::Failed : End::Hung;  // the listener waits longer for a stream that is gone
      if (!a) {
        const Status status = connector.value()->progress();
        if (status.failed()) return End::Failed;
        if (status.ok()) a = connector.value()->take();
      }
      if (!b) {
        Result<std::unique_ptr<Connection>> accepted = listener_->accept();
        if (accepted.ok()) b = std::move(accepted).value();
      }
      if (a && a->status().failed()) return End::Failed;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    proxy.arm();
    const End end = exchange(*a, *b, mischief.afterHandshake);
    EXPECT_EQ(proxy.done(), mischief.kind != Mischief::Kind::None);
    return end;
  }

  /// `paired`: they are two ends of one connection for certain. After a damaged handshake `b` may be what a failed
  /// attempt left behind.
  static End exchange(Connection& a, Connection& b, bool paired) {
    constexpr std::size_t kMessages = 24;
    std::deque<Waiter> waiters(4 * kMessages);
    std::vector<std::vector<std::byte>> data, room;
    for (std::size_t i = 0; i < 2 * kMessages; ++i) {
      data.push_back(pattern(i / 2 % 4 == 0 ? 70000 : i * 37, i));
      room.emplace_back(data.back().size());
    }
    bool failed = false;
    for (std::size_t i = 0; i < 2 * kMessages && !failed; ++i) {
      Connection& from = i % 2 == 0 ? a : b;
      Connection& to = i % 2 == 0 ? b : a;
      failed =
          !post(to, room[i], waiters[2 * i]).ok() || !from.send(data[i], 0, Priority::Normal, waiters[2 * i + 1]).ok();
    }
    const auto end = Clock::now() + seconds(12);
    End result = End::Delivered;
    for (std::size_t i = 0; i < 2 * kMessages && !failed; ++i) {
      Waiter& got = waiters[2 * i];
      while (!got.told() && !a.status().failed() && !b.status().failed()) {
        if (Clock::now() > end) return End::Hung;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      failed = !got.told() || got.status().failed();
    }
    if (failed) {
      result = End::Failed;
      while (paired && (!a.status().failed() || !b.status().failed())) {
        if (Clock::now() > end) return End::Hung;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
    a.close({}), b.close({});  // nothing of ours is touched any more
    for (std::size_t i = 0; i < 2 * kMessages; ++i)
      if (waiters[2 * i].told() && waiters[2 * i].status().ok() && room[i] != data[i]) return End::Wrong;
    return result;
  }
};

TEST_P(TransportFaults, NothingIsLostWithoutAFault) { EXPECT_EQ(talk({}), End::Delivered); }

// What the handshake's attempt loses, the next attempt may repair.
TEST_P(TransportFaults, InTheHandshakeAreNeverWrongDataAndEndInTime) {
  std::mt19937 random(4);
  for (int round = 0; round < 40; ++round) {
    const auto kind = round % 2 == 0 ? Mischief::Kind::FlipBit : Mischief::Kind::Cut;
    const bool towardsListener = random() % 2 == 0;
    const std::size_t at = random() % (towardsListener ? sizeof(wire::Hello) : sizeof(wire::Reply));
    const End end = talk({kind, at, static_cast<int>(random() % 8), towardsListener});
    EXPECT_TRUE(end == End::Failed || end == End::Delivered) << "byte " << at << ", round " << round;
  }
}

TEST_P(TransportFaults, ADamagedBitIsAnErrorAndNeverWrongData) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    // Half of them where headers and announcements are.
    const std::size_t at = random() % (round % 2 == 0 ? 3000 : 100000);
    const Mischief mischief{Mischief::Kind::FlipBit, at, static_cast<int>(random() % 8), random() % 2 == 0, true};
    ASSERT_EQ(talk(mischief), End::Failed) << "bit " << mischief.bit << " of byte " << at << ", towards the "
                                           << (mischief.towardsListener ? "listener" : "dialer");
  }
}

TEST_P(TransportFaults, ACutAnywhereIsAnErrorAndNeverWrongData) {
  std::mt19937 random(6);
  for (int round = 0; round < 100; ++round) {
    // The other streams of a connection get a second to bring what they have, so few rounds cut only one.
    const std::size_t at = random() % (round % 2 == 0 ? 3000 : 100000);
    const Mischief mischief{Mischief::Kind::Cut, at, 0, random() % 2 == 0, true, round % 50 != 0};
    ASSERT_EQ(talk(mischief), End::Failed) << "at byte " << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportFaults, ::testing::Values(loopbackSocket(1, 1), loopbackSocket(2, 1)),
                         nameOf);

}  // namespace
}  // namespace cgx::transport
