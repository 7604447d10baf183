// Runs a body once for each rank, in processes or in threads of one process, never longer than a deadline, and gathers
// the verdict. Knows boards and pipes; what the ranks do is the body's business.
#pragma once

#include <xxhash.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/nccl_host/board.h"
#include "support/nccl_host/library.h"

namespace cgx::host {

enum class Layout {
  Processes,  // one forked process a rank
  Threads,    // one forked process for all, one thread a rank, one dlopen
};

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Limits {
  double runSeconds = 60;        // whole run; then every rank left is killed and named
  double stuckSeconds = 10;      // a call that must not block
  int sleepsTolerated = 12;      // such calls that slept a little, by name: a lock whose holder had no CPU
  double connectSeconds = 60;    // collnet connect, which blocks by contract
  double closeSeconds = 1;       // close*, deregMr, finalize
  double operationSeconds = 30;  // from post to done; also for net connections
};

struct RunOptions {
  std::string plugin;  // path of the .so
  int abi = kNewestAbi;
  int ranks = 2;
  Layout layout = Layout::Processes;
  Environment environment;                     // for every rank, before the plugin is loaded
  std::map<int, Environment> rankEnvironment;  // Processes only
  Limits limits;
  std::set<int> mayDie;  // ranks that a scenario kills: their death is no finding
  bool audit = true;     // threads, descriptors and mappings after the last dlclose
  bool exitNormally =
      false;  // leave with exit() instead of _exit(): runs destructors (and the leak checker, where there is one)
};

enum class CallKind {
  Connect,   // net connect and accept: must return at once
  Data,      // isend, irecv, test, iallreduce: must return at once
  Close,     // within Limits::closeSeconds
  Blocking,  // collnet connect: within Limits::connectSeconds
  Setup,     // init, devices, listen, regMr: within a few seconds
};

/// A rank's way to the parent and to the others. Any thread of the rank may use it.
class Rank {
 public:
  Rank(int rank, const RunOptions& options, Board* board, Library* library, int pipe)
      : rank_(rank), options_(options), board_(board), library_(library), pipe_(pipe) {}

  int rank() const { return rank_; }
  int ranks() const { return options_.ranks; }
  const RunOptions& options() const { return options_; }
  const Limits& limits() const { return options_.limits; }
  Board& board() { return *board_; }
  Library& library() { return *library_; }

  void report(Violation violation, const std::string& text);
  void report(const std::vector<Finding>& findings);
  /// Hashes of the same key must be equal on all ranks that give one.
  void hash(const std::string& key, XXH128_hash_t value);
  /// A fact for the test to read: Verdict::notes[key][rank].
  void note(const std::string& key, const std::string& value);
  void logged(int level, const std::string& message);

  /// A call into the plugin: visible to the watchdog, and timed. `name` is a literal.
  template <class F>
  ncclResult_t call(const char* name, CallKind kind, F&& f) {
    const CallTimer timer(this, name, kind);
    return f();
  }

  /// All ranks of `members` meet in a room and swap at most kRoomBytes. False: somebody is gone, or late.
  bool allGather(int room, const std::vector<int>& members, std::span<const std::byte> in, std::span<std::byte> out,
                 double seconds);
  bool barrier(int room, const std::vector<int>& members, double seconds) {
    return allGather(room, members, {}, {}, seconds);
  }
  std::vector<int> everyone() const;

  /// Has any other rank of these left?
  bool someoneGone(const std::vector<int>& members) const;

 private:
  friend class CallTimer;
  class CallTimer {
   public:
    CallTimer(Rank* rank, const char* name, CallKind kind) noexcept;
    ~CallTimer();

   private:
    Rank* rank_;
    const char* name_;
    CallKind kind_;
    CallMark mark_;
    Clock::time_point start_;
    long switches_;
  };

  void slept(const char* name, CallKind kind, double seconds);
  void send(const std::string& line);

  int rank_;
  const RunOptions& options_;
  Board* board_;
  Library* library_;
  int pipe_;
  std::mutex mutex_;
  std::map<std::string, int> sleeps_;
  std::array<std::uint64_t, kRooms> sequences_{};
  std::set<std::string> reported_;
};

/// What came of a run.
struct Verdict {
  std::vector<Finding> findings;
  std::map<std::string, std::map<int, std::string>> hashes;
  std::map<std::string, std::map<int, std::string>> notes;
  std::vector<std::string> warnings;  // "rank 1: ..." as the plugin logged them
  double seconds = 0;

  bool clean() const { return findings.empty(); }
  bool has(Violation violation) const;
  /// True when every finding is one of these and at least the first is there.
  bool only(std::initializer_list<Violation> violations) const;
  std::string text() const;
};

/// Must be called while the process has one thread. Never throws, never hangs longer than limits.runSeconds and a
/// little.
Verdict run(const RunOptions& options, const std::function<void(Rank&)>& body);

}  // namespace cgx::host
