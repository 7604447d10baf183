// The contract of transport.h: what a transport takes of its process, and that it gives it back.
#include <sys/resource.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>

#include "contract/connect_helpers.h"

namespace cgx::transport {
namespace {

class TransportResources : public TransportContract {};

TEST_P(TransportResources, DescriptorsAndThreadsGoWithTheLastConnection) {
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

TEST_P(TransportResources, ProgressThreadsLeaveSignalsToTheHostButTakeTheirOwnFaults) {
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

TEST_P(TransportResources, MakingATransportStartsNoThread) {
  listener_.reset();
  const std::size_t threads = threadCount();
  auto other = GetParam().create(settings_);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(threadCount(), threads);
}

TEST_P(TransportResources, RunningOutOfDescriptorsNamesTheLimitAndHurtsNobodyElse) {
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

TEST_P(TransportResources, PortsComeFromTheRangeAndItsExhaustionIsNamed) {
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

INSTANTIATE_TEST_SUITE_P(Transports, TransportResources, ::testing::Values(loopbackSocket(1, 1), loopbackSocket(4, 2)),
                         nameOf);

}  // namespace
}  // namespace cgx::transport
