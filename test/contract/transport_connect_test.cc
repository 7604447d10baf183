// The contract of transport.h, part 3: how two ends find each other, and who is kept out.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <set>

#include "cgx/log.h"
#include "cgx/wire_link.h"
#include "contract/transport_fixture.h"
#include "transport/handshake.h"
#include "transport/socket/socket_stream.h"

namespace cgx::transport {
namespace {

class TransportConnect : public TransportContract {};

std::size_t entriesIn(const char* folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}
std::size_t openFds() { return entriesIn("/proc/self/fd"); }
std::size_t threadCount() { return entriesIn("/proc/self/task"); }

/// Until `count()` is `want`; joined threads and closed descriptors leave /proc a moment later.
template <class Count>
::testing::AssertionResult settlesAt(std::size_t want, Count count) {
  const auto end = Clock::now() + seconds(5);
  while (count() != want && Clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
  const std::size_t got = count();
  return got == want ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << got << " instead of " << want;
}

void exchangeBothWays(Connection& a, Connection& b, std::size_t bytes = 10000) {
  const auto data = pattern(bytes, 1);
  std::vector<std::byte> atA(bytes), atB(bytes);
  Waiter sentA, sentB, gotA, gotB;
  const Slot slotA{atA, 0}, slotB{atB, 0};
  ASSERT_TRUE(a.recv({&slotA, 1}, gotA).ok() && b.recv({&slotB, 1}, gotB).ok());
  ASSERT_TRUE(a.send(data, 0, Priority::Normal, sentA).ok() && b.send(data, 0, Priority::Normal, sentB).ok());
  ASSERT_TRUE(gotA.wait() && gotB.wait() && sentA.wait() && sentB.wait());
  ASSERT_TRUE(atA == data && atB == data);
}

std::uint16_t portOf(const Handle& handle) { return std::bit_cast<wire::Handle>(handle).port; }

int plainDial(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

Status drive(Connector& connector, std::chrono::milliseconds limit) {
  Status status = Status::pending();
  for (const auto end = Clock::now() + limit; status.isPending() && Clock::now() < end;) {
    const auto begin = Clock::now();
    status = connector.progress();
    EXPECT_LT(Clock::now() - begin, milliseconds(500));  // never blocks; generous, for a loaded machine
    std::this_thread::sleep_for(milliseconds(1));
  }
  return status;
}

TEST_P(TransportConnect, SixtyFourPairsMeetInOneThread) {
  struct Half {
    std::unique_ptr<Listener> listener;
    std::unique_ptr<Connector> connector;
    std::unique_ptr<Connection> dialer, acceptor;
  };
  std::vector<Half> pairs(64);
  for (Half& half : pairs) {
    half.listener = std::move(transport_->listen(0, Role::Net)).value();
    half.connector = std::move(transport_->connect(0, half.listener->handle(), {})).value();
  }
  const auto end = Clock::now() + seconds(20);
  for (std::size_t ready = 0; ready < 2 * pairs.size() && Clock::now() < end;) {
    ready = 0;
    for (Half& half : pairs) {
      if (!half.acceptor) {
        auto accepted = half.listener->accept();
        ASSERT_FALSE(accepted.status().failed()) << accepted.status().text();
        if (accepted.ok()) half.acceptor = std::move(accepted).value();
      }
      if (!half.dialer) {
        const Status status = half.connector->progress();
        ASSERT_FALSE(status.failed()) << status.text();
        if (status.ok()) half.dialer = half.connector->take();
      }
      ready += (half.acceptor ? 1u : 0u) + (half.dialer ? 1u : 0u);
    }
  }
  for (Half& half : pairs) {
    ASSERT_TRUE(half.dialer && half.acceptor);
    exchangeBothWays(*half.dialer, *half.acceptor, 100);
  }
}

TEST_P(TransportConnect, OneListenerServesManyDialersEachWithItsOwnHello) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<Connector>> connectors;
    for (int i = 0; i < 16; ++i) {
      const std::string hello = "dialer " + std::to_string(i);
      ConnectOptions options;
      options.hello = std::as_bytes(std::span(hello));
      options.peerName = "rank 3";
      connectors.push_back(std::move(transport_->connect(0, listener_->handle(), options)).value());
    }
    std::vector<std::unique_ptr<Connection>> dialers(16), acceptors;
    const auto end = Clock::now() + seconds(20);
    for (std::size_t ready = 0; ready < 16 || acceptors.size() < 16;) {
      ASSERT_LT(Clock::now(), end);
      ready = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        if (!dialers[i] && connectors[i]->progress().ok()) dialers[i] = connectors[i]->take();
        ready += dialers[i] ? 1u : 0u;
      }
      if (auto accepted = listener_->accept(); accepted.ok()) acceptors.push_back(std::move(accepted).value());
    }
    std::set<std::string> seen;
    for (const auto& acceptor : acceptors) {
      const std::string hello(reinterpret_cast<const char*>(acceptor->hello().data()), acceptor->hello().size());
      seen.insert(hello);
      exchangeBothWays(*dialers.at(std::stoul(hello.substr(7))), *acceptor, 1000);
    }
    EXPECT_EQ(seen.size(), 16u);
    EXPECT_EQ(dialers[0]->peer().rfind("rank 3 at 127.0.0.1:", 0), 0u) << dialers[0]->peer();
    EXPECT_TRUE(dialers[0]->hello().empty());
  }
}

// The progress thread is held up while they come, so that it finds all of them at once.
TEST_P(TransportConnect, ABurstOfGoodDialersPushesNobodyOut) {
  connect();
  struct Stall : Completion {
    std::binary_semaphore held{0}, release{0};
  } stall;
  stall.done = [](Completion* self, const Status&) noexcept {
    static_cast<Stall*>(self)->held.release();
    static_cast<Stall*>(self)->release.acquire();
  };
  const std::array<std::byte, 8> message{};
  std::array<std::byte, 8> arrived{};
  const Slot slot{arrived, 0};
  Waiter sent;
  ASSERT_TRUE(b_->recv({&slot, 1}, stall).ok() && a_->send(message, 0, Priority::Normal, sent).ok());
  stall.held.acquire();
  struct Dialer {
    Fd fd;
    DialHandshake handshake;
    Status status;
  };
  std::vector<Dialer> dialers;
  for (int i = 0; i < 200; ++i) {
    Introduction introduction;
    introduction.nonce = std::bit_cast<wire::Handle>(listener_->handle()).nonce;
    introduction.connection = randomNonce().value();
    Dialer& dialer = dialers.emplace_back(
        Dialer{Fd(plainDial(portOf(listener_->handle()))), DialHandshake(introduction), Status::pending()});
    ASSERT_EQ(::fcntl(dialer.fd.get(), F_SETFL, O_NONBLOCK), 0);
    socket::SocketStream stream(dialer.fd.get());
    dialer.status = dialer.handshake.progress(stream);
  }
  stall.release.release();
  const auto end = Clock::now() + seconds(20);
  for (Dialer& dialer : dialers) {
    socket::SocketStream stream(dialer.fd.get());
    while (dialer.status.isPending() && Clock::now() < end) dialer.status = dialer.handshake.progress(stream);
    EXPECT_TRUE(dialer.status.ok()) << dialer.status.text();
  }
  EXPECT_TRUE(sent.wait());
}

TEST_P(TransportConnect, AHandleMayBeUsedFromACopyAndBeforeAnybodyAccepts) {
  const Handle copy = listener_->handle();
  auto connector = std::move(transport_->connect(0, copy, {})).value();
  ASSERT_TRUE(drive(*connector, seconds(10)).ok());
  a_ = connector->take();
  // What is sent before the other side has accepted, or even posted, arrives when it has.
  const auto data = pattern(5 << 20, 1);
  Waiter sent, got;
  ASSERT_TRUE(a_->send(data, 0, Priority::Normal, sent).ok());
  for (const auto end = Clock::now() + seconds(10); !b_ && Clock::now() < end;) {
    if (auto accepted = listener_->accept(); accepted.ok()) b_ = std::move(accepted).value();
  }
  ASSERT_TRUE(b_);
  std::vector<std::byte> room(data.size());
  ASSERT_TRUE(post(*b_, room, got).ok());
  ASSERT_TRUE(got.wait() && sent.wait());
  EXPECT_TRUE(room == data);
}

TEST_P(TransportConnect, BadArgumentsAreRefusedAtOnce) {
  EXPECT_EQ(transport_->connect(0, Handle{}, {}).status().code(), Code::Invalid);
  EXPECT_EQ(transport_->connect(-1, listener_->handle(), {}).status().code(), Code::Invalid);
  EXPECT_EQ(transport_->connect(99, listener_->handle(), {}).status().code(), Code::Invalid);
  EXPECT_EQ(transport_->listen(1000, Role::Net).status().code(), Code::Invalid);
  ConnectOptions collective;
  collective.role = Role::Collective;
  EXPECT_EQ(transport_->connect(0, listener_->handle(), collective).status().code(), Code::Invalid);
  std::array<std::byte, kMaxHelloBytes + 1> tooLong{};
  ConnectOptions chatty;
  chatty.hello = tooLong;
  EXPECT_EQ(transport_->connect(0, listener_->handle(), chatty).status().code(), Code::Invalid);
}

TEST_P(TransportConnect, AStaleHandleIsRefusedWithTheReason) {
  auto fields = std::bit_cast<wire::Handle>(listener_->handle());
  fields.nonce[3] ^= 1;
  auto connector = std::move(transport_->connect(0, encodeHandle(fields), {})).value();
  const Status status = drive(*connector, seconds(5));
  EXPECT_EQ(status.code(), Code::Remote);
  EXPECT_NE(status.text().find("left over from another job"), std::string::npos) << status.text();
}

TEST_P(TransportConnect, NobodyThereIsRetriedUntilTheDeadlineAndThenNamed) {
  const Handle handle = listener_->handle();
  const std::string port = std::to_string(portOf(handle));
  listener_.reset();
  ConnectOptions options;
  options.timeout = milliseconds(300);
  auto connector = std::move(transport_->connect(0, handle, options)).value();
  const auto begin = Clock::now();
  const Status status = drive(*connector, seconds(10));
  EXPECT_GE(Clock::now() - begin, milliseconds(300));
  EXPECT_EQ(status.code(), Code::System);
  EXPECT_EQ(status.sysErrno(), ECONNREFUSED);
  EXPECT_NE(status.text().find("127.0.0.1:" + port), std::string::npos) << status.text();
  EXPECT_NE(status.text().find("Connection refused"), std::string::npos) << status.text();
  EXPECT_EQ(connector->progress().text(), status.text());
}

TEST_P(TransportConnect, AListenerThatComesLaterIsStillReached) {
  auto fields = std::bit_cast<wire::Handle>(listener_->handle());
  listener_.reset();
  auto connector = std::move(transport_->connect(0, encodeHandle(fields), {})).value();
  EXPECT_TRUE(drive(*connector, milliseconds(100)).isPending());
  // The same port, by another listener: reached, and its refusal of the old nonce proves it.
  Settings fixed = settings_;
  fixed.portRange = std::to_string(fields.port) + "-" + std::to_string(fields.port);
  auto other = std::move(GetParam().create(fixed)).value();
  auto listener = other->listen(0, Role::Net);
  ASSERT_TRUE(listener.ok()) << listener.status().text();
  const Status status = drive(*connector, seconds(10));
  EXPECT_NE(status.text().find("refused"), std::string::npos) << status.text();
}

std::atomic<int> warnings{0};

TEST_P(TransportConnect, StrangersAreDroppedWithoutDisturbingTheJob) {
  warnings = 0;
  log::setSink([](log::Level level, log::Subsys, const char*, int,
                  const char*) noexcept { warnings += level == log::Level::Warn; },
               log::Level::Warn);
  const std::string noise[] = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                               std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", 10), "x",
                               std::string(100000, 'z'), ""};
  std::vector<int> fds;
  for (int i = 0; i < 50; ++i) {
    fds.push_back(plainDial(portOf(listener_->handle())));
    const std::string& text = noise[static_cast<std::size_t>(i) % std::size(noise)];
    (void)::send(fds.back(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (i % 7 == 0) ::close(fds.back()), fds.pop_back();
  }
  connect();
  exchangeBothWays(*a_, *b_);
  for (const int fd : fds) ::close(fd);
  Ends later = join(*transport_, *listener_, {});
  exchangeBothWays(*later.dialer, *later.acceptor);
  EXPECT_LE(warnings, 4);
  EXPECT_GE(warnings, 1);
  log::setSink(nullptr, log::Level::None);
}

TEST_P(TransportConnect, SlowDialersDoNotHoldUpAGoodOne) {
  Settings quick = settings_;
  quick.connectTimeout = 1;
  build(quick);
  std::vector<int> slow;
  for (int i = 0; i < 3; ++i) slow.push_back(plainDial(portOf(listener_->handle())));
  const auto begin = Clock::now();
  for (const int fd : slow) (void)::send(fd, "C", 1, MSG_NOSIGNAL);
  connect();
  EXPECT_LT(Clock::now() - begin, seconds(2));
  // The slow ones are dropped after their deadline.
  for (const int fd : slow) {
    char byte;
    EXPECT_EQ(::recv(fd, &byte, 1, 0), 0);
    ::close(fd);
  }
  EXPECT_LT(Clock::now() - begin, seconds(5));
}

TEST_P(TransportConnect, UnfinishedHandshakesLeaveNothingBehind) {
  connect();
  const std::size_t fds = openFds();
  for (int i = 0; i < 100; ++i) {
    auto listener = std::move(transport_->listen(0, Role::Net)).value();
    auto connector = std::move(transport_->connect(0, listener->handle(), {})).value();
    for (int step = 0; step < i % 5; ++step) (void)connector->progress();
    if (i % 2 == 0) connector.reset();
    listener.reset();
  }
  EXPECT_TRUE(settlesAt(fds, openFds));
  exchangeBothWays(*a_, *b_);
}

TEST_P(TransportConnect, DescriptorsAndThreadsGoWithTheLastConnection) {
  listener_.reset();
  transport_.reset();
  const std::size_t fds = openFds(), threads = threadCount();
  for (int i = 0; i < 30; ++i) {
    build(settings_);
    connect();
    exchangeBothWays(*a_, *b_);
    if (i % 2 == 0) std::swap(a_, b_);
    a_.reset();
    b_.reset();
    listener_.reset();
    ASSERT_TRUE(settlesAt(threads, threadCount)) << i;
    transport_.reset();
  }
  EXPECT_TRUE(settlesAt(fds, openFds));
}

// A fault whose signal is blocked kills the process past every crash reporter.
std::uint64_t blockedSignals(const std::filesystem::path& task) {
  std::string line;
  std::ifstream status(task / "status");
  while (std::getline(status, line) && line.compare(0, 7, "SigBlk:") != 0) {
  }
  return std::stoull(line.substr(7), nullptr, 16);
}

TEST_P(TransportConnect, ProgressThreadsLeaveSignalsToTheHostButTakeTheirOwnFaults) {
  connect();
  int seen = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.compare(0, 7, "cgx-net") != 0) continue;
    const auto isBlocked = [&](int signal) { return (blockedSignals(task.path()) >> (signal - 1) & 1) != 0; };
    // The C library starts threads with everything blocked; give a new one the time to set its mask.
    for (int i = 0; i < 1000 && isBlocked(SIGSEGV); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGPROF}) EXPECT_TRUE(isBlocked(signal)) << signal;
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) EXPECT_FALSE(isBlocked(fault)) << fault;
    ++seen;
  }
  EXPECT_EQ(seen, settings_.progressThreads);
}

