// Peers, strangers and limits that the real library's collectives meet: ranks that come late, stop or stop for good,
// garbage on the listener's port, no descriptors, storms of signals, many communicators.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>

#include "system/plugin_under_test.h"

namespace cgx::host {
namespace {

constexpr int kRoom = 5;  // for what these tests tell each other

void expectClean(const Verdict& verdict) { EXPECT_TRUE(verdict.clean()) << verdict.text(); }

bool anyWarning(const Verdict& verdict, const std::string& words) {
  return std::any_of(verdict.warnings.begin(), verdict.warnings.end(),
                     [&](const std::string& line) { return line.find(words) != std::string::npos; });
}

OpSpec large(std::size_t count = 300000) { return {.count = count, .bound = quantised(4)}; }

/// Everybody learns the process of the last rank.
pid_t processOfLast(Rank& rank) {
  std::vector<pid_t> all(static_cast<std::size_t>(rank.ranks()));
  const pid_t mine = getpid();
  if (!rank.allGather(kRoom, rank.everyone(), std::as_bytes(std::span(&mine, 1)),
                      std::as_writable_bytes(std::span(all)), 10))
    return -1;
  return all.back();
}

bool isStopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string words;
  std::getline(file, words);
  const std::size_t name = words.rfind(')');
  return name != std::string::npos && words.compare(name, 3, ") T") == 0;
}

TEST(SlowPeer, IsWaitedForWithoutAnError) {
  // Later than CGX_PEER_TIMEOUT: that is for silent hosts, and a late rank's host is not silent.
  const Verdict verdict = run(realPlugin(3, {{"CGX_PEER_TIMEOUT", "1"}, {"CGX_LATE_WARN", "0.5"}}), [](Rank& rank) {
    CollComm comm(rank, {});
    if (!comm.setUp()) return;
    for (std::uint64_t k = 0; k < 3; ++k) {
      if (rank.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(k == 1 ? 2500 : 200));
      if (!runOperations(comm, {large(), {.count = 1000}}, 2 * k)) return;
    }
  });
  expectClean(verdict);
  EXPECT_TRUE(anyWarning(verdict, "waiting")) << verdict.text();
}

TEST(StoppedPeer, IsWaitedForAndNamedAndTheSumIsRight) {
  const Verdict verdict = run(realPlugin(3, {{"CGX_LATE_WARN", "0.5"}}), [](Rank& rank) {
    CollComm comm(rank, {});
    const pid_t last = processOfLast(rank);
    if (last < 0 || !comm.setUp()) return;
    std::atomic<bool> all{false};
    std::thread keeper;
    if (rank.rank() == 0) {
      keeper = std::thread([&] {
        while (!all && !isStopped(last)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        kill(last, SIGCONT);
      });
    }
    // Between two calls, or the time would be that call's; the others' messages arrive meanwhile.
    if (runOperations(comm, std::vector<OpSpec>(6, large()))) {
      if (rank.rank() == 2) raise(SIGSTOP);
      runOperations(comm, std::vector<OpSpec>(6, large()), 6);
    }
    all = true;
    if (keeper.joinable()) keeper.join();
  });
  expectClean(verdict);
  EXPECT_TRUE(anyWarning(verdict, "waiting")) << verdict.text();
}

/// Rank 2 stops for `seconds` and is then killed. Notes when the others saw an error, in seconds since the stop.
Verdict stoppedThenKilled(const Environment& environment, double seconds) {
  RunOptions o = realPlugin(3, environment);
  o.mayDie = {2};
  return run(o, [seconds](Rank& rank) {
    CollComm comm(rank, {});
    const pid_t last = processOfLast(rank);
    if (last < 0 || !comm.setUp() || !rank.barrier(kRoom, rank.everyone(), 10)) return;
    if (rank.rank() == 2) {
      for (;;) pause();
    }
    const auto start = Clock::now();
    std::thread keeper;
    if (rank.rank() == 0) {
      keeper = std::thread([last, seconds] {
        kill(last, SIGSTOP);
        std::this_thread::sleep_for(Seconds(seconds));
        kill(last, SIGKILL);
      });
    }
    CollOp op(comm, large(), 0);
    drive({&op}, true);
    rank.note("error", std::to_string(op.error()));
    rank.note("seconds", std::to_string(Seconds(Clock::now() - start).count()));
    op.abandon();
    op.finish();
    const auto closing = Clock::now();
    comm.close();
    rank.note("close", std::to_string(Seconds(Clock::now() - closing).count()));
    if (keeper.joinable()) keeper.join();
  });
}

void expectRemoteErrorBetween(const Verdict& verdict, double from, double to) {
  expectClean(verdict);
  ASSERT_EQ(verdict.notes.count("close"), 1U) << verdict.text();
  for (const int rank : {0, 1}) {
    EXPECT_EQ(verdict.notes.at("error").at(rank), std::to_string(ncclRemoteError)) << "rank " << rank;
    EXPECT_GT(std::stod(verdict.notes.at("seconds").at(rank)), from) << "rank " << rank;
    EXPECT_LT(std::stod(verdict.notes.at("seconds").at(rank)), to) << "rank " << rank;
    EXPECT_LT(std::stod(verdict.notes.at("close").at(rank)), 1.5) << "rank " << rank;
  }
}

TEST(StoppedPeer, IsWaitedForUntilItIsKilled) { expectRemoteErrorBetween(stoppedThenKilled({}, 3), 2.9, 8); }

TEST(StoppedPeer, ThatIsLateIsAnErrorInTheUsersTime) {
  const Verdict verdict = stoppedThenKilled({{"CGX_OP_TIMEOUT", "1.5"}}, 5);
  expectRemoteErrorBetween(verdict, 1.4, 4.5);
  EXPECT_TRUE(anyWarning(verdict, "CGX_OP_TIMEOUT")) << verdict.text();
}

/// Ports on which this process listens.
std::set<std::uint16_t> ownPorts() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry, error).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::uint16_t> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    if (state == "0A" && inodes.contains(inode))
      ports.insert(static_cast<std::uint16_t>(std::stoi(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

/// Says one of several wrong things to each port, and stays connected.
void bother(std::set<std::uint16_t> ports, std::vector<int>* open, int turn) {
  static const std::string kSayings[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "CGHELLO1", "",
                                         std::string(100000, '\xff'),
                                         std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)};
  for (const std::uint16_t port : ports) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      const std::string& words = kSayings[static_cast<std::size_t>(turn) % std::size(kSayings)];
      static_cast<void>(send(fd, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      open->push_back(fd);
    } else {
      close(fd);
    }
  }
}

TEST(Strangers, OnTheListenersPortDisturbNoConnect) {
  RunOptions o = realPlugin(3, {{"NCCL_SOCKET_FAMILY", "AF_INET"}});
  const Verdict verdict = run(o, [](Rank& rank) {
    CollComm comm(rank, {});
    if (!comm.open()) return;
    std::atomic<bool> stop{false};
    std::atomic<int> met{0};
    std::vector<int> open;
    std::thread stranger([&] {
      for (int turn = 0; !stop && turn < 60; ++turn) {
        const auto ports = ownPorts();
        bother(ports, &open, turn);
        met += static_cast<int>(ports.size());
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    // The others are in connect for half a second before rank 1 comes.
    if (rank.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const bool connected = comm.connect() == Connected::Yes;
    stop = true;
    stranger.join();
    if (connected && comm.registerStaging()) runOperations(comm, {large(), {.count = 100}});
    for (const int fd : open) close(fd);
    rank.note("met", std::to_string(met));
  });
  expectClean(verdict);
  ASSERT_EQ(verdict.notes.count("met"), 1U) << verdict.text();
  EXPECT_GT(std::stoi(verdict.notes.at("met").at(0)), 2) << "no stranger found the port";
}

TEST(Descriptors, MissingOnOneRankFailTheConnectOfAllAndTheNextSucceeds) {
  RunOptions o = realPlugin(6, {{"CGX_CONNECT_TIMEOUT", "5"}});
  const Verdict verdict = run(o, [](Rank& rank) {
    rlimit old{};
    getrlimit(RLIMIT_NOFILE, &old);
    for (const bool few : {true, false}) {
      CollComm comm(rank, {.mayFail = few});
      if (!comm.open()) return;
      const auto used = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
      // Enough to listen and to meet one peer or two, not five.
      const rlimit low{static_cast<rlim_t>(used + 8), old.rlim_max};
      if (few && rank.rank() == 1) setrlimit(RLIMIT_NOFILE, &low);
      const Connected connected = comm.connect();
      setrlimit(RLIMIT_NOFILE, &old);
      rank.note(few ? "few" : "enough", connected == Connected::Yes ? "yes" : "no");
      if (connected == Connected::Yes && comm.registerStaging()) runOperations(comm, {large()});
    }
  });
  expectClean(verdict);
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(verdict.notes.at("few").at(rank), "no") << "rank " << rank;
    EXPECT_EQ(verdict.notes.at("enough").at(rank), "yes") << "rank " << rank;
  }
  EXPECT_TRUE(anyWarning(verdict, "open files")) << verdict.text();
}

std::atomic<long> signalsSeen{0};

/// A signal a millisecond whose handler interrupts system calls.
void startSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { signalsSeen.fetch_add(1); };
  sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, nullptr);
}

void stopSignals() {
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
}

TEST(Signals, ByTheThousandDisturbNeitherConnectNorTraffic) {
  const Verdict verdict = run(realPlugin(2), [](Rank& rank) {
    startSignals();
    {
      CollComm comm(rank, {});
      if (comm.setUp()) runOperations(comm, std::vector<OpSpec>(10, large(1000000)));
      NetPeer peer(rank);
      if (peer.open(2) && peer.connectRing()) {
        peer.traffic({.messages = 60, .sizes = {4 << 20, 0, 1, 70000}});
        rank.barrier(kRoom, rank.everyone(), 20);
      }
    }
    stopSignals();
    rank.note("signals", std::to_string(signalsSeen));
  });
  expectClean(verdict);
  ASSERT_EQ(verdict.notes.count("signals"), 1U) << verdict.text();
  EXPECT_GT(std::stoi(verdict.notes.at("signals").at(0)), 20);
}

TEST(Communicators, ThirtyTwoAtOnce) {
  const Verdict verdict = run(realPlugin(2), [](Rank& rank) {
    std::vector<std::unique_ptr<CollComm>> all;
    for (std::uint64_t k = 0; k < 32; ++k) {
      all.push_back(std::make_unique<CollComm>(rank, CommOptions{.channels = 1, .buffBytes = 256 << 10, .commId = k}));
      if (!all.back()->setUp()) return;
    }
    for (std::uint64_t k = 0; k < 32; ++k)
      if (!runOperations(*all[k], {large(20000), {.count = 5}}, 2 * k)) return;
    rank.barrier(kRoom, rank.everyone(), 10);
    rank.note("done", "yes");
  });
  expectClean(verdict);
  EXPECT_EQ(verdict.notes.count("done"), 1U) << verdict.text();
}

}  // namespace
}  // namespace cgx::host
