#include "plugin/statistics.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/signals.h"
#include "cgx/log.h"
#include "statistics/file.h"
#include "statistics/format.h"

namespace cgx::plugin {
namespace {

constexpr std::size_t kListed = 64;              // closed communicators; frameworks make and drop them without end
constexpr auto kLook = std::chrono::seconds(1);  // how often for a request

std::string hostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

std::uint64_t Statistics::open(const collective::Communicator& communicator, int rank, int ranks, int bits) {
  if (inForkedChild()) return 0;
  const std::lock_guard life(lifeMutex_);
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = nextId_++;
    if (id == 0) {
      host_ = hostName();
      pid_ = ::getpid();
      rank_ = settings_.worldRank >= 0 ? settings_.worldRank : rank;
      if (!settings_.statsFile.empty()) path_ = statistics::expand(settings_.statsFile, host_, pid_, rank_);
      start_ = transport::Clock::now();
    }
    living_.push_back({&communicator, {.id = id, .rank = rank, .ranks = ranks, .bits = bits, .counters = {}}});
  }
  if (wanted() && !running_) startThread();
  return id;
}

void Statistics::close(std::uint64_t id) noexcept {
  if (inForkedChild()) return;
  try {
    closeNow(id);
  } catch (const std::exception& error) {
    CGX_LOG(Warn, Coll, "no statistics of communicator %llu: %s", static_cast<unsigned long long>(id), error.what());
    // It goes away, so nobody may look at it any more.
    const std::lock_guard lock(mutex_);
    std::erase_if(living_, [id](const Living& l) { return l.record.id == id; });
  }
}

// Its locks are as they happened to be at the fork, and the thread is missing.
bool Statistics::inForkedChild() const noexcept {
  const long owner = pid_.load();
  return owner != 0 && owner != ::getpid();
}

void Statistics::closeNow(std::uint64_t id) {
  const std::lock_guard life(lifeMutex_);
  statistics::Record record;
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(living_.begin(), living_.end(), [id](const Living& l) { return l.record.id == id; });
    if (it == living_.end()) return;
    record = it->record;
    record.counters = it->communicator->counters();
    record.open = false;
    statistics::add(closedSums_, record);
    living_.erase(it);
    last = living_.empty();
    if (closed_.size() < kListed) {
      closed_.push_back(record);
    } else {
      ++unlisted_;
    }
  }
  if (last) stopThread();
  CGX_LOG(Info, Coll, "%s",
          record.counters.operations > 0 ? statistics::summary(record).c_str() : statistics::unused(record).c_str());
  writeFile();
}

void Statistics::startThread() {
  const sigset_t blocked = signalsOfTheHost();
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const int error = pthread_create(&thread_, nullptr, &Statistics::entry, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  running_ = error == 0;
  if (!running_)
    CGX_LOG(Warn, Init, "statistics only at the end: %s", Status::system("start a thread", error).text().c_str());
}

void Statistics::stopThread() noexcept {
  if (!running_) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  pthread_join(thread_, nullptr);
  running_ = false;
  stop_ = false;
}

void* Statistics::entry(void* self) noexcept {
  pthread_setname_np(pthread_self(), "cgx-statistics");
  try {
    static_cast<Statistics*>(self)->watch();
  } catch (const std::exception& error) {
    CGX_LOG(Warn, Coll, "no statistics until the end: %s", error.what());
  }
  return nullptr;
}

void Statistics::watch() {
  using transport::Clock;
  const bool timed = settings_.statsInterval > 0;
  const auto interval =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings_.statsInterval));
  auto due = Clock::now() + interval;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      auto until = Clock::now() + kLook;
      if (timed) until = path_.empty() ? due : std::min(until, due);
      if (wake_.wait_until(lock, until, [&] { return stop_; })) return;
    }
    const bool asked = !path_.empty() && statistics::takeRequest(path_);
    const bool now = timed && Clock::now() >= due;
    if (now) due = Clock::now() + interval;
    if (!asked && !now) continue;
    sayOpen();
    writeFile();
  }
}

/// The lock on mutex_ keeps the communicators alive: close() takes it before they go.
statistics::Snapshot Statistics::take() {
  const std::lock_guard lock(mutex_);
  statistics::Snapshot snapshot{.host = host_,
                                .pid = pid_,
                                .rank = rank_,
                                .unlisted = unlisted_,
                                .sums = closedSums_,
                                .records = closed_,
                                .series = {}};
  for (const Living& living : living_) {
    snapshot.records.push_back(living.record);
    snapshot.records.back().counters = living.communicator->counters();
    statistics::add(snapshot.sums, snapshot.records.back());
  }
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(transport::Clock::now() - start_);
  const auto unixTime = std::chrono::system_clock::now().time_since_epoch();
  snapshot.milliseconds = static_cast<std::uint64_t>(milliseconds.count());
  snapshot.unixSeconds = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(unixTime).count());
  series_.offer({snapshot.milliseconds, snapshot.sums});
  snapshot.series = series_.samples();
  return snapshot;
}

void Statistics::sayOpen() {
  std::vector<statistics::Record> records;
  {
    const std::lock_guard lock(mutex_);
    for (const Living& living : living_) {
      records.push_back(living.record);
      records.back().counters = living.communicator->counters();
    }
  }
  for (const statistics::Record& record : records)
    CGX_LOG(Info, Coll, "so far %s", statistics::summary(record).c_str());
}

void Statistics::writeFile() {
  if (path_.empty()) return;
  const std::lock_guard file(fileMutex_);
  const statistics::Snapshot snapshot = take();
  const std::string text = settings_.statsFormat == StatsFormat::Prometheus ? statistics::toPrometheus(snapshot)
                                                                            : statistics::toJson(snapshot);
  const Status written = statistics::replaceFile(path_, text);
  if (!written.failed() || warned_) return;
  warned_ = true;
  CGX_LOG(Warn, Env,
          "no statistics file: %s; the job goes on. CGX_STATS_FILE must name a place in a folder that exists, is "
          "writable and has room",
          written.text().c_str());
}

}  // namespace cgx::plugin
