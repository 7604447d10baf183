// The parent's half: forks, listens, watches the clock, kills what is stuck, and says so by name.
#include "support/nccl_host/rank_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <thread>

namespace cgx::host {
namespace {

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::vector<int> ranks;
  std::string pending;  // bytes of a line not yet complete
  bool killed = false;  // by us, and already named
  bool ended = false;
};

void setEnvironment(const Environment& environment) {
  for (const auto& [key, value] : environment) setenv(key.c_str(), value.c_str(), 1);
}

void auditAfter(const Census& before, Rank& rank) {
  // A joined thread stays in /proc for a moment after pthread_join returns.
  std::vector<Finding> left;
  for (int i = 0; i < 40; ++i) {
    left = leaks(before, Census::take());
    if (left.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  rank.report(left);
}

void runBody(Rank& rank, const std::function<void(Rank&)>& body) {
  try {
    body(rank);
  } catch (const std::exception& e) {
    rank.report(Violation::HostFailed, std::string("the scenario threw: ") + e.what());
  }
  rank.board().gone[static_cast<std::size_t>(rank.rank())] = true;
}

[[noreturn]] void beChild(const RunOptions& options, const std::function<void(Rank&)>& body, Board* board, int index,
                          const std::vector<int>& ranks, int pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  catchFaults(board, index);
  setenv("NCCL_NET_PLUGIN", options.plugin.c_str(), 1);
  setEnvironment(options.environment);
  if (const auto own = options.rankEnvironment.find(ranks.front()); own != options.rankEnvironment.end())
    setEnvironment(own->second);

  std::vector<std::unique_ptr<Rank>> all;
  Library library(options.plugin, options.abi, [&](int level, const std::string& message) {
    if (!all.empty()) all.front()->logged(level, message);
  });
  for (const int r : ranks) all.push_back(std::make_unique<Rank>(r, options, board, &library, pipe));
  const Census before = Census::take();
  if (ranks.size() == 1) {
    runBody(*all.front(), body);
  } else {
    std::vector<std::thread> threads;
    threads.reserve(all.size());
    for (auto& rank : all) threads.emplace_back([&] { runBody(*rank, body); });
    for (auto& thread : threads) thread.join();
  }
  if (options.audit && !library.open()) auditAfter(before, *all.front());
  if (options.exitNormally) std::exit(0);
  _exit(0);
}

/// "rank 1 in connect for 3.2 s" for every call in progress of these ranks.
std::string whereabouts(const Board& board, const std::vector<int>& ranks) {
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
  std::ostringstream out;
  for (const CallSlot& slot : board.calls) {
    const char* call = slot.call.load(std::memory_order_acquire);
    const int rank = slot.rank.load();
    if (!call || std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
    if (out.tellp() > 0) out << ", ";
    out << "rank " << rank << " in " << call << " for " << static_cast<double>(now - slot.sinceNs.load()) * 1e-9
        << " s";
  }
  return out.str().empty() ? "in no call of the plugin" : out.str();
}

class Parent {
 public:
  Parent(const RunOptions& options, Board* board) : options_(options), board_(board) {}

  Verdict watch(std::vector<Child> children) {
    children_ = std::move(children);
    const auto start = Clock::now();
    const auto deadline = start + std::chrono::duration_cast<Clock::duration>(Seconds(options_.limits.runSeconds));
    while (std::any_of(children_.begin(), children_.end(), [](const Child& c) { return !c.ended; })) {
      listen();
      reap();
      killStuck();
      if (Clock::now() > deadline || onlyVictimsLeft()) killAll();
    }
    compareHashes();
    verdict_.seconds = Seconds(Clock::now() - start).count();
    return std::move(verdict_);
  }

 private:
  void listen() {
    std::vector<pollfd> fds;
    for (const Child& c : children_)
      if (!c.ended) fds.push_back({c.pipe, POLLIN, 0});
    poll(fds.data(), fds.size(), 20);
    for (Child& c : children_)
      if (!c.ended) drain(c);
  }

  void drain(Child& child) {
    std::array<char, 65536> buffer;
    for (;;) {
      const ssize_t n = read(child.pipe, buffer.data(), buffer.size());
      if (n <= 0) return;
      child.pending.append(buffer.data(), static_cast<std::size_t>(n));
      std::size_t end;
      while ((end = child.pending.find('\n')) != std::string::npos) {
        take(child.pending.substr(0, end));
        child.pending.erase(0, end + 1);
      }
    }
  }

  void take(const std::string& line) {
    std::vector<std::string> field;
    std::istringstream in(line);
    for (std::string f; std::getline(in, f, '\t');) field.push_back(f);
    if (field.size() == 3) field.emplace_back();
    if (field.size() != 4) return;
    const int rank = std::atoi(field[1].c_str());
    Violation violation{};
    if (field[0] == "F" && parse(field[2], &violation)) verdict_.findings.push_back({violation, rank, field[3]});
    if (field[0] == "H") verdict_.hashes[field[2]][rank] = field[3];
    if (field[0] == "N") verdict_.notes[field[2]][rank] = field[3];
    if (field[0] == "L") verdict_.warnings.push_back("rank " + field[1] + ": " + field[3]);
  }

  void reap() {
    for (Child& c : children_) {
      int status = 0;
      if (c.ended || waitpid(c.pid, &status, WNOHANG) != c.pid) continue;
      drain(c);
      c.ended = true;
      const std::string where = whereabouts(*board_, c.ranks);
      for (const int r : c.ranks) board_->gone[static_cast<std::size_t>(r)] = true;
      close(c.pipe);
      explain(c, status, where);
    }
  }

  void explain(const Child& c, int status, const std::string& where) {
    const Fault& fault = board_->faults[static_cast<std::size_t>(&c - children_.data())];
    if (fault.seen) {
      add(static_cast<Violation>(fault.violation.load()), fault.rank,
          std::string(fault.what.load()) + ": touched at offset " + std::to_string(fault.offset.load()) + "; " + where);
      return;
    }
    if (c.killed || std::any_of(c.ranks.begin(), c.ranks.end(), [&](int r) { return options_.mayDie.contains(r); }))
      return;
    const int rank = c.ranks.size() == 1 ? c.ranks.front() : -1;
    if (WIFSIGNALED(status)) {
      add(Violation::RankCrashed, rank, std::string("died of ") + strsignal(WTERMSIG(status)) + ", " + where);
    } else if (WEXITSTATUS(status) != 0) {
      add(Violation::RankCrashed, rank, "exit status " + std::to_string(WEXITSTATUS(status)) + ", " + where);
    }
  }

  void killStuck() {
    const std::int64_t now =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
    for (const CallSlot& slot : board_->calls) {
      const char* call = slot.call.load(std::memory_order_acquire);  // pairs with the release in CallMark
      const int rank = slot.rank.load();
      const double forSeconds = static_cast<double>(now - slot.sinceNs.load()) * 1e-9;
      if (!call || rank < 0 || forSeconds < slot.limitSeconds.load()) continue;
      for (Child& c : children_) {
        if (c.ended || c.killed || std::find(c.ranks.begin(), c.ranks.end(), rank) == c.ranks.end()) continue;
        if (options_.mayDie.contains(rank)) continue;  // stopped on purpose
        add(static_cast<Violation>(slot.violation.load()), rank,
            std::string(call) + " has not returned for " + std::to_string(forSeconds) + " s; the rank was killed");
        kill(c);
      }
    }
  }

  /// Ranks that the scenario stopped for ever need not be waited for.
  bool onlyVictimsLeft() const {
    return std::all_of(children_.begin(), children_.end(), [this](const Child& c) {
      return c.ended ||
             std::any_of(c.ranks.begin(), c.ranks.end(), [this](int r) { return options_.mayDie.contains(r); });
    });
  }

  void killAll() {
    for (Child& c : children_) {
      if (c.ended || c.killed) continue;
      const bool expected =
          std::any_of(c.ranks.begin(), c.ranks.end(), [&](int r) { return options_.mayDie.contains(r); });
      if (!expected)
        add(Violation::RankHangs, c.ranks.size() == 1 ? c.ranks.front() : -1,
            "still running after " + std::to_string(options_.limits.runSeconds) +
                " s: " + whereabouts(*board_, c.ranks));
      kill(c);
    }
  }

  static void kill(Child& c) {
    c.killed = true;
    ::kill(c.pid, SIGKILL);
  }

  void compareHashes() {
    for (const auto& [key, byRank] : verdict_.hashes) {
      std::map<std::string, std::string> groups;
      for (const auto& [rank, hash] : byRank) groups[hash] += std::to_string(rank) + " ";
      if (groups.size() < 2) continue;
      std::string text = key + ": ranks";
      for (const auto& [hash, ranks] : groups)
        text.append(" ").append(ranks).append("have ").append(hash, 0, 8).append(",");
      add(key.starts_with("reduceSupport") ? Violation::ReduceSupportDiffers : Violation::RanksDiffer, -1, text);
    }
  }

  void add(Violation violation, int rank, std::string text) {
    verdict_.findings.push_back({violation, rank, std::move(text)});
  }

  const RunOptions& options_;
  Board* board_;
  std::vector<Child> children_;
  Verdict verdict_;
};

}  // namespace

bool Verdict::has(Violation violation) const {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& f) { return f.violation == violation; });
}

bool Verdict::only(std::initializer_list<Violation> violations) const {
  return has(*violations.begin()) && std::all_of(findings.begin(), findings.end(), [&](const Finding& f) {
           return std::find(violations.begin(), violations.end(), f.violation) != violations.end();
         });
}

std::string Verdict::text() const {
  std::string out = findings.empty() ? "no finding\n" : describe(findings);
  for (std::size_t i = 0; i < warnings.size() && i < 10; ++i) out += "plugin warned, " + warnings[i] + "\n";
  return out;
}

Verdict run(const RunOptions& options, const std::function<void(Rank&)>& body) {
  Board* board = Board::create();
  if (!board) return {{{Violation::HostFailed, -1, "no shared memory"}}, {}, {}, {}, 0};
  std::vector<Child> children;
  const int processes = options.layout == Layout::Processes ? options.ranks : 1;
  for (int i = 0; i < processes; ++i) {
    Child child;
    for (int r = 0; r < options.ranks; ++r)
      if (options.layout == Layout::Threads || r == i) child.ranks.push_back(r);
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) break;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    child.pid = fork();
    if (child.pid == 0) {
      for (const Child& other : children) close(other.pipe);
      close(ends[0]);
      beChild(options, body, board, i, child.ranks, ends[1]);
    }
    close(ends[1]);
    child.pipe = ends[0];
    children.push_back(std::move(child));
  }
  Verdict verdict = Parent(options, board).watch(std::move(children));
  Board::destroy(board);
  return verdict;
}

}  // namespace cgx::host
