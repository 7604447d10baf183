// What a rank says to its parent, and how long its calls take.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "support/nccl_host/rank_runner.h"

namespace cgx::host {
namespace {

// A call that gave up the CPU for this long has blocked; on a busy machine a lock held by a thread that is not running
// looks the same, so it takes several, or one that no scheduler explains.
constexpr double kSleepSeconds = 0.02;
constexpr double kLongSleepSeconds = 1.0;

long voluntarySwitches() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

Violation violationOf(CallKind kind) noexcept {
  switch (kind) {
    case CallKind::Connect:
      return Violation::BlocksInConnect;
    case CallKind::Data:
      return Violation::BlockingCall;
    case CallKind::Close:
      return Violation::CloseBlocks;
    case CallKind::Blocking:
      return Violation::ConnectNeverCompletes;
    case CallKind::Setup:
      return Violation::RankHangs;
  }
  return Violation::RankHangs;
}

double limitOf(CallKind kind, const Limits& limits) noexcept {
  switch (kind) {
    case CallKind::Connect:
    case CallKind::Data:
    case CallKind::Setup:
      return limits.stuckSeconds;
    case CallKind::Close:
      return limits.closeSeconds + limits.stuckSeconds;  // slow is measured, stuck is killed
    case CallKind::Blocking:
      return limits.connectSeconds;
  }
  return limits.stuckSeconds;
}

std::string oneLine(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\t') c = ' ';
  if (text.size() > 1500) text.resize(1500);  // below PIPE_BUF, so a line is written in one piece
  return text;
}

std::string seconds(double s) {
  std::array<char, 32> text{};
  snprintf(text.data(), text.size(), "%.3f s", s);
  return text.data();
}

}  // namespace

Rank::CallTimer::CallTimer(Rank* rank, const char* name, CallKind kind) noexcept
    : rank_(rank),
      name_(name),
      kind_(kind),
      mark_(rank->board_, rank->rank_, name, limitOf(kind, rank->limits()), violationOf(kind)),
      start_(Clock::now()),
      switches_(kind == CallKind::Connect || kind == CallKind::Data ? voluntarySwitches() : 0) {}

Rank::CallTimer::~CallTimer() {
  const double took = Seconds(Clock::now() - start_).count();
  if (took < kSleepSeconds) return;
  if (kind_ == CallKind::Close) {
    if (took > rank_->limits().closeSeconds)
      rank_->report(Violation::CloseBlocks, std::string(name_) + " took " + seconds(took));
  } else if ((kind_ == CallKind::Connect || kind_ == CallKind::Data) && voluntarySwitches() > switches_) {
    rank_->slept(name_, kind_, took);
  }
}

void Rank::slept(const char* name, CallKind kind, double took) {
  int times = 0;
  {
    const std::lock_guard lock(mutex_);
    times = ++sleeps_[name];
  }
  if (took > kLongSleepSeconds || times == limits().sleepsTolerated)
    report(violationOf(kind), std::string(name) + " slept " + seconds(took) + " (" + std::to_string(times) +
                                  " calls over " + seconds(kSleepSeconds) + " so far)");
}

void Rank::send(const std::string& line) {
  const std::lock_guard lock(mutex_);
  const ssize_t n = write(pipe_, line.data(), line.size());
  (void)n;  // the parent is gone: so will we be
}

void Rank::report(Violation violation, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    // The same sentence a thousand times tells nothing more; ten of a kind are enough to see the pattern.
    const std::string kind(name(violation));
    if (!reported_.insert(kind + text).second) return;
    if (++sleeps_["report " + kind] > 10) return;
  }
  send("F\t" + std::to_string(rank_) + "\t" + std::string(name(violation)) + "\t" + oneLine(text) + "\n");
}

void Rank::report(const std::vector<Finding>& findings) {
  for (const Finding& f : findings) report(f.violation, f.text);
}

void Rank::hash(const std::string& key, XXH128_hash_t value) {
  std::array<char, 40> hex{};
  snprintf(hex.data(), hex.size(), "%016llx%016llx", static_cast<unsigned long long>(value.high64),
           static_cast<unsigned long long>(value.low64));
  send("H\t" + std::to_string(rank_) + "\t" + oneLine(key) + "\t" + hex.data() + "\n");
}

void Rank::note(const std::string& key, const std::string& value) {
  send("N\t" + std::to_string(rank_) + "\t" + oneLine(key) + "\t" + oneLine(value) + "\n");
}

void Rank::logged(int level, const std::string& message) {
  if (level == NCCL_LOG_WARN) send("L\t" + std::to_string(rank_) + "\twarn\t" + oneLine(message) + "\n");
}

std::vector<int> Rank::everyone() const {
  std::vector<int> all;
  for (int r = 0; r < options_.ranks; ++r) all.push_back(r);
  return all;
}

bool Rank::allGather(int room, const std::vector<int>& members, std::span<const std::byte> in, std::span<std::byte> out,
                     double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  return board_->allGather(room, members, rank_, sequences_[static_cast<std::size_t>(room)]++, in, out, deadline);
}

bool Rank::someoneGone(const std::vector<int>& members) const {
  for (const int r : members)
    if (r != rank_ && board_->gone[static_cast<std::size_t>(r)].load()) return true;
  return false;
}

}  // namespace cgx::host
