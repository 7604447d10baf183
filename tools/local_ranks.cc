#include "local_ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "rendezvous.h"

namespace cgx::tool {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGrace =
    std::chrono::seconds(10);  // for the others, after the first rank failed: promise 7 gives them 5 s to notice
constexpr int kFailed = 2;

struct Child {
  pid_t pid = -1;
  bool running = false;
};

/// Only async-signal-safe calls between fork and exec; `argv` was built before.
pid_t start(char* const* argv, int keepFd) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kFailed);  // the parent ended before prctl
  if (keepFd >= 0) (void)::fcntl(keepFd, F_SETFD, 0);
  ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

std::vector<std::string> argumentsOf(const std::vector<std::string>& shared, int rank, int ranks, int port,
                                     int listenFd) {
  std::vector<std::string> own = shared;
  own.insert(own.end(), {"--rank", std::to_string(rank), "--nranks", std::to_string(ranks), "--root",
                         "127.0.0.1:" + std::to_string(port)});
  if (rank == 0) own.insert(own.end(), {"--root-fd", std::to_string(listenFd)});
  return own;
}

/// Exit status of an ended child; tells of a violent end.
int verdict(int rank, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 127 ? kFailed : WEXITSTATUS(status);
  const int signal = WTERMSIG(status);
  std::fprintf(stderr, "cgx perf: rank %d was killed by signal %d (%s)\n", rank, signal, ::strsignal(signal));
  return kFailed;
}

void killAll(const std::vector<Child>& children) {
  for (const Child& child : children)
    if (child.running) (void)::kill(child.pid, SIGKILL);
}

int waitForAll(std::vector<Child>* children) {
  int worst = 0;
  bool killed = false;
  Clock::time_point deadline = Clock::time_point::max();
  std::size_t running = static_cast<std::size_t>(
      std::count_if(children->begin(), children->end(), [](const Child& child) { return child.running; }));
  while (running > 0) {
    for (std::size_t rank = 0; rank < children->size(); ++rank) {
      Child& child = (*children)[rank];
      int status = 0;
      if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      --running;
      const int code = killed ? 0 : verdict(static_cast<int>(rank), status);
      worst = std::max(worst, code);
      if (code != 0 && deadline == Clock::time_point::max()) deadline = Clock::now() + kGrace;
    }
    if (running > 0 && !killed && Clock::now() >= deadline) {
      std::fprintf(stderr, "cgx perf: %zu ranks did not end after another had failed; killed\n", running);
      killAll(*children);
      killed = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return worst;
}

}  // namespace

int runLocalRanks(const std::vector<std::string>& arguments, int ranks) {
  int port = 0;
  Result<int> listener = listenAt("127.0.0.1", &port);
  if (!listener.ok()) {
    std::fprintf(stderr, "cgx perf: %s\n", listener.status().text().c_str());
    return kFailed;
  }
  const int listenFd = listener.value();
  // As launchers do: the plugin shares the cores among so many.
  (void)::setenv("LOCAL_WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  std::vector<Child> children(static_cast<std::size_t>(ranks));
  bool allStarted = true;
  for (int rank = 0; rank < ranks && allStarted; ++rank) {
    std::vector<std::string> own = argumentsOf(arguments, rank, ranks, port, listenFd);
    std::vector<char*> argv;
    for (std::string& argument : own) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t pid = start(argv.data(), rank == 0 ? listenFd : -1);
    if (pid < 0) {
      std::fprintf(stderr, "cgx perf: rank %d cannot be started: %s\n", rank, std::strerror(errno));
      allStarted = false;
    } else {
      children[static_cast<std::size_t>(rank)] = {pid, true};
    }
  }
  ::close(listenFd);
  if (!allStarted) killAll(children);
  const int worst = waitForAll(&children);
  return allStarted ? worst : kFailed;
}

}  // namespace cgx::tool
