// The contract of transport.h, part 4: peers that are killed or stopped, as processes of their own.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <filesystem>

#include "contract/transport_fixture.h"

namespace cgx::transport {
namespace {

/// A process that listens, accepts one connection, posts `receives` receives of `bytes`, and then obeys orders from a
/// pipe.
class PeerProcess {
 public:
  struct Plan {
    std::size_t receives = 0;
    std::size_t bytes = 0;
    std::size_t sends = 0;
  };
  PeerProcess(const Candidate& candidate, const Settings& settings, Plan plan) {
    int up[2];
    EXPECT_EQ(::pipe(up), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(up[0]);
      run(candidate, settings, plan, up[1]);
    }
    ::close(up[1]);
    EXPECT_EQ(::read(up[0], handle_.data(), handle_.size()), static_cast<ssize_t>(handle_.size()));
    pipe_ = up[0];
  }
  ~PeerProcess() {
    if (pid_ > 0) signal(SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(pipe_);
  }
  void signal(int number) const { ::kill(pid_, number); }
  /// Blocks until the peer has accepted and posted.
  void awaitReady() const {
    char byte;
    EXPECT_EQ(::read(pipe_, &byte, 1), 1);
  }
  /// The peer writes one byte for each receive done, with whether it was right.
  bool awaitReceived() const {
    char byte = 'n';
    return ::read(pipe_, &byte, 1) == 1 && byte == 'y';
  }
  const Handle& handle() const { return handle_; }

 private:
  [[noreturn]] static void run(const Candidate& candidate, const Settings& settings, Plan plan, int up) {
    auto transport = candidate.create(settings);
    auto listener = transport.value()->listen(0, Role::Net);
    if (::write(up, listener.value()->handle().data(), kHandleBytes) != kHandleBytes) ::_exit(1);
    std::unique_ptr<Connection> connection;
    while (!connection) {
      if (auto accepted = listener.value()->accept(); accepted.ok()) connection = std::move(accepted).value();
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::vector<std::vector<std::byte>> room(plan.receives, std::vector<std::byte>(plan.bytes));
    std::deque<Waiter> got(plan.receives), sent(plan.sends);
    for (std::size_t i = 0; i < plan.receives; ++i) (void)TransportPost(*connection, room[i], got[i]);
    const auto data = pattern(plan.bytes, 9);
    for (Waiter& waiter : sent) (void)connection->send(data, 0, Priority::Normal, waiter);
    if (::write(up, "r", 1) != 1) ::_exit(1);
    for (std::size_t i = 0; i < plan.receives; ++i) {
      while (!got[i].told()) std::this_thread::sleep_for(milliseconds(1));
      if (::write(up, got[i].status().ok() && room[i] == pattern(plan.bytes, i) ? "y" : "n", 1) != 1) ::_exit(1);
    }
    for (;;) ::pause();
  }
  static Status TransportPost(Connection& to, std::span<std::byte> memory, Waiter& waiter) {
    const Slot slot{memory, 0};
    return to.recv({&slot, 1}, waiter);
  }

  pid_t pid_ = -1;
  int pipe_ = -1;
  Handle handle_{};
};

class TransportDeath : public ::testing::TestWithParam<Candidate> {
 protected:
  /// Before any thread exists: the peer is a fork.
  void meet(PeerProcess::Plan plan) {
    settings_ = GetParam().settings();
    settings_.peerTimeout = 1;  // a stopped peer must survive it
    peer_ = std::make_unique<PeerProcess>(GetParam(), settings_, plan);
    transport_ = std::move(GetParam().create(settings_)).value();
    auto connector = std::move(transport_->connect(0, peer_->handle(), {})).value();
    for (const auto end = Clock::now() + seconds(20); !connection_ && Clock::now() < end;) {
      const Status status = connector->progress();
      ASSERT_FALSE(status.failed()) << status.text();
      if (status.ok()) connection_ = connector->take();
    }
    ASSERT_TRUE(connection_);
    peer_->awaitReady();
  }
  void expectLoss(Waiter& waiter) {
    ASSERT_TRUE(waiter.wait(seconds(5)));
    EXPECT_EQ(waiter.status().code(), Code::Remote) << waiter.status().text();
    EXPECT_NE(waiter.status().text().find("127.0.0.1:"), std::string::npos) << waiter.status().text();
    const auto begin = Clock::now();
    connection_->close({});
    EXPECT_LT(Clock::now() - begin, seconds(4));
  }
  Settings settings_;
  std::unique_ptr<PeerProcess> peer_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Connection> connection_;
};

TEST_P(TransportDeath, OfAnIdlePeerFailsAReceiveWithinFiveSeconds) {
  meet({});
  std::vector<std::byte> room(100);
  Waiter got;
  const Slot slot{room, 0};
  ASSERT_TRUE(connection_->recv({&slot, 1}, got).ok());
  peer_->signal(SIGKILL);
  expectLoss(got);
}

TEST_P(TransportDeath, InTheMiddleOfASendFailsIt) {
  meet({.receives = 1, .bytes = 256 << 20});
  const std::vector<std::byte> data(256 << 20);
  Waiter sent;
  ASSERT_TRUE(connection_->send(data, 0, Priority::Normal, sent).ok());
  std::this_thread::sleep_for(milliseconds(5));
  peer_->signal(SIGKILL);
  ASSERT_TRUE(sent.wait(seconds(5)));
  if (sent.status().ok()) GTEST_SKIP() << "the message was through before the peer died";
  expectLoss(sent);
}

TEST_P(TransportDeath, InTheMiddleOfAReceiveFailsIt) {
  meet({.bytes = 256 << 20, .sends = 1});
  std::vector<std::byte> room(256 << 20);
  Waiter got;
  const Slot slot{room, 0};
  ASSERT_TRUE(connection_->recv({&slot, 1}, got).ok());
  std::this_thread::sleep_for(milliseconds(5));
  peer_->signal(SIGKILL);
  ASSERT_TRUE(got.wait(seconds(5)));
  if (got.status().ok()) GTEST_SKIP() << "the message was through before the peer died";
  expectLoss(got);
}

TEST_P(TransportDeath, RaisesNoSignalHere) {
  struct sigaction before {
  }, after{};
  ::sigaction(SIGPIPE, nullptr, &before);
  meet({.receives = 32, .bytes = 100000});
  peer_->signal(SIGKILL);
  std::vector<std::byte> data(100000);
  for (int i = 0; i < 200; ++i) {
    Waiter sent;
    if (!connection_->send(data, 0, Priority::Normal, sent).ok()) break;
    ASSERT_TRUE(sent.wait(seconds(5)));
  }
  ::sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  EXPECT_EQ(connection_->status().code(), Code::Remote);
}

TEST_P(TransportDeath, IsNotWhatAStoppedPeerLooksLike) {
  constexpr std::size_t kBytes = 32 << 20;  // more than the kernels buffer: the peer's window closes
  meet({.receives = 2, .bytes = kBytes});
  peer_->signal(SIGSTOP);
  const auto first = pattern(kBytes, 0), second = pattern(kBytes, 1);
  Waiter sent, again;
  ASSERT_TRUE(connection_->send(first, 0, Priority::Normal, sent).ok());
  ASSERT_TRUE(connection_->send(second, 0, Priority::Normal, again).ok());
  std::this_thread::sleep_for(seconds(4));  // four times the peer timeout
  EXPECT_FALSE(sent.told()) << sent.status().text();
  ASSERT_TRUE(connection_->status().ok()) << connection_->status().text();
  peer_->signal(SIGCONT);
  ASSERT_TRUE(sent.wait() && again.wait());
  EXPECT_TRUE(sent.status().ok()) << sent.status().text();
  EXPECT_TRUE(peer_->awaitReceived());
  EXPECT_TRUE(peer_->awaitReceived());
}

TEST_P(TransportDeath, IsNotAwaitedByCloseWhenThePeerIsStopped) {
  meet({.receives = 4, .bytes = 16 << 20, .sends = 4});
  peer_->signal(SIGSTOP);
  const std::vector<std::byte> data(16 << 20);
  std::deque<Waiter> sent(32), got(32);
  std::vector<std::byte> room(16 << 20);
  const Slot slot{room, 7};
  for (Waiter& waiter : got) ASSERT_TRUE(connection_->recv({&slot, 1}, waiter).ok());
  for (Waiter& waiter : sent) ASSERT_TRUE(connection_->send(data, 0, Priority::Normal, waiter).ok());
  std::this_thread::sleep_for(milliseconds(100));
  const auto begin = Clock::now();
  connection_->close({});
  connection_.reset();  // the last of the process: joins the threads as well
  EXPECT_LT(Clock::now() - begin, seconds(4));
  for (const Waiter& waiter : sent) EXPECT_TRUE(waiter.told());
  for (const Waiter& waiter : got) EXPECT_TRUE(waiter.told());
}

TEST_P(TransportDeath, OfAStoppedPeerIsNoticedToo) {
  meet({});
  std::vector<std::byte> room(100);
  Waiter got;
  const Slot slot{room, 0};
  ASSERT_TRUE(connection_->recv({&slot, 1}, got).ok());
  peer_->signal(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_FALSE(got.told());
  peer_->signal(SIGKILL);
  expectLoss(got);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportDeath, ::testing::Values(loopbackSocket(2, 1)), nameOf);

}  // namespace
}  // namespace cgx::transport