TEST_P(TransportConnect, MakingATransportStartsNoThread) {
  listener_.reset();
  const std::size_t threads = threadCount();
  auto other = GetParam().create(settings_);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(threadCount(), threads);
}

TEST_P(TransportConnect, RunningOutOfDescriptorsNamesTheLimitAndHurtsNobodyElse) {
  connect();
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit tight = before;
  tight.rlim_cur = openFds() + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::deque<Ends> more;
  std::vector<std::unique_ptr<Connector>> connectors;
  Status failure;
  for (int i = 0; i < 60 && !failure.failed(); ++i) {
    ConnectOptions options;
    options.timeout = seconds(2);
    auto connector = std::move(transport_->connect(0, listener_->handle(), options)).value();
    Ends ends;
    for (const auto end = Clock::now() + seconds(3);
         !failure.failed() && Clock::now() < end && !(ends.dialer && ends.acceptor);) {
      if (!ends.dialer) {
        const Status status = connector->progress();
        if (status.ok()) ends.dialer = connector->take();
        if (status.failed()) failure = status;
      }
      auto accepted = listener_->accept();
      if (accepted.ok()) ends.acceptor = std::move(accepted).value();
      if (accepted.status().failed()) failure = accepted.status();
    }
    more.push_back(std::move(ends));
  }
  EXPECT_EQ(failure.code(), Code::System) << failure.text();
  EXPECT_NE(failure.text().find("open files"), std::string::npos) << failure.text();
  EXPECT_NE(failure.text().find("RLIMIT_NOFILE"), std::string::npos) << failure.text();
  exchangeBothWays(*a_, *b_);
  more.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
  // The listener recovers by itself.
  std::unique_ptr<Connection> dialer, acceptor;
  auto connector = std::move(transport_->connect(0, listener_->handle(), {})).value();
  for (const auto end = Clock::now() + seconds(10); !(dialer && acceptor) && Clock::now() < end;) {
    if (!dialer && connector->progress().ok()) dialer = connector->take();
    // Dialers of before may come first; they are gone.
    if (auto accepted = listener_->accept(); accepted.ok()) acceptor = std::move(accepted).value();
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_TRUE(dialer);
}

TEST_P(TransportConnect, PortsComeFromTheRangeAndItsExhaustionIsNamed) {
  const std::uint16_t first = portOf(listener_->handle());
  Settings ranged = settings_;
  ranged.portRange = std::to_string(first) + "-" + std::to_string(first + 3);
  auto transport = std::move(GetParam().create(ranged)).value();
  std::vector<std::unique_ptr<Listener>> listeners;
  Status failure;
  while (listeners.size() < 5 && !failure.failed()) {
    auto listener = transport->listen(0, Role::Net);
    if (!listener.ok()) {
      failure = listener.status();
      break;
    }
    listeners.push_back(std::move(listener).value());
    EXPECT_GT(portOf(listeners.back()->handle()), first);  // the first port is taken by another listener: skipped
    EXPECT_LE(portOf(listeners.back()->handle()), first + 3);
  }
  EXPECT_LE(listeners.size(), 3u);
  EXPECT_EQ(failure.code(), Code::System);
  EXPECT_NE(failure.text().find("CGX_PORT_RANGE=" + ranged.portRange), std::string::npos) << failure.text();
  const std::size_t had = listeners.size();
  listeners.clear();
  for (std::size_t i = 0; i < had; ++i) listeners.push_back(std::move(transport->listen(0, Role::Net)).value());
}

TEST_P(TransportConnect, DevicesAreDescribed) {
  for (const Device& device : transport_->devices()) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.speedMbps, 0);
    EXPECT_NE(device.guid, 0u);
    EXPECT_TRUE(device.pciPath.empty() || std::filesystem::exists(device.pciPath)) << device.pciPath;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportConnect, ::testing::Values(loopbackSocket(1, 1), loopbackSocket(4, 2)),
                         nameOf);

}  // namespace
}  // namespace cgx::transport
