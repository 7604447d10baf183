// The contract of transport.h, part 3: how two ends find each other, and who is kept out.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <set>

#include "cgx/log.h"
#include "cgx/wire_link.h"
#include "contract/connect_helpers.h"
#include "contract/transport_fixture.h"
#include "transport/handshake.h"
#include "transport/socket/socket_stream.h"

namespace cgx::transport {
namespace {

class TransportConnect : public TransportContract {};

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
    EXPECT_LT(Clock::now() - begin, seconds(6));  // never blocks; generous, for a loaded machine
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
  EXPECT_LT(Clock::now() - begin, seconds(6));
  // The slow ones are dropped after their deadline.
  for (const int fd : slow) {
    char byte;
    EXPECT_EQ(::recv(fd, &byte, 1, 0), 0);
    ::close(fd);
  }
  EXPECT_LT(Clock::now() - begin, seconds(12));
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
